"""Joining rates and the evidence of a set, against loops and with known true labels."""

import math

import numpy as np
import pytest
import torch

from ltpll.candidates import Candidates
from ltpll.priors.distinct_sets import distinct_sets
from ltpll.priors.joining import LEAST_RATE, PSEUDO_ROWS, joining_rates, set_evidence
from ltpll.synthetic import superclass_candidates, top_k_candidates, uniform_candidates
from support.candidate_sets import random_sets


def naive_rates(rows, n_classes):
    together, counts = np.zeros((n_classes, n_classes)), np.zeros(n_classes)
    for row in rows:
        for y in row:
            counts[y] += 1 / len(row)
            for j in row:
                together[y, j] += 1 / len(
                    row
                )  # j is in the set, and y is true with this probability
    mean = sum(len(row) - 1 for row in rows) / len(rows) / (n_classes - 1)
    return np.array(
        [
            [
                (together[y, j] + together[j, y] + PSEUDO_ROWS * mean)
                / (counts[y] + counts[j] + PSEUDO_ROWS)
                for j in range(n_classes)
            ]
            for y in range(n_classes)
        ]
    )


def naive_evidence(rows, rates, strength):
    n_classes = len(rates)
    found = []
    for row in rows:
        likelihoods = []
        for y in row:
            factors = [
                rates[y, j] if j in row else 1 - rates[y, j] for j in range(n_classes) if j != y
            ]
            likelihoods.append(math.prod(factors) ** strength)
        found += [math.log(one / sum(likelihoods) * len(row)) for one in likelihoods]
    return found


@pytest.mark.parametrize("strength", [1.0, 0.5])
def test_rates_and_evidence_are_those_of_a_loop(strength):
    candidates, _ = random_sets(60, 6, 1)
    rows = [candidates.row(i) for i in range(60)]
    rates = joining_rates(distinct_sets(candidates))
    np.testing.assert_allclose(rates, naive_rates(rows, 6), rtol=1e-12)
    expected = naive_evidence(rows, rates.clip(LEAST_RATE, 1 - LEAST_RATE), strength)
    np.testing.assert_allclose(set_evidence(candidates, strength).numpy(), expected, atol=1e-5)


def test_evidence_is_computed_in_parts_without_mixing_rows(monkeypatch):
    candidates, _ = random_sets(150, 6, 2)
    whole = set_evidence(candidates)
    monkeypatch.setattr("ltpll.priors.joining.ROWS_AT_ONCE", 20)
    torch.testing.assert_close(set_evidence(candidates), whole)
    monkeypatch.setattr("ltpll.candidates.storage.VALUES_PER_PASS", 60)
    assert len(candidates.row_blocks(candidates.n_classes)) > 10
    torch.testing.assert_close(set_evidence(candidates), whole)


def test_labels_that_are_alone_in_their_sets_have_no_evidence():
    assert set_evidence(Candidates.of([[0], [1], [2], [0]])).tolist() == [0, 0, 0, 0]


def test_rates_come_from_the_sets_before_answers_replaced_them():
    before = Candidates.of([[0, 1]] * 20 + [[2, 3]] * 20 + [[0, 2, 3]] * 5)
    after = before.with_answers(range(20), [[0]] * 20)
    torch.testing.assert_close(set_evidence(after)[-15:], set_evidence(before)[-15:])
    assert (set_evidence(after)[:20] == 0).all()


@pytest.mark.parametrize("origin", ["superclass", "top-k"])
def test_true_labels_have_more_evidence_than_others_where_similar_classes_share_sets(origin):
    rng = np.random.default_rng(0)
    labels = rng.choice(12, 1500, p=(shares := 0.75 ** np.arange(12)) / shares.sum())
    if origin == "superclass":
        candidates = superclass_candidates(labels, np.arange(12) // 3, 0.08, seed=0)
    else:
        candidates = top_k_candidates(labels, 12, 3, seed=0)
    assert mean_share_of_truth(candidates, labels) > 1.1


def test_independent_sets_hardly_say_more_about_the_true_label_than_about_others():
    labels = np.random.default_rng(0).integers(0, 12, 1500)
    assert mean_share_of_truth(
        uniform_candidates(labels, 12, 0.2, seed=0), labels
    ) == pytest.approx(1, abs=0.05)


def mean_share_of_truth(candidates, labels):
    """How much more probable than by chance the evidence makes the true label, on average."""
    rows = torch.arange(len(labels)).repeat_interleave(candidates.sizes.long())
    true = candidates.labels.long() == torch.from_numpy(labels)[rows]
    return float(set_evidence(candidates)[true].exp().mean())
