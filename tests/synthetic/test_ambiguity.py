"""Drawn sets hold the true label, and other labels join with their given probability."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ltpll.synthetic import superclass_candidates, uniform_candidates
from support.refusals import refusal


def deviation(hits, n, q):
    """How many standard deviations a count of hits is away from n·q."""
    return abs(hits - n * q) / np.sqrt(n * q * (1 - q))


@settings(max_examples=60, deadline=None)
@given(
    y=st.lists(st.integers(0, 5), min_size=1, max_size=30),
    q=st.floats(0, 1),
    seed=st.integers(0, 2**31),
    factor=st.floats(0, 1),
    kind=st.sampled_from(["uniform", "superclass"]),
)
def test_the_true_label_is_always_a_candidate(y, q, seed, factor, kind):
    if kind == "uniform":
        candidates = uniform_candidates(y, 6, q, seed=seed)
    else:
        candidates = superclass_candidates(y, [0, 0, 1, 1, 2, 2], q, seed=seed, factor=factor)
    assert len(candidates) == len(y)
    assert candidates.n_classes == 6
    assert all(label in candidates.row(i) for i, label in enumerate(y))


@pytest.mark.parametrize("q", [0.01, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("n_classes", [2, 10])
def test_wrong_labels_join_with_the_given_probability_and_independently(q, n_classes):
    import scipy.stats  # here, since it takes a second

    y = np.arange(20_000) % n_classes
    dense = uniform_candidates(y, n_classes, q, seed=5).dense().numpy()
    wrong = ~np.eye(n_classes, dtype=bool)[y]
    assert deviation(dense[wrong].sum(), wrong.sum(), q) < 4
    for c in range(n_classes):  # each class by itself: no class is preferred
        assert deviation(dense[y != c, c].sum(), (y != c).sum(), q) < 4.5
    extra = dense.sum(1) - 1  # independent flips make the number of wrong labels binomial
    expected = scipy.stats.binom.pmf(np.arange(n_classes), n_classes - 1, q) * len(y)
    keep = expected > 5
    observed = np.bincount(extra, minlength=n_classes)
    chi = ((observed[keep] - expected[keep]) ** 2 / expected[keep]).sum()
    assert scipy.stats.chi2.sf(chi, max(keep.sum() - 1, 1)) > 1e-4


@pytest.mark.parametrize(("q", "size"), [(0, 1), (1, 4)])
def test_ambiguity_zero_gives_the_label_alone_and_one_gives_every_class(q, size):
    y = [3, 0, 1, 1, 2]
    candidates = uniform_candidates(y, 4, q, seed=0)
    assert candidates.sizes.tolist() == [size] * 5
    assert candidates.contains(torch.tensor(y)).all()


def test_the_same_seed_gives_the_same_sets_and_another_seed_others():
    y = np.arange(200) % 7
    first, again, other = (uniform_candidates(y, 7, 0.3, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.dense(), again.dense())
    assert not torch.equal(first.dense(), other.dense())
    groups = [0, 0, 1, 1, 1, 2, 2]
    first, again, other = (superclass_candidates(y, groups, 0.1, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.dense(), again.dense())
    assert not torch.equal(first.dense(), other.dense())


def test_data_of_several_chunks_are_drawn_like_data_of_one():
    n_classes, q = 500, 0.02
    chunk = (1 << 22) // n_classes
    y = np.arange(2 * chunk + 1000) % n_classes
    candidates = uniform_candidates(y, n_classes, q, seed=9)
    assert len(candidates) == len(y)
    assert candidates.contains(torch.from_numpy(y)).all()
    sizes = candidates.sizes.numpy() - 1
    for part in np.split(sizes, [chunk, 2 * chunk]):
        assert deviation(part.sum(), len(part) * (n_classes - 1), q) < 4
    # A chunk that started from the same seed again would repeat the first rows' draws; their sizes
    # would agree everywhere.
    assert np.mean(sizes[:1000] == sizes[chunk : chunk + 1000]) < 0.3


# ---- superclasses --------------------------------------------------------------------------------

GROUPS = np.array([0, 1, 0, 2, 1, 0])


@pytest.mark.parametrize(("q", "factor"), [(0.03, 8.0), (0.1, 8.0), (0.05, 2.0), (0.2, 0.5)])
def test_labels_of_the_superclass_join_more_often_by_the_factor(q, factor):
    y = np.arange(12_000) % 6
    dense = superclass_candidates(y, GROUPS, q, seed=4, factor=factor).dense().numpy()
    same = GROUPS[y][:, None] == GROUPS[None, :]
    true = np.eye(6, dtype=bool)[y]
    assert deviation(dense[same & ~true].sum(), (same & ~true).sum(), factor * q) < 4
    assert deviation(dense[~same].sum(), (~same).sum(), q) < 4
    for label in range(6):
        for other in set(range(6)) - {label}:
            rate = factor * q if GROUPS[label] == GROUPS[other] else q
            assert deviation(dense[y == label, other].sum(), (y == label).sum(), rate) < 4.5


def test_the_factor_is_eight_unless_told_otherwise():
    y = np.arange(500) % 6
    told = superclass_candidates(y, GROUPS, 0.05, seed=1, factor=8)
    assert torch.equal(
        superclass_candidates(y, GROUPS.tolist(), 0.05, seed=1).dense(), told.dense()
    )


def test_an_eighth_fills_the_superclass_and_more_is_refused():
    y = np.arange(60) % 6
    dense = superclass_candidates(y, GROUPS, 0.125, seed=0).dense().numpy()
    assert bool(dense[GROUPS[y][:, None] == GROUPS[None, :]].all())
    assert "1.04" in refusal(lambda: superclass_candidates(y, GROUPS, 0.13, seed=0))


# ---- refusals ------------------------------------------------------------------------------------

DRAWS = {
    "uniform": lambda y, q=0.1: uniform_candidates(y, 3, q, seed=0),
    "superclass": lambda y, q=0.1: superclass_candidates(y, [0, 0, 1], q, seed=0),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
@pytest.mark.parametrize(
    ("y", "row"), [([0, 1, 3], 2), ([0, -1, 7], 1), (np.array([300], dtype=np.uint16), 0)]
)
def test_a_label_that_is_no_class_is_refused_with_its_row(draw, y, row):
    message = refusal(lambda: draw(y))
    assert message.startswith(f"Row {row} of the true labels is")


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
@pytest.mark.parametrize(
    "y",
    [["a", "b"], [0, 1.5], [0, float("nan")], [[0, 1], [1, 0]], 1, []],
    ids=["names", "fraction", "nan", "two dimensions", "no dimension", "empty"],
)
def test_labels_that_are_no_list_of_class_numbers_are_refused(draw, y):
    refusal(lambda: draw(y))


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
@pytest.mark.parametrize("q", [-0.1, 1.1, float("nan"), float("inf")])
def test_an_ambiguity_that_is_no_probability_is_refused(draw, q):
    assert f"is {q}" in refusal(lambda: draw([0, 1], q))


def test_one_class_is_refused():
    assert "1 class" in refusal(lambda: uniform_candidates([0, 0], 1, 0.5, seed=0))
