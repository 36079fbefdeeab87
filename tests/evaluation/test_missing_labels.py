"""How many sets lack the true label, on simulated predictions whose probabilities are right."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ltpll.candidates import Candidates
from ltpll.evaluation.missing_labels import (
    balanced_temperature,
    fit_missing_labels,
    missing_by_size,
    set_likelihoods,
)
from ltpll.evaluation.set_predictions import TEMPERATURES, SetPredictions

C = 8


def simulated(share, n=6000, temperature=1.0, seed=0, q=0.3):
    """Labels drawn from calibrated probabilities, random sets, some of which lose the label; then
    logits are multiplied."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(C, 0.15), n)
    y = np.asarray([rng.choice(C, p=row) for row in probabilities])
    sets = rng.random((n, C)) < q
    lacks = rng.random(n) < share
    sets[np.arange(n), y] = ~lacks
    for row in np.flatnonzero(~sets.any(1)):
        sets[row, (y[row] + rng.integers(1, C)) % C] = True
    seen = torch.from_numpy(probabilities).clamp_min(1e-12).log() * temperature
    candidates = Candidates.from_matrix(sets)
    return (
        SetPredictions.of(torch.softmax(seen, 1).float(), candidates),
        candidates,
        ~sets[np.arange(n), y],
    )


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_predictions_for_equally_frequent_classes_are_calibrated(power):
    """Rows of equally frequent classes, of which most of the rare ones are then left out."""
    rng, n, prior = np.random.default_rng(0), 40_000, np.geomspace(1, 0.02, C)
    even = rng.dirichlet(np.full(C, 0.2), n) + 1e-4
    even /= even.sum(1, keepdims=True)
    y = (rng.random((n, 1)) > even.cumsum(1)).sum(1).clip(0, C - 1)
    some = rng.random(n) < prior[y]
    even, y, prior = even[some], y[some], prior / prior.sum()
    sets = (rng.random((len(y), C)) < 0.3) | (np.arange(C) == y[:, None])
    predicted = even**power * prior
    seen = torch.from_numpy(predicted / predicted.sum(1, keepdims=True)).float()
    found = SetPredictions.of(seen, Candidates.from_matrix(sets))
    assert balanced_temperature(found, prior, 0.0) == pytest.approx(power, rel=0.2)
    dense = replace(found, log_probability=None)
    assert balanced_temperature(dense, prior, 0.0) == 1


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
def test_the_share_is_found_for_each_size_of_a_set(share):
    predictions, candidates, lacks = simulated(share)
    found = missing_by_size(predictions, C)
    sizes = candidates.sizes.numpy()
    assert len(found) == C + 1
    assert np.asarray(found)[sizes].mean() == pytest.approx(lacks.mean(), abs=0.02)
    for k in range(1, 5):
        assert found[k] == pytest.approx(lacks[sizes == k].mean(), abs=0.06)


def test_overconfident_predictions_are_calibrated_and_the_share_stays():
    predictions, candidates, lacks = simulated(0.1, temperature=2.0)
    found = fit_missing_labels(
        predictions, C, candidates.sizes.long().numpy(), temperature_by_strata=True
    )
    assert found.temperature == pytest.approx(2.0, rel=0.2)
    assert found.suspicion.mean() == pytest.approx(lacks.mean(), abs=0.03)


def test_the_suspicion_is_a_probability_that_comes_true():
    predictions, candidates, lacks = simulated(0.2)
    found = fit_missing_labels(
        predictions, C, candidates.sizes.long().numpy(), temperature_by_strata=True
    ).suspicion
    for low, high in ((0, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1.01)):
        rows = (found >= low) & (found < high)
        assert lacks[rows].mean() == pytest.approx(found[rows].mean(), abs=0.07)


def test_likelihoods_equal_the_formula():
    s, sizes = np.array([0.9, 0.2, 1.0]), np.array([2, 1, C])
    holds, lacks = set_likelihoods(s, sizes, C)
    np.testing.assert_allclose(holds, s)
    np.testing.assert_allclose(lacks, [0.1 * 2 / (C - 2), 0.8 / (C - 1), 0])


def test_the_likeliest_class_outside_has_its_share_of_what_is_outside():
    predictions, candidates, _ = simulated(0.2, n=50)
    probabilities = np.exp(predictions.log_probability.astype(np.float64))
    for temperature in (TEMPERATURES[4], 1.0, TEMPERATURES[12]):
        found = predictions.outside_shares(temperature)
        for i in range(50):
            tempered = probabilities[i] ** (1 / temperature)
            outside = np.delete(tempered, candidates.row(i))
            assert found[i] == pytest.approx(outside.max() / outside.sum(), rel=0.02)
