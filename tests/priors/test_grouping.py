"""Groups of rows that share their sets: against loops, and what order reveals."""

from collections import Counter
from itertools import groupby

import numpy as np
import pytest

from ltpll.candidates import Candidates
from ltpll.priors.distinct_sets import distinct_sets
from ltpll.priors.grouping import (
    given_groups,
    order_test,
    runs_of_equal_sets,
)
from ltpll.synthetic import uniform_candidates
from ltpll_research.set_origins import crowd_candidates, grouped_candidates


def test_runs_are_those_of_a_loop():
    candidates = uniform_candidates(np.arange(200) % 3, 3, 0.5, seed=0)
    sets = distinct_sets(candidates)
    naive = [
        (key, len(list(rows)))
        for key, rows in groupby(tuple(candidates.row(i)) for i in range(200))
    ]
    found = runs_of_equal_sets(sets)
    assert [
        (tuple(sets.matrix[number].indices.tolist()), n)
        for number, n in zip(found.of_set, found.rows, strict=True)
    ] == naive
    several = [(key, n) for key, n in naive if len(key) > 1]
    complete = sum(min(n, len(key)) for key, n in several) / sum(len(key) for key, _ in several)
    assert found.completeness == pytest.approx(complete)


def test_groups_that_are_given_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    candidates = uniform_candidates(rng.integers(0, 4, 100), 4, 0.3, seed=0)
    groups = rng.integers(0, 30, 100)
    clusters, agreeing = given_groups(distinct_sets(candidates), groups)
    members = {
        group: Counter(tuple(candidates.row(i)) for i in np.flatnonzero(groups == group))
        for group in set(groups.tolist())
    }
    assert sorted(clusters.rows.tolist()) == sorted(
        n for sets in members.values() for n in sets.values()
    )
    several = [sets for sets in members.values() if sum(sets.values()) > 1]
    assert agreeing == pytest.approx(
        sum(max(sets.values()) - 1 for sets in several)
        / sum(sum(sets.values()) - 1 for sets in several)
    )
    assert given_groups(distinct_sets(candidates), np.arange(100))[1] == 0


def test_the_order_of_shuffled_rows_says_nothing():
    for seed in range(5):
        candidates, _ = grouped_candidates(200, np.ones(6), seed=seed)
        found = order_test(
            distinct_sets(
                candidates.select(np.random.default_rng(seed).permutation(len(candidates)))
            )
        )
        assert found.p > 0.001
        assert abs(found.gain) < 0.1


def test_groups_show_in_the_order_of_their_rows():
    candidates, _ = grouped_candidates(200, np.ones(6), seed=0)
    found = order_test(distinct_sets(candidates))
    assert found.p < 1e-9
    assert found.completeness == 1
    assert found.gain == 1
    assert not found.sorted


@pytest.mark.parametrize("key", ["set", "class", "class and set"])
def test_a_table_that_is_sorted_does_not_look_grouped(key):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 6, 2000)
    candidates = crowd_candidates(labels, 6, seed=0)
    keys = {
        "set": [tuple(candidates.row(i)) for i in range(2000)],
        "class": labels.tolist(),
        "class and set": [(labels[i], tuple(candidates.row(i))) for i in range(2000)],
    }[key]
    found = order_test(distinct_sets(candidates.select(sorted(range(2000), key=keys.__getitem__))))
    assert found.sorted or found.gain < 0.3
    assert found.sorted == (key != "class")


def test_a_table_of_pictures_is_not_taken_for_a_sorted_one_even_if_all_their_sets_differ():
    candidates, _ = grouped_candidates(300, np.ones(60), seed=0, objects=4, scenes=300)
    found = order_test(distinct_sets(candidates))
    assert not found.sorted
    assert found.gain > 0.9


def test_single_labels_give_no_result():
    sets = distinct_sets(Candidates.of([[0], [1], [0]]))
    assert order_test(sets) is None
