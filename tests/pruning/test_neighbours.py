"""Nearest neighbours against scikit-learn and a plain loop."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from ltpll.pruning import neighbours
from ltpll.pruning.neighbours import nearest_neighbours


def by_loop(x, k, groups=None):
    """Row by row, in double precision; of equal distances the lower number first."""
    found = []
    for i in range(len(x)):
        others = [j for j in range(len(x)) if j != i and (groups is None or groups[i] != groups[j])]
        distances = [(float(np.linalg.norm(x[i].astype(np.float64) - x[j])), j) for j in others]
        row = [j for _, j in sorted(distances)[:k]]
        found.append(row + [-1] * (k - len(row)))
    return np.asarray(found)


@pytest.mark.parametrize("n", [700, 1031])  # blocks of 64 rows, and a shorter one at the end
def test_neighbours_are_those_of_scikit_learn(monkeypatch, n):
    monkeypatch.setattr(neighbours, "VALUES_PER_BLOCK", 64 * n)
    # Far from the origin, where products lose precision.
    x = np.random.default_rng(n).normal(size=(n, 12)).astype(np.float32) + 100
    x[: n // 2] += np.arange(n // 2)[:, None] / 50  # in an order
    found = nearest_neighbours(torch.from_numpy(x), 7)
    distance, index = (
        NearestNeighbors(n_neighbors=7, algorithm="brute").fit(x.astype(np.float64)).kneighbors()
    )
    np.testing.assert_array_equal(found.rows, index)
    np.testing.assert_allclose(found.distances, distance, rtol=1e-5)


def test_rows_of_the_same_group_are_not_neighbours(monkeypatch):
    monkeypatch.setattr(neighbours, "VALUES_PER_BLOCK", 1600)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(90, 3)).astype(np.float32)
    groups = rng.integers(0, 20, 90)
    x += groups[:, None] * 5  # the nearest rows are those of the own group
    found = nearest_neighbours(torch.from_numpy(x), 5, groups=torch.from_numpy(groups))
    np.testing.assert_array_equal(found.rows, by_loop(x, 5, groups))


def test_of_equal_distances_the_lower_number_comes_first(monkeypatch):
    monkeypatch.setattr(neighbours, "VALUES_PER_BLOCK", 1600)
    x = np.repeat(np.random.default_rng(2).integers(0, 9, size=(30, 4)), 3, axis=0).astype(
        np.float32
    )  # each row three times
    found = nearest_neighbours(torch.from_numpy(x), 2)
    np.testing.assert_array_equal(
        found.rows, [[j for j in range(i - i % 3, i - i % 3 + 3) if j != i] for i in range(90)]
    )
    np.testing.assert_array_equal(found.distances, 0)


def test_if_all_rows_are_equal_every_neighbour_is_another_row(monkeypatch):
    monkeypatch.setattr(neighbours, "VALUES_PER_BLOCK", 1600)
    found = nearest_neighbours(torch.full((50, 3), 0.1), 4).rows
    assert (found != torch.arange(50)[:, None]).all()
    assert all(len(set(row)) == 4 and min(row) >= 0 for row in found.tolist())


def test_with_fewer_rows_than_neighbours_the_rest_is_missing():
    found = nearest_neighbours(torch.tensor([[0.0], [1.0], [3.0]]), 4)
    assert found.rows.tolist() == [[1, 2, -1], [0, 2, -1], [1, 0, -1]]
    assert found.distances[:, -1].isinf().all()
    alone = nearest_neighbours(torch.zeros(3, 2), 1, groups=torch.zeros(3, dtype=torch.int64))
    assert alone.rows.tolist() == [[-1], [-1], [-1]]


def test_progress_ends_at_its_total_and_never_falls(monkeypatch):
    monkeypatch.setattr(neighbours, "VALUES_PER_BLOCK", 1600)
    seen = []
    nearest_neighbours(
        torch.randn(100, 2), 1, on_progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(i + 1, seen[0][1]) for i in range(seen[0][1])]
