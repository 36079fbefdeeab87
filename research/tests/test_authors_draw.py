"""The draw of the RECORDS paper's code, written out as a loop over examples and classes."""

import random

import numpy as np
import pytest

from ltpll_research.authors_draw import authors_draw
from support.refusals import refusal


def naive_draw(labels, imbalance, probability, *, shuffled):
    """Shuffle the examples of each class in turn, keep the first ones, then draw numbers.

    With superclasses, the list of class sizes is shuffled first.
    """
    rng, n_classes = np.random.RandomState(0), len(probability)
    largest = len(labels) / n_classes
    sizes = [int(largest * (1 / imbalance) ** (c / (n_classes - 1))) for c in range(n_classes)]
    if shuffled:
        random.Random(123).shuffle(sizes)
    chosen = []
    for c in range(n_classes):
        of_class = np.array([row for row, label in enumerate(labels) if label == c])
        rng.shuffle(of_class)
        chosen += of_class[: sizes[c]].tolist()
    numbers = rng.uniform(0, 1, size=(len(chosen), n_classes))
    sets = [
        [
            c
            for c in range(n_classes)
            if c == labels[row] or numbers[i, c] < probability[labels[row]][c]
        ]
        for i, row in enumerate(chosen)
    ]
    return chosen, sets


@pytest.mark.parametrize(
    ("n_classes", "per_class", "imbalance", "q"),
    [(10, 60, 20, 0.5), (4, 30, 1, 0.1), (100, 40, 10, 0.05)],
)
@pytest.mark.parametrize("superclasses", [0, 5])
def test_the_subset_and_the_sets_are_those_of_a_loop_over_examples_and_classes(
    n_classes, per_class, imbalance, q, superclasses
):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(n_classes), per_class))
    groups = np.arange(n_classes) % superclasses if superclasses else None
    within = 8 * min(q, 0.125)
    q = min(q, 0.125) if superclasses else q
    probability = [
        [within if superclasses and groups[a] == groups[b] else q for b in range(n_classes)]
        for a in range(n_classes)
    ]
    rows, sets = naive_draw(labels.tolist(), imbalance, probability, shuffled=superclasses > 0)
    drawn, candidates = authors_draw(labels, imbalance, q, groups)
    assert drawn.tolist() == rows
    assert [np.flatnonzero(row).tolist() for row in candidates.dense().numpy()] == sets


def test_with_superclasses_the_class_sizes_of_cifar_100_are_those_of_the_authors():
    labels = np.repeat(np.arange(100), 500)
    plain, shuffled = (
        np.bincount(labels[authors_draw(labels, 100, 0.01, superclass)[0]])
        for superclass in (None, np.arange(100) // 5)
    )
    assert plain[:4].tolist() == [500, 477, 455, 434]
    assert shuffled[:4].tolist() == [8, 129, 26, 48]
    assert sorted(shuffled) == sorted(plain)


def test_sets_of_many_rows_are_drawn_in_chunks_like_all_at_once():
    n_classes, per_class = 1000, 5
    labels = np.repeat(np.arange(n_classes), per_class)  # 5,000 rows, of which 4,194 make a chunk
    rng = np.random.RandomState(0)
    for _ in range(n_classes):
        rng.shuffle(np.arange(per_class))
    expected = rng.uniform(0, 1, size=(len(labels), n_classes)) < 0.01
    rows, candidates = authors_draw(labels, 1, 0.01)
    expected[np.arange(len(labels)), labels[rows]] = True
    assert np.array_equal(candidates.dense().numpy(), expected)


def test_an_ambiguity_that_is_no_probability_is_refused():
    assert "ambiguity inside a superclass is 1.6" in refusal(
        lambda: authors_draw([0, 1, 0, 1], 2, 0.2, [0, 0])
    )
