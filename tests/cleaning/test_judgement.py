"""The judgement of sets, against simulations with known truth and the formula row by row."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ltpll.candidates import Candidates
from ltpll.cleaning import judgement as module
from ltpll.cleaning.judgement import judge
from ltpll.evaluation.set_predictions import TEMPERATURES, SetPredictions


def simulated(missing, *, n=4000, c=8, sharpness=1.0, seed=0):
    """A classifier whose logits are `sharpness` times too large; random sets; which lack truth."""
    rng = np.random.default_rng(seed)
    true = rng.dirichlet(np.full(c, 0.15), n)
    y = np.asarray([rng.choice(c, p=row) for row in true])
    stated = np.maximum(true, 1e-9) ** sharpness
    lacks = rng.random(n) < missing
    sets = np.zeros((n, c), dtype=bool)
    for i in range(n):
        others = rng.permutation(np.delete(np.arange(c), y[i]))[: rng.integers(1, 4)]
        sets[i, others] = True
        if not lacks[i]:
            sets[i, others[0]], sets[i, y[i]] = False, True
    probabilities = torch.from_numpy((stated / stated.sum(1, keepdims=True)).astype(np.float32))
    return SetPredictions.of(probabilities, Candidates.of(sets)), lacks, y


@pytest.mark.parametrize("missing", [0.0, 0.02, 0.1, 0.3])
def test_the_share_of_sets_without_their_label_is_found(missing):
    predictions, lacks, _ = simulated(missing)
    found = judge(predictions, 8)
    assert abs(found.missing - lacks.mean()) < 0.015


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 2.0, 4.0])
def test_the_temperature_undoes_false_confidence(sharpness):
    predictions, _, _ = simulated(0.05, sharpness=sharpness)
    found = judge(predictions, 8)
    assert found.temperature in [t for t in TEMPERATURES if sharpness / 1.2 < t < sharpness * 1.2]


def test_suspicion_is_at_most_the_rate_at_which_sets_lack_their_label_and_close_to_it():
    predictions, lacks, _ = simulated(0.15, n=10_000, sharpness=2.0)
    suspicion = judge(predictions, 8).suspicion
    for low, high in [(0, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1.01)]:
        rows = (suspicion >= low) & (suspicion < high)
        assert rows.sum() > 100
        assert -0.02 < lacks[rows].mean() - suspicion[rows].mean() < 0.08


def test_suspicion_is_that_of_the_formula(monkeypatch):
    monkeypatch.setattr(module, "DOUBT", 1e12)
    predictions, _, _ = simulated(0.1, n=300, c=5)
    found = judge(predictions, 5)
    place, e = TEMPERATURES.index(found.temperature), found.missing
    for i in range(300):
        k, s = (
            predictions.offsets[i + 1] - predictions.offsets[i],
            float(predictions.set_probability[i, place]),
        )
        lacks = e * (1 - s) * k / (5 - k) if k < 5 else 0.0
        assert found.suspicion[i] == pytest.approx(lacks / (lacks + (1 - e) * s), abs=1e-4)


def test_sets_of_one_kind_may_lack_their_label_more_often():
    many, few = simulated(0.2, seed=1), simulated(0.0, seed=2)
    parts = [one[0] for one in (many, few)]
    joined = {
        name: np.concatenate([getattr(one, name) for one in parts])
        for name in ("set_probability", "outside_probability", "inside", "outside", "supported")
    }
    offsets = np.concatenate([parts[0].offsets, parts[1].offsets[1:] + parts[0].offsets[-1]])
    flat = [
        np.concatenate([getattr(one, name) for one in parts])
        for name in ("candidates", "weights", "candidate_probability")
    ]
    whole = SetPredictions(offsets, *flat, **joined)
    kinds = np.repeat([0, 1], 4000)
    apart = judge(whole, 8, kinds).suspicion
    together = judge(whole, 8).suspicion
    assert apart[kinds == 1].mean() < 0.01 < together[kinds == 1].mean()
    assert apart[kinds == 0].mean() == pytest.approx(many[1].mean(), abs=0.03)


def test_a_class_that_was_not_learned_is_not_judged_and_raises_little_suspicion():
    rng = np.random.default_rng(0)
    n, rare = 1000, 12
    y = np.concatenate([rng.integers(0, 4, n - rare), np.full(rare, 4)])
    # Sure and right about four classes; the rows of the fifth look like one of the others.
    predicted = np.where(y == 4, rng.integers(0, 4, n), y)
    probabilities = np.full((n, 5), 0.001)
    probabilities[np.arange(n), predicted] = 0.996
    sets = np.zeros((n, 5), dtype=bool)
    sets[np.arange(n), y] = True
    predictions = SetPredictions.of(
        torch.from_numpy(probabilities.astype(np.float32)), Candidates.of(sets)
    )
    found = judge(predictions, 5)
    assert found.judged.tolist() == [True] * 4 + [False]
    assert (found.examples[4], found.recovered[4]) == (rare, 0)
    assert found.suspicion[y == 4].max() < 0.5


def test_confused_classes_raise_less_suspicion_than_scattered_contradictions():
    rng = np.random.default_rng(0)
    n, c = 3000, 6
    y = rng.integers(0, c, n)
    predicted = y.copy()
    confused = np.flatnonzero(
        (y == 1) & (rng.random(n) < 0.2)
    )  # taken for class 0, although their sets hold the label
    predicted[confused] = 0
    probabilities = np.full((n, c), 0.002)
    probabilities[np.arange(n), predicted] = 0.99
    sets = np.zeros((n, c), dtype=bool)
    sets[np.arange(n), y] = True
    lost = np.flatnonzero((rng.random(n) < 0.02) & (predicted == y))
    sets[lost] = False
    sets[lost, (y[lost] + rng.integers(1, c, len(lost))) % c] = True
    predictions = SetPredictions.of(
        torch.from_numpy(probabilities.astype(np.float32)), Candidates.of(sets)
    )
    suspicion = judge(predictions, c).suspicion
    assert 2 * np.median(suspicion[confused]) < np.median(suspicion[lost])


def test_a_useless_classifier_covers_sets_as_often_as_chance_does():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(6), 3000).astype(np.float32)
    sets = rng.random((3000, 6)) < 0.4
    sets[np.arange(3000), rng.integers(0, 6, 3000)] = True
    found = judge(SetPredictions.of(torch.from_numpy(probabilities), Candidates.of(sets)), 6)
    assert found.covering == pytest.approx(found.chance, abs=0.03)
    assert found.chance == pytest.approx(sets.mean(), abs=0.02)
    assert found.suspicion.max() < 0.5


def test_a_set_with_a_candidate_that_the_classifiers_do_not_know_is_not_judged():
    predictions, _, _ = simulated(0.1, n=500)
    found = judge(predictions, 8)
    known = replace(found, judged=np.arange(8) != 3)
    expected = [
        3 not in predictions.candidates[predictions.offsets[i] : predictions.offsets[i + 1]]
        for i in range(500)
    ]
    assert known.judged_sets(predictions).tolist() == expected
    assert 0 < sum(expected) < 500
