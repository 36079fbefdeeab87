"""`PiecewiseLinear`: numbers in bins, so that networks can draw the borders that trees draw."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ltpll.validation import whole_number

BINS = 16  # of a column
MOST_VALUES = 4096  # of all bins of a row together
NARROWEST = 1e-6  # of a bin, beside the range of its column
Numbers = npt.NDArray[Any]


def bin_edges(values: Numbers, bins: int = BINS) -> npt.NDArray[np.float64]:
    """The borders of at most `bins` bins with about equally many of the values.

    A column with few distinct values has fewer bins, and a constant one has none.

    Examples:
        >>> bin_edges(np.array([0.0, 1, 2, 4, 6]), bins=2)
        array([0., 2., 6.])
    """
    places = np.arange(bins + 1) * (len(values) - 1) // bins
    edges = np.unique(np.sort(np.asarray(values, dtype=np.float64))[places])
    wide = np.diff(edges, prepend=-np.inf) > NARROWEST * (edges[-1] - edges[0])
    return np.asarray(edges[wide])


def in_bins(values: Numbers, edges: Numbers) -> npt.NDArray[np.float32]:
    r"""How far each value fills each bin, (rows, bins).

    A value \(x\) has in the bin \([a, b]\) the number \((x - a) / (b - a)\), cut to 0 and 1: bins
    below the value are 1, those above are 0, and its own tells where in the bin it lies.

    Examples:
        >>> in_bins(np.array([1.0, 4.0]), np.array([0.0, 2.0, 6.0]))
        array([[0.5, 0. ],
               [1. , 0.5]], dtype=float32)
    """
    place = (np.asarray(values, dtype=np.float64)[:, None] - edges[:-1]) / np.diff(edges)
    return np.clip(place, 0, 1).astype(np.float32)


class PiecewiseLinear(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Appends the piecewise linear encoding of columns of numbers to them.

    One linear layer on it can learn any piecewise linear function of a column, for which a network
    needs many hidden units otherwise (Gorishniy et al., On Embeddings for Numerical Features in
    Tabular Deep Learning, NeurIPS 2022). It helps where a few columns have their own meaning, and
    harms where there are many that only mean something together, such as embeddings.

    Args:
        bins: The number of bins of a column, fewer if there are many columns.

    Attributes:
        edges_: The borders of the bins of each column.

    Examples:
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = uniform_candidates(y, n_classes=4, ambiguity=0.3, seed=0)
        >>> from sklearn.pipeline import make_pipeline
        >>> model = make_pipeline(PiecewiseLinear(), PartialLabelClassifier(epochs=20))
        >>> model.fit(X, sets).predict([[-0.5, -0.5]])
        array([0])
    """

    def __init__(self, bins: int = BINS) -> None:
        self.bins = bins

    def fit(self, X: Any, y: Any = None) -> Self:
        """Place the bins by the quantiles of the rows."""
        x = validate_data(self, X, dtype=[np.float64, np.float32])
        bins = max(2, min(whole_number(self.bins, 1, "bins"), MOST_VALUES // x.shape[1]))
        found = [bin_edges(column, bins) for column in x.T]
        # A single bin would repeat its column.
        self.edges_ = [edges if len(edges) > 2 else edges[:0] for edges in found]
        return self

    def transform(self, X: Any) -> Numbers:
        """The columns, followed by their bins, (rows, columns and bins)."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        ends = np.cumsum([x.shape[1], *(max(0, len(edges) - 1) for edges in self.edges_)])
        whole = np.empty((len(x), ends[-1]), dtype=x.dtype)
        whole[:, : x.shape[1]] = x
        for i, edges in enumerate(self.edges_):
            whole[:, ends[i] : ends[i + 1]] = in_bins(x[:, i], edges)
        return whole

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """The names of the columns and their bins."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None) if input_features is None else None
        if names is None:
            given = range(self.n_features_in_) if input_features is None else input_features
            names = [f"x{one}" if isinstance(one, int) else str(one) for one in given]
        binned = zip(names, self.edges_, strict=True)
        bins = [
            f"{name} [{k + 1}]" for name, edges in binned for k in range(max(0, len(edges) - 1))
        ]
        return np.asarray([*names, *bins], dtype=object)
