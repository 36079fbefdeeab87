"""Mixtures of members, compared with searches and loops over rows and classes."""

import numpy as np
import pytest

from ltpll.candidates import Candidates
from ltpll.committee.mixture import (
    PSEUDO_ROWS,
    UNINFORMATIVE,
    floored_shares,
    inside_sets,
    mixture_weights,
    with_shares,
)


def problem(n=60, n_classes=3, n_members=3, seed=0):
    """Members whose probabilities are right to a different degree, and sets of candidates."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    members = []
    for sureness in np.linspace(0.5, 2.5, n_members):
        logits = rng.normal(size=(n, n_classes)) + sureness * np.eye(n_classes)[y]
        members.append(np.exp(logits) / np.exp(logits).sum(1, keepdims=True))
    mask = (rng.random((n, n_classes)) < 0.4) | np.eye(n_classes, dtype=bool)[y]
    return members, Candidates.from_matrix(mask)


def objective(weights, members, sets):
    """What `mixture_weights` maximises, row by row as its docstring defines it."""
    n, total = len(sets), 0.0
    means = [one.mean(0) for one in members]
    for i in range(n):
        row, by_features, by_mean = sets.row(i), 0.0, 0.0
        for w, one, mean in zip(weights, members, means, strict=True):
            of_mean = mean[row].sum()
            by_features += w * ((1 - UNINFORMATIVE) * one[i, row].sum() + UNINFORMATIVE * of_mean)
            by_mean += w * of_mean
        total += (np.log(by_features) - np.log(by_mean)) / n
    return total + PSEUDO_ROWS / n * np.log(weights).mean()


@pytest.mark.parametrize("seed", [0, 1])
def test_no_point_of_a_fine_grid_has_more_information_than_the_weights(seed):
    members, sets = problem(n=30, seed=seed)
    found = mixture_weights(members, sets)
    grid = [np.array([a, b, 20 - a - b]) / 20 for a in range(1, 19) for b in range(1, 20 - a)]
    values = [objective(one, members, sets) for one in grid]
    assert objective(found, members, sets) >= max(values) - 1e-6
    assert np.abs(found - grid[int(np.argmax(values))]).max() < 0.06
    assert found.sum() == pytest.approx(1)


def test_the_order_of_members_does_not_matter():
    members, sets = problem()
    order = [2, 0, 1]
    found = mixture_weights(members, sets)
    np.testing.assert_allclose(
        mixture_weights([members[k] for k in order], sets), found[order], atol=1e-4
    )


def test_equal_members_share_their_weight_equally_and_one_alone_has_all():
    members, sets = problem(n_members=2)
    np.testing.assert_allclose(mixture_weights([members[0]] * 4, sets), [0.25] * 4, atol=1e-6)
    assert mixture_weights(members[:1], sets).tolist() == [1.0]


def test_a_member_that_knows_the_sets_outweighs_one_that_guesses_as_rows_are_added():
    shares = []
    for n in (8, 80, 800):
        (guess, knows), sets = problem(n=n, n_members=2)
        shares.append(mixture_weights([np.full_like(guess, 1 / 3), knows], sets)[1])
    assert shares[0] < shares[1] < shares[2]
    assert shares[2] > 0.9


def test_with_shares_is_the_rule_of_bayes():
    rng = np.random.default_rng(0)
    given, own, shared = (rng.dirichlet(np.ones(4), n) for n in (7, 1, 1))
    found = with_shares(given, own[0], shared[0])
    for i, row in enumerate(given):
        likelihood = [row[c] / own[0, c] for c in range(4)]  # up to a factor of the row
        joint = [likelihood[c] * shared[0, c] for c in range(4)]
        np.testing.assert_allclose(found[i], np.array(joint) / sum(joint), rtol=1e-5)
    np.testing.assert_allclose(with_shares(found, shared[0], own[0]), given, rtol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_soft_labels_are_the_probabilities_of_candidates_and_sum_to_one(weighted):
    (given, *_), sets = problem(n=20)
    weights = np.random.default_rng(1).random(len(sets.labels)) + 0.1
    if weighted:
        sets = sets.with_weights(weights)
    found = inside_sets(given, sets)
    for i in range(20):
        row = sets.row(i)
        first = int(sets.offsets[i])
        factors = [float(sets.weights[first + k]) if weighted else 1.0 for k in range(len(row))]
        expected = np.zeros(3)
        expected[row] = given[i, row] * factors
        np.testing.assert_allclose(found[i], expected / expected.sum(), atol=1e-5)


def test_a_row_whose_candidates_are_excluded_has_equal_soft_labels():
    sets = Candidates.of([[0, 1], [2]])
    found = inside_sets(np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]), sets)
    np.testing.assert_allclose(found, [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])


def test_shares_are_floored_at_half_a_row():
    found = floored_shares(np.array([0.0, 0.25, 0.75]), 10)
    np.testing.assert_allclose(found, np.array([0.05, 0.25, 0.75]) / 1.05)
