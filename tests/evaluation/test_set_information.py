import itertools

import numpy as np
import pytest

from ltpll import Candidates
from ltpll.errors import InputError
from ltpll.evaluation.set_information import (
    set_information,
    set_information_by_class,
    set_probabilities,
)

POSTERIOR = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])  # of y for each x
JOINS = 0.4  # the probability that a wrong label joins a set


def exact_mutual_information():
    """Of x, which is uniform, and the set, by summing over all pairs."""
    total, subsets = 0.0, [s for k in (1, 2, 3) for s in itertools.combinations(range(3), k)]
    for subset in subsets:
        likelihood = np.zeros(3)
        for y in subset:
            likelihood[y] = JOINS ** (len(subset) - 1) * (1 - JOINS) ** (3 - len(subset))
        given_x = POSTERIOR @ likelihood
        total += (given_x / 3 * np.log(given_x / given_x.mean())).sum()
    return total


def draw(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(3, size=n)
    y = (rng.random(n)[:, None] > POSTERIOR[x].cumsum(1)).sum(1)
    mask = rng.random((n, 3)) < JOINS
    mask[np.arange(n), y] = True
    return x, y, Candidates.from_matrix(mask)


def test_the_true_posterior_has_the_mutual_information_of_features_and_sets():
    x, _, sets = draw(100_000)
    found = set_information(POSTERIOR[x], sets)
    assert found.nats == pytest.approx(exact_mutual_information(), abs=3 * found.standard_error)
    assert found.standard_error < 0.003


def test_other_models_have_less_than_the_true_posterior():
    x, _, sets = draw(20_000)
    best = set_information(POSTERIOR[x], sets).nats
    for power in (0.3, 3.0):
        other = POSTERIOR**power / (POSTERIOR**power).sum(1, keepdims=True)
        assert set_information(other[x], sets).nats < best
    assert set_information(POSTERIOR[np.random.default_rng(1).permutation(x)], sets).nats < 0


def test_predicting_the_same_everywhere_says_nothing_however_frequent_the_label():
    _, _, sets = draw(1000)
    constant = np.tile([0.98, 0.01, 0.01], (1000, 1))
    assert set_information(constant, sets).nats == pytest.approx(0, abs=1e-12)


def test_a_naive_loop_gives_the_same_probabilities_of_sets():
    rng = np.random.default_rng(3)
    probabilities = rng.dirichlet(np.ones(4), size=6)
    members = [[0], [1, 2], [3], [0, 1, 2, 3], [2, 3], [0, 3]]
    weights = [[1.0], [0.75, 0.25], [1.0], [0.25] * 4, [0.5, 0.5], [0.9, 0.1]]
    sets = Candidates.of(members).with_weights(np.concatenate(weights).astype(np.float32))
    by_features, by_mean = set_probabilities(probabilities, sets)
    mean = probabilities.mean(0)
    for row, (labels, own) in enumerate(zip(members, weights, strict=True)):
        scaled = np.array(own) * len(labels)
        assert by_features[row] == pytest.approx((scaled * probabilities[row, labels]).sum())
        assert by_mean[row] == pytest.approx((scaled * mean[labels]).sum())


def test_rows_of_a_group_count_as_one_for_the_standard_error():
    x, _, sets = draw(500)
    alone = set_information(POSTERIOR[x], sets)
    copies = sets.select(np.repeat(np.arange(500), 4)).with_groups(np.repeat(np.arange(500), 4))
    grouped = set_information(POSTERIOR[np.repeat(x, 4)], copies)
    assert grouped.nats == pytest.approx(alone.nats)
    assert grouped.standard_error == pytest.approx(alone.standard_error)


def test_all_probability_inside_the_sets_is_all_that_is_possible():
    _, y, sets = draw(2000)
    found = set_information(np.eye(3)[y], sets)
    assert found.nats == pytest.approx(found.possible)
    assert "100%" in str(found)


def test_a_class_that_the_features_show_has_more_information_than_others():
    x, _, sets = draw(20_000)
    of_class = set_information_by_class(POSTERIOR[x], sets)
    assert of_class.argmax() == 0  # frequent where x is 0, rare where x is 1
    assert np.isnan(
        set_information_by_class(np.eye(4)[[0, 0]], Candidates.of([[0], [0]], n_classes=4))[3]
    )


def test_classes_unseen_in_training_have_probability_zero():
    sets = Candidates.of([[0], [1], [2]])
    assert np.isfinite(set_information(np.full((3, 2), 0.5), sets).nats)


def test_another_number_of_rows_is_refused():
    with pytest.raises(InputError, match=r"one row of probabilities per set, not 2 rows for 3"):
        set_information(np.full((2, 3), 1 / 3), Candidates.of([[0], [1], [2]]))
