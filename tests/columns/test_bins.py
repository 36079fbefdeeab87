import itertools

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from ltpll.columns import PiecewiseLinear
from ltpll.columns.bins import bin_edges


def naive(x, edges):
    """The number of each value in each bin, one at a time."""
    found = np.zeros((len(x), len(edges) - 1))
    for i, value in enumerate(x):
        for k, (low, high) in enumerate(itertools.pairwise(edges)):
            found[i, k] = min(max((value - low) / (high - low), 0), 1)
    return found


def test_bins_are_between_quantiles_and_hold_a_naive_encoding():
    x = np.random.default_rng(0).normal(size=(200, 3))
    edges = np.quantile(x, np.linspace(0, 1, 6), axis=0, method="lower")
    expected = [naive(x[:, j], edges[:, j]) for j in range(3)]
    found = PiecewiseLinear(bins=5).fit_transform(x)
    np.testing.assert_allclose(found, np.concatenate([x, *expected], axis=1), atol=1e-6)


def test_columns_with_few_values_have_few_bins_and_constant_ones_none():
    encode = PiecewiseLinear(bins=4).fit([[0.0, 5.0], [1.0, 5.0], [1.0, 5.0], [1.0, 5.0]])
    assert [len(edges) for edges in encode.edges_] == [0, 0]  # one bin would repeat the column
    assert encode.transform([[0.0, 5.0], [1.0, 7.0]]).tolist() == [[0, 5], [1, 7]]
    three = PiecewiseLinear(bins=4).fit([[0.0], [1.0], [3.0]])
    assert three.transform([[0.5], [2.0]]).tolist() == [[0.5, 0.5, 0], [2, 1, 0.5]]


def test_values_beyond_all_training_rows_are_cut():
    encode = PiecewiseLinear(bins=4).fit(np.linspace(0, 1, 50)[:, None])
    assert encode.transform([[-1e6], [1e6]])[:, 1:].tolist() == [[0] * 4, [1] * 4]


def test_many_columns_share_the_bins():
    x = np.random.default_rng(0).normal(size=(30, 2000))
    assert len(PiecewiseLinear().fit(x).edges_[0]) == 3


def test_bins_of_large_offsets_are_as_fine_as_others():
    """Such as times in seconds, which differ by little beside their size."""
    x = np.random.default_rng(0).normal(size=200)
    found = [PiecewiseLinear(bins=8).fit_transform((x + shift)[:, None]) for shift in (0.0, 1.7e9)]
    np.testing.assert_allclose(found[0][:, 1:], found[1][:, 1:], atol=1e-4)


def test_names_say_which_bin_of_which_column():
    encode = PiecewiseLinear(bins=2).fit(np.arange(8.0).reshape(4, 2))
    assert encode.get_feature_names_out(["a", "b"]).tolist() == [
        *("a", "b", "a [1]", "a [2]", "b [1]", "b [2]")
    ]


@parametrize_with_checks([PiecewiseLinear(bins=3)])
def test_it_is_a_transformer_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("bins", [1, 3, 16])
def test_edges_rise(bins):
    edges = bin_edges(np.random.default_rng(bins).integers(0, 5, 100), bins)
    assert (np.diff(edges) > 0).all()
