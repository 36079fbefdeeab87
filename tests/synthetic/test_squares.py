"""The toy data: four classes, each uniform on its own quarter of the square."""

from __future__ import annotations

import numpy as np
import pytest

from ltpll.errors import InputError
from ltpll.synthetic import four_squares

# The paper's layout, written out: lower left, lower right, upper left, upper right.
QUARTERS = {0: ((-1, 0), (-1, 0)), 1: ((0, 1), (-1, 0)), 2: ((-1, 0), (0, 1)), 3: ((0, 1), (0, 1))}


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (1000, 300, 100, 30), [5, 0, 2, 0]])
def test_each_class_has_its_size_and_lies_inside_its_quarter(sizes):
    x, y = four_squares(sizes, seed=2)
    assert x.shape == (sum(sizes), 2)
    assert x.dtype == np.float32
    assert y.dtype == np.int64
    assert y.tolist() == [c for c, n in enumerate(sizes) for _ in range(n)]
    for point, label in zip(x, y, strict=True):
        for value, (low, high) in zip(point, QUARTERS[int(label)], strict=True):
            assert low <= value <= high


@pytest.mark.parametrize("label", range(4))
def test_points_are_uniform_in_their_quarter(label):
    import scipy.stats  # here, since it takes a second

    x, y = four_squares([2000] * 4, seed=3)
    points = x[y == label]
    for axis, (low, high) in enumerate(QUARTERS[label]):
        assert scipy.stats.kstest(points[:, axis], "uniform", args=(low, high - low)).pvalue > 1e-3
    assert abs(np.corrcoef(points.T)[0, 1]) < 4 / np.sqrt(len(points))


def test_the_same_seed_gives_the_same_points_and_another_seed_others():
    first, again, other = (four_squares([20, 10, 5, 2], seed=seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("sizes", [(1, 2, 3), (1, 2, 3, 4, 5), ()])
def test_other_than_four_sizes_are_refused(sizes):
    with pytest.raises(InputError, match=r"four|4"):
        four_squares(sizes, seed=0)
