"""`SoftForest`, compared with the forest of scikit-learn that it was grown as."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from ltpll.committee import SoftForest
from ltpll.committee import forest as module
from ltpll.committee.forest import repeated_rows
from support.refusals import refusal


def problem(n=80, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)).astype(np.float32)
    x[:, 2] = rng.integers(0, 3, n)
    soft = rng.dirichlet(np.full(n_classes, 0.3), n)
    soft[:, 1] = 0  # a class that no row has
    return x, (soft / soft.sum(1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def grown():
    return SoftForest(trees=6, seed=3).fit(*problem())


@pytest.mark.parametrize("rows_at_once", [4096, 7])
def test_it_predicts_what_the_forest_of_scikit_learn_does_on_repeated_rows(
    grown, monkeypatch, rows_at_once
):
    monkeypatch.setattr(module, "ROWS_AT_ONCE", rows_at_once)
    x, soft = problem()
    rows, labels, weights = repeated_rows(soft)
    theirs = RandomForestClassifier(6, min_samples_leaf=2, random_state=3)
    theirs.fit(x[rows], labels, sample_weight=weights)
    new = np.concatenate([x, problem(seed=1)[0] * 3])
    expected = np.zeros((len(new), 4))
    expected[:, theirs.classes_] = theirs.predict_proba(new)
    assert 1 not in theirs.classes_
    np.testing.assert_allclose(grown.predict_proba(new), expected, atol=1e-6)


def test_repeated_rows_say_what_soft_labels_do_except_for_small_shares():
    _, soft = problem()
    rows, labels, weights = repeated_rows(soft)
    again = np.zeros_like(soft)
    for row, label, weight in zip(rows, labels, weights, strict=True):
        assert again[row, label] == 0
        again[row, label] = weight
    np.testing.assert_array_equal(again, np.where(soft > 0.05, soft, 0))


def test_its_arrays_are_the_whole_forest(grown):
    x, _ = problem(seed=1)
    again = SoftForest.from_arrays(grown.arrays())
    np.testing.assert_array_equal(again.predict_proba(x), grown.predict_proba(x))
    assert again.n_classes == 4


def test_an_unfitted_copy_grows_the_same_forest(grown):
    x, soft = problem()
    again = grown.unfitted(grown.trees).fit(x, soft)
    np.testing.assert_array_equal(again.predict_proba(x), grown.predict_proba(x))


def at(name, place, value):
    """Damage: a value of an array is replaced."""

    def damage(arrays):
        arrays[name][place] = value

    return damage


def replaced(name, change):
    def damage(arrays):
        arrays[name] = change(arrays[name])

    return damage


def its_own_child(arrays):
    node = int(np.flatnonzero(arrays["left"] >= 0)[2])
    arrays["left"][node] = node


def child_of_two(arrays):
    first, second = np.flatnonzero(arrays["left"] >= 0)[:2]
    arrays["left"][first] = arrays["left"][second]


def child_in_another_tree(arrays):
    first, second = arrays["roots"][:2]
    left = arrays["left"]
    left[first], left[second] = left[second], left[first]


def leaf_without_labels(arrays):
    leaf = int(np.flatnonzero(arrays["left"] < 0)[0])
    arrays["starts"][leaf + 1 :] -= arrays["starts"][leaf + 1] - arrays["starts"][leaf]
    n = int(arrays["starts"][-1])
    arrays["labels"], arrays["shares"] = arrays["labels"][:n], arrays["shares"][:n]


DAMAGES = {
    "a cycle": its_own_child,
    "a child that points backwards": at("right", 2, 0),
    "a child beyond the end": at("left", 0, 10_000),
    "a node with two parents": child_of_two,
    "a child in another tree": child_in_another_tree,
    "one child only": at("right", 0, -1),
    "a root inside a tree": at("roots", 1, 1),
    "a root beyond the end": at("roots", -1, 10_000),
    "a root before the start": at("roots", 0, -1),
    "roots out of order": replaced("roots", lambda one: one[::-1].copy()),
    "no roots": replaced("roots", lambda one: one[:0]),
    "too few nodes": replaced("left", lambda one: one[:-1]),
    "too few thresholds": replaced("threshold", lambda one: one[:-1]),
    "too few shares": replaced("shares", lambda one: one[:-1]),
    "a negative feature": at("feature", 0, -2),
    "a threshold that is no number": at("threshold", 0, np.nan),
    "a share that is no number": at("shares", 0, np.nan),
    "a negative share": at("shares", 0, -0.5),
    "a class that is not there": at("labels", 0, 4),
    "starts that decrease": at("starts", 2, 10_000),
    "starts that end early": at("starts", -1, 1),
    "a leaf without labels": leaf_without_labels,
    "a table": replaced("left", lambda one: one[:, None]),
    "fractions as numbers of nodes": replaced("left", lambda one: one.astype(float)),
    "no classes": at("n_classes", 0, 0),
    "a number of classes that is no number": replaced("n_classes", lambda one: one * np.nan),
    "two numbers of classes": replaced("n_classes", lambda one: np.repeat(one, 2)),
    "an array is missing": lambda arrays: arrays.pop("left"),
    "nothing": lambda arrays: arrays.clear(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_arrays_that_are_no_forest_are_refused_in_a_sentence(grown, damage):
    arrays = {name: one.copy() for name, one in grown.arrays().items()}
    SoftForest.from_arrays(arrays)
    damage(arrays)
    message = refusal(lambda: SoftForest.from_arrays(arrays))
    assert message == "The forest in this file is damaged: train again."
