"""Tests of independence: their statistics against loops, and how often they are wrong."""

from itertools import combinations

import numpy as np
import pytest

from ltpll.candidates import Candidates
from ltpll.priors import regime
from ltpll.priors.distinct_sets import distinct_sets
from ltpll.priors.regime import SIZE, pairs_test, sizes_test
from ltpll.synthetic import superclass_candidates, top_k_candidates, uniform_candidates
from ltpll_research.set_origins import crowd_candidates, neighbour_candidates


def long_tail(n, n_classes, imbalance, rng):
    prior = imbalance ** -np.linspace(0, 1, n_classes)
    return rng.choice(n_classes, n, p=prior / prior.sum())


def uniform_sets_of_size(labels, n_classes, sizes, rng):
    order = rng.random((len(labels), n_classes))
    order[np.arange(len(labels)), labels] = -1
    return Candidates.from_matrix(order.argsort(1).argsort(1) < sizes[:, None])


def pair_vector(row, n_classes):
    """A one for each pair of labels, without the closest sum of one term per label."""
    pairs = list(combinations(range(n_classes), 2))
    design = np.asarray([[j in pair for j in range(n_classes)] for pair in pairs], dtype=float)
    vector = np.asarray([pair[0] in row and pair[1] in row for pair in pairs], dtype=float)
    return vector - design @ np.linalg.lstsq(design, vector, rcond=None)[0]


def test_the_kernel_of_pairs_is_the_inner_product_of_vectors_without_sums_of_one_term_per_label():
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = (set(rng.choice(7, rng.integers(1, 8), replace=False).tolist()) for _ in range(2))
        naive = pair_vector(a, 7) @ pair_vector(b, 7)
        found = regime._pair_kernel(
            *(np.asarray(float(x)) for x in (len(a & b), len(a), len(b))), 7
        )
        assert found == pytest.approx(naive, abs=1e-12)


def test_the_surplus_of_pairs_is_that_of_a_double_loop():
    rng = np.random.default_rng(1)
    candidates = uniform_candidates(long_tail(60, 6, 5, rng), 6, 0.4, seed=1)
    vectors = [pair_vector(set(candidates.row(i)), 6) for i in range(60)]
    vectors = [
        vector / np.linalg.norm(vector) for vector in vectors if np.linalg.norm(vector) > 1e-9
    ]
    products = np.asarray([[a @ b for b in vectors] for a in vectors])
    np.fill_diagonal(products, 0)
    assert pairs_test(distinct_sets(candidates)).observed == pytest.approx(
        products.sum() / np.sqrt(2 * (products**2).sum())
    )


@pytest.mark.parametrize(
    ("n_classes", "ambiguity", "imbalance", "n"),
    [
        (4, 0.3, 1, 200),
        (10, 0.1, 100, 200),
        (10, 0.5, 20, 250),
        (30, 0.1, 10, 200),
        (100, 0.02, 50, 200),
        (10, None, 20, 200),
    ],
)
def test_independent_wrong_labels_are_rejected_as_rarely_as_promised(
    n_classes, ambiguity, imbalance, n
):
    """With 40 draws, more than 3 rejections at 1 % have a probability of 1 in 1,500."""
    rejected = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        labels = long_tail(n, n_classes, imbalance, rng)
        if ambiguity is None:
            candidates = uniform_sets_of_size(labels, n_classes, rng.choice([1, 3, 4], n), rng)
        else:
            candidates = uniform_candidates(labels, n_classes, ambiguity, seed=seed)
        sets = distinct_sets(candidates)
        results = [pairs_test(sets), sizes_test(sets)]
        rejected += min(result.p for result in results if result) < SIZE / 2
    assert rejected <= 3


def test_the_p_values_of_independent_labels_are_spread_evenly():
    found = []
    for seed in range(80):
        sets = distinct_sets(
            uniform_candidates(
                long_tail(150, 8, 10, np.random.default_rng(seed)), 8, 0.3, seed=seed
            )
        )
        found.append([pairs_test(sets).p, sizes_test(sets).p])
    for share in (0.1, 0.5, 0.9):
        np.testing.assert_allclose(
            np.mean(np.asarray(found) < share, axis=0),
            share,
            atol=4 * np.sqrt(share * (1 - share) / 80),
        )


LABELS = long_tail(1500, 30, 10, np.random.default_rng(0))


@pytest.mark.parametrize(
    "candidates",
    [
        neighbour_candidates(LABELS, 30, seed=0),
        superclass_candidates(LABELS, np.arange(30) // 5, 0.05, seed=0),
        crowd_candidates(LABELS, 30, seed=0),
        top_k_candidates(LABELS, 30, 4, seed=0),
    ],
    ids=["neighbours", "superclasses", "crowd", "top-k"],
)
def test_sets_that_depend_on_their_true_label_are_found_by_their_pairs(candidates):
    assert pairs_test(distinct_sets(candidates)).p < 1e-6


def test_labels_that_join_at_rates_of_their_own_are_found_by_comparing_sizes():
    rng = np.random.default_rng(0)
    joined = rng.random((3000, 10)) < np.linspace(0.05, 0.4, 10)
    joined[np.arange(3000), rng.integers(0, 10, 3000)] = True
    assert sizes_test(distinct_sets(Candidates.from_matrix(joined))).p < 1e-6


def test_sets_that_cannot_tell_give_no_result():
    two = distinct_sets(Candidates.of([[0], [1], [0, 1]] * 20))
    assert pairs_test(two) is None
    assert sizes_test(two) is None
    assert pairs_test(distinct_sets(Candidates.of([[0]] * 9 + [[1]] * 9, n_classes=5))) is None
    assert sizes_test(distinct_sets(Candidates.from_matrix(np.ones((9, 4), int)))) is None


def test_sets_whose_pairs_would_fill_the_memory_do_not_count(monkeypatch):
    rng = np.random.default_rng(0)
    small = [list(rng.choice(30, 3, replace=False)) for _ in range(200)]
    large = [list(rng.choice(30, 20, replace=False)) for _ in range(2)]
    expected = pairs_test(distinct_sets(Candidates.of(small, n_classes=30)))
    monkeypatch.setattr(regime, "MOST_PAIRS", 399)
    assert pairs_test(distinct_sets(Candidates.of(large, n_classes=30))) is None
    monkeypatch.setattr(regime, "MOST_PAIRS", 1800)  # those of all small sets
    assert pairs_test(distinct_sets(Candidates.of(small, n_classes=30))) == expected
