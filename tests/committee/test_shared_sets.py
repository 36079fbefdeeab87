"""Tests of what rows that share a set tell about each other's labels."""

from itertools import product

import numpy as np
import pytest

from ltpll.candidates import Candidates
from ltpll.committee import shared_sets
from ltpll.committee.shared_sets import SharedSets, labels_of_groups


def by_listing(inside, e):
    """The labels of one group, by listing all combinations of labels of its rows."""
    n_rows, n_labels = inside.shape
    found = np.zeros_like(inside)
    for labels in product(range(n_labels), repeat=n_rows):
        weight = np.prod(inside[np.arange(n_rows), labels]) * e ** (n_labels - len(set(labels)))
        found[np.arange(n_rows), labels] += weight
    return found / found.sum(1, keepdims=True)


def drawn(rng, n_rows, n_labels):
    return rng.dirichlet(np.full(n_labels, 0.5), n_rows)


@pytest.mark.parametrize(("n_rows", "n_labels"), [(2, 2), (3, 2), (2, 4), (5, 3), (4, 5)])
@pytest.mark.parametrize("e", [0.01, 0.3, 1.0])
def test_labels_of_a_group_are_those_of_all_combinations(n_rows, n_labels, e):
    inside = drawn(np.random.default_rng(0), n_rows, n_labels)

    found = labels_of_groups(inside, np.array([0]), e)

    np.testing.assert_allclose(found, by_listing(inside, e), atol=1e-6)


def test_groups_do_not_influence_each_other_however_many_are_computed_at_once(monkeypatch):
    rng = np.random.default_rng(1)
    groups = [drawn(rng, n, 3) for n in (2, 5, 1, 3, 4)]
    starts = np.cumsum([0, *(len(one) for one in groups)])[:-1]
    alone = np.concatenate([by_listing(one, 0.05) for one in groups])
    for values in (1, 40, 2**20):
        monkeypatch.setattr(shared_sets, "VALUES_AT_ONCE", values)
        found = labels_of_groups(np.concatenate(groups), starts, 0.05)
        np.testing.assert_allclose(found, alone, atol=1e-6)


def test_rows_whose_label_is_outside_of_the_set_say_nothing_about_others():
    inside = np.array([[0.7, 0.3], [0.0, 0.0], [0.2, 0.8]])

    found = labels_of_groups(inside, np.array([0]), 0.1)

    np.testing.assert_allclose(found[[0, 2]], by_listing(inside[[0, 2]], 0.1), atol=1e-9)
    assert (found[1] == 0).all()


def pictures(rng, n_pictures, n_classes):
    """The classes of the objects of pictures, and the set of each picture."""
    labels = [rng.integers(n_classes, size=rng.integers(2, 5)) for _ in range(n_pictures)]
    sets = [sorted(set(one)) for one in labels for _ in one]
    return np.concatenate(labels), np.repeat(np.arange(n_pictures), list(map(len, labels))), sets


@pytest.mark.parametrize("told", [True, False])
def test_objects_of_pictures_are_told_apart_better_than_one_by_one(told):
    rng = np.random.default_rng(2)
    y, of_picture, sets = pictures(rng, 300, 8)
    candidates = Candidates.of(sets, n_classes=8, groups=of_picture if told else None)
    logits = rng.normal(size=(len(y), 8)) + 1.5 * np.eye(8)[y]
    soft = np.exp(logits) * candidates.dense().numpy()
    soft /= soft.sum(1, keepdims=True)

    found = SharedSets.found_in(candidates).informed(soft)

    several = candidates.sizes.numpy() > 1
    alone, informed = ((one.argmax(1) == y)[several].mean() for one in (soft, found))
    assert informed > alone + 0.05
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)
    assert (found[~candidates.dense().numpy()] == 0).all()


def test_probabilities_outside_of_the_sets_stay():
    candidates = Candidates.of([[0, 1], [0, 1], [2]], n_classes=3)
    soft = np.array([[0.5, 0.1, 0.4], [0.3, 0.2, 0.5], [0.2, 0.2, 0.6]])

    found = SharedSets(np.array([0, 0, 1]), candidates).informed(soft)

    np.testing.assert_allclose(found[:, 2], soft[:, 2], atol=1e-7)
    np.testing.assert_allclose(found.sum(1), soft.sum(1), atol=1e-6)
    assert found[1, 1] > soft[1, 1]


def test_candidates_that_often_have_no_row_say_little():
    rng = np.random.default_rng(3)
    n_classes, n_groups = 4, 400
    y = np.repeat(rng.integers(n_classes, size=n_groups), 3)  # all rows of a group are alike
    sets = [sorted({int(y[3 * g]), int((y[3 * g] + 1) % n_classes)}) for g in range(n_groups)]
    candidates = Candidates.of(np.repeat(np.array(sets), 3, axis=0).tolist(), n_classes=n_classes)
    soft = np.full((len(y), n_classes), 0.0)
    soft[np.arange(len(y)), y] = 0.9
    soft += 0.1 * (candidates.dense().numpy() & ~np.eye(n_classes, dtype=bool)[y])

    found = SharedSets(np.repeat(np.arange(n_groups), 3), candidates).informed(soft)

    assert (found.argmax(1) == y).all()
    assert found[np.arange(len(y)), y].mean() > 0.7


def test_independent_sets_have_no_groups():
    rng = np.random.default_rng(4)
    matrix = rng.random((500, 8)) < 0.3
    matrix[np.arange(500), rng.integers(8, size=500)] = True

    assert SharedSets.found_in(Candidates.from_matrix(matrix)) is None


def test_large_sets_stay():
    candidates = Candidates.of([list(range(9))] * 2, n_classes=9)
    soft = drawn(np.random.default_rng(5), 2, 9)

    found = SharedSets(np.array([0, 0]), candidates).informed(soft)

    np.testing.assert_allclose(found, soft, atol=1e-7)
