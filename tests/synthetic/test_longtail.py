"""Long tails have the published sizes, and a subset has exactly the sizes it promises."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ltpll.synthetic import class_sizes, long_tail_subset
from support.refusals import refusal


@pytest.mark.parametrize(
    ("largest", "n_classes", "imbalance", "total"),
    [
        (5000, 10, 50, 13_996),
        (5000, 10, 100, 12_406),
        (500, 100, 50, 12_608),
        (500, 100, 100, 10_847),
    ],
    ids=["CIFAR-10-LT 50", "CIFAR-10-LT 100", "CIFAR-100-LT 50", "CIFAR-100-LT 100"],
)
def test_the_totals_are_the_published_ones(largest, n_classes, imbalance, total):
    sizes = class_sizes(largest, n_classes, imbalance)
    assert sizes.sum() == total
    assert sizes[0] == largest
    assert sizes[-1] == largest // imbalance


def test_cifar10_lt_100_has_the_sizes_that_every_paper_prints():
    assert class_sizes(5000, 10, 100).tolist() == [
        5000,
        2997,
        1796,
        1077,
        645,
        387,
        232,
        139,
        83,
        50,
    ]


@settings(max_examples=60, deadline=None)
@given(largest=st.integers(1, 10_000), n_classes=st.integers(2, 60), imbalance=st.floats(1, 200))
def test_sizes_fall_geometrically_from_the_largest(largest, n_classes, imbalance):
    assume(largest / imbalance >= 1.001)
    sizes = class_sizes(largest, n_classes, imbalance)
    assert sizes.dtype == np.int64
    assert sizes[0] == largest
    assert bool((np.diff(sizes) <= 0).all())
    for c, size in enumerate(sizes):
        # (n_c / n_0)^(C−1) · ρ^c = 1 but for the rounding down, checked in exact arithmetic with a
        # hair of room for the floats.
        power, scale = n_classes - 1, Fraction(imbalance) ** c
        assert Fraction(int(size), largest) ** power * scale <= 1 + Fraction(1, 10**9)
        assert Fraction(int(size) + 1, largest) ** power * scale > 1 - Fraction(1, 10**9)


def test_imbalance_one_is_balanced():
    assert class_sizes(7, 4, 1).tolist() == [7, 7, 7, 7]


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ((10, 1, 2), "1 class"),
        ((10, 0, 2), "0 class"),
        ((10, 3, 0.5), "imbalance is 0.5"),
        ((10, 3, -2), "imbalance is -2"),
        ((10, 3, float("nan")), "imbalance is nan"),
        ((10, 3, 11), "smallest class empty"),
        ((10, 3, float("inf")), "imbalance is inf"),
        ((0, 3, 2), "smallest class empty"),
    ],
)
def test_sizes_that_make_no_long_tail_are_refused(arguments, fragment):
    assert fragment in refusal(lambda: class_sizes(*arguments))


# ---- subsets -------------------------------------------------------------------------------------


def shuffled_labels(sizes, seed=0):
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))


@pytest.mark.parametrize(
    ("available", "imbalance", "largest"),
    [
        ([50] * 5, 10, 50),
        ([50] * 5, 10, 20),
        ([50] * 5, 10, None),
        ([60, 50, 40], 2, 40),
        ([9, 9], 1, None),
        ([500] * 100, 50, 500),
    ],
)
def test_a_subset_has_the_sizes_of_the_tail_and_no_row_twice(available, imbalance, largest):
    y = shuffled_labels(available)
    rows = long_tail_subset(y, imbalance, seed=3, largest=largest)
    counts = [sum(y[row] == c for row in rows) for c in range(len(available))]
    assert counts == class_sizes(largest or available[0], len(available), imbalance).tolist()
    assert rows.dtype == np.int64
    assert bool((np.diff(rows) > 0).all())
    assert rows[0] >= 0
    assert rows[-1] < len(y)


@settings(max_examples=50, deadline=None)
@given(
    available=st.lists(st.integers(5, 80), min_size=2, max_size=6),
    imbalance=st.floats(1, 20),
    seed=st.integers(0, 99),
)
def test_without_a_largest_size_the_largest_is_taken_that_every_class_can_follow(
    available, imbalance, seed
):
    y = shuffled_labels(available, seed)
    fitting = [
        n
        for n in range(1, max(available) + 2)
        if all(
            int(n * (1 / imbalance) ** (c / (len(available) - 1))) <= a
            for c, a in enumerate(available)
        )
    ]
    assume(int(max(fitting) / imbalance) >= 1)
    counts = np.bincount(y[long_tail_subset(y, imbalance, seed=seed)], minlength=len(available))
    assert counts.tolist() == class_sizes(max(fitting), len(available), imbalance).tolist()


def test_the_same_seed_gives_the_same_subset_and_another_seed_another():
    y = shuffled_labels([100] * 4)
    first = long_tail_subset(y, 10, seed=1)
    assert np.array_equal(first, long_tail_subset(y, 10, seed=1))
    assert np.array_equal(first, long_tail_subset(y.tolist(), 10, seed=1))
    assert not np.array_equal(first, long_tail_subset(y, 10, seed=2))


def test_every_row_of_a_class_is_as_likely_as_any_other():
    y = np.repeat([0, 1], 20)
    n, hits = 600, np.zeros(40)
    for seed in range(n):
        hits[long_tail_subset(y, 2, seed=seed)] += 1
    assert bool((hits[:20] == n).all())
    assert bool((np.abs(hits[20:] - n / 2) < 4.5 * np.sqrt(n / 4)).all())


@pytest.mark.parametrize(
    ("y", "options", "fragment"),
    [
        (
            [0, 0, 0, 1],
            {"largest": 3, "imbalance": 1},
            "Class 1 has 1 example, but the long tail needs 3",
        ),
        (
            [0, 1, 1],
            {"largest": 2, "imbalance": 2},
            "Class 0 has 1 example, but the long tail needs 2",
        ),
        ([0, 1, -2, 1], {"imbalance": 2}, "Row 2 of the true labels is -2"),
        ([0.0, 1.0], {"imbalance": 2}, "list of class numbers"),
        ([[0, 1]], {"imbalance": 2}, "list of class numbers"),
        ([], {"imbalance": 2}, "list of class numbers"),
        (["a", "b"], {"imbalance": 2}, "class numbers"),
        ([0, 0], {"imbalance": 2}, "1 class"),
        ([0, 0, 1, 1], {"imbalance": 0.5}, "imbalance is 0.5"),
        ([0, 0, 1, 1], {"imbalance": 3}, "smallest class empty"),
        ([0, 0, 2, 2], {"imbalance": 2}, "Class 1 has no examples"),
    ],
)
def test_labels_that_cannot_give_the_tail_are_refused(y, options, fragment):
    assert fragment in refusal(lambda: long_tail_subset(y, seed=0, **options))
