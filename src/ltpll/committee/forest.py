"""`SoftForest`: a random forest that learns from soft labels, kept as plain arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import RandomForestClassifier

from ltpll.errors import InputError

Arrays = dict[str, npt.NDArray[Any]]
LEAST_SHARE = 0.05  # of a soft label; smaller ones are left out, since each repeats a row
MOST_ROWS = 20_000  # that a tree sees
ROWS_AT_ONCE = 4096


def repeated_rows(
    soft: npt.NDArray[np.floating[Any]], least: float = LEAST_SHARE
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Rows, labels and weights that say the same as soft labels to a classifier with weights.

    Examples:
        >>> rows, labels, weights = repeated_rows(np.array([[1.0, 0.0], [0.25, 0.75]]))
        >>> rows, labels, weights
        (array([0, 1, 1]), array([0, 0, 1]), array([1.  , 0.25, 0.75]))
    """
    rows, labels = np.nonzero(soft > least)
    return rows, labels, soft[rows, labels].astype(np.float64)


class SoftForest:
    """A random forest of scikit-learn, fitted to soft labels.

    Its trees are kept as arrays, from which it predicts, so that it is saved without pickle and is
    the same in all versions of scikit-learn.

    Args:
        trees: The number of trees.
        least_leaf: The fewest rows of a leaf.
        seed: The seed of the trees.

    Examples:
        >>> soft = np.array([[1.0, 0.0], [0.9, 0.1], [0.2, 0.8], [0.0, 1.0]] * 5)
        >>> x = np.array([[0.0], [1.0], [2.0], [3.0]] * 5)
        >>> SoftForest(trees=20).fit(x, soft).predict_proba(x[[0, 3]]).round(1)
        array([[1., 0.],
               [0., 1.]], dtype=float32)
    """

    def __init__(self, trees: int = 200, least_leaf: int = 2, seed: int = 0) -> None:
        self.trees, self.least_leaf, self.seed = trees, least_leaf, seed

    def unfitted(self, other: int = 0) -> SoftForest:
        """A forest with the same settings that has not grown yet; `other` gives it other trees."""
        return SoftForest(self.trees, self.least_leaf, self.seed + other)

    def fit(self, x: npt.NDArray[Any], soft: npt.NDArray[Any]) -> Self:
        """Grow the trees.

        Args:
            x: The features, (rows, features).
            soft: The share of each class in each row's label, (rows, classes).
        """
        rows, labels, weights = repeated_rows(soft)
        most = MOST_ROWS if len(rows) > MOST_ROWS else None
        forest = RandomForestClassifier(
            self.trees,
            min_samples_leaf=self.least_leaf,
            max_samples=most,
            random_state=self.seed,
            n_jobs=1,
        )
        forest.fit(np.asarray(x, dtype=np.float32)[rows], labels, sample_weight=weights)
        self.n_classes = soft.shape[1]
        self._arrays = _flattened([tree.tree_ for tree in forest.estimators_], forest.classes_)
        return self

    @classmethod
    def joined(cls, forests: Sequence[SoftForest]) -> Self:
        """A forest of the trees of several forests for the same classes and features."""
        parts, made = [forest._arrays for forest in forests], cls()
        nodes = np.cumsum([0, *(len(part["left"]) for part in parts)])
        entries = np.cumsum([0, *(len(part["labels"]) for part in parts)])
        made.n_classes, made._arrays = forests[0].n_classes, {}
        for name, kind in KINDS.items():
            own = [part[name] for part in parts]
            if name in ("left", "right"):  # of leaves, -1
                own = [np.where(one >= 0, one + k, -1) for one, k in zip(own, nodes, strict=False)]
            elif name == "roots":
                own = [one + k for one, k in zip(own, nodes, strict=False)]
            elif name == "starts":
                own = [one[:-1] + k for one, k in zip(own, entries, strict=False)]
                own.append(entries[-1:])
            made._arrays[name] = np.concatenate(own).astype(kind)
        return made

    def predict_proba(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """The mean over trees of the label shares in each row's leaf, (rows, classes)."""
        own, n = self._arrays, len(x)
        found = np.zeros((n, self.n_classes), dtype=np.float64)
        starts, ends = own["starts"][:-1], own["starts"][1:]
        for first in range(0, n, ROWS_AT_ONCE):
            block = np.asarray(x[first : first + ROWS_AT_ONCE], dtype=np.float32)
            rows = np.arange(len(block))
            total = found[first : first + ROWS_AT_ONCE].reshape(-1)
            for root in own["roots"]:
                node = np.full(len(block), root)
                inner = own["left"][node] >= 0
                while inner.any():
                    at = node[inner]
                    goes_left = block[rows[inner], own["feature"][at]] <= own["threshold"][at]
                    node[inner] = np.where(goes_left, own["left"][at], own["right"][at])
                    inner = own["left"][node] >= 0
                # The entries of each row's leaf, one after the other.
                sizes = ends[node] - starts[node]
                places = np.repeat(starts[node] - np.cumsum(sizes) + sizes, sizes)
                places += np.arange(len(places))
                cells = np.repeat(rows, sizes) * self.n_classes + own["labels"][places]
                total += np.bincount(cells, own["shares"][places], minlength=len(total))
        return np.asarray(found / len(own["roots"]), dtype=np.float32)

    def arrays(self) -> Arrays:
        """What `from_arrays` takes."""
        return {**self._arrays, "n_classes": np.asarray([self.n_classes])}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """The forest whose `arrays` these are.

        Raises:
            InputError: They are damaged.
        """
        made = cls()
        n_classes = np.asarray(arrays.get("n_classes", []))
        own = {name: np.asarray(arrays[name]) for name in KINDS if name in arrays}
        if n_classes.shape != (1,) or n_classes.dtype.kind != "i" or not _are_trees(own, n_classes):
            raise InputError("The forest in this file is damaged: train again.")
        made.n_classes, made._arrays = int(n_classes[0]), own
        return made


# ---- arrays --------------------------------------------------------------------------------------

KINDS = {
    "roots": np.int32,
    "left": np.int32,
    "right": np.int32,
    "feature": np.int32,
    "threshold": np.float64,
    "starts": np.int64,
    "labels": np.int32,
    "shares": np.float32,
}


def _flattened(trees: list[Any], classes: npt.NDArray[Any]) -> Arrays:
    """All nodes of all trees; leaves have no children, and entries for their labels alone."""
    roots = np.cumsum([0, *(tree.node_count for tree in trees)])

    def children(side: str) -> npt.NDArray[Any]:
        each = zip(roots[:-1], trees, strict=True)
        found = [(root, getattr(tree, f"children_{side}")) for root, tree in each]
        return np.concatenate([np.where(node >= 0, node + root, -1) for root, node in found])

    left, right = children("left"), children("right")
    values = np.concatenate([tree.value[:, 0, :] for tree in trees])
    values[left >= 0] = 0
    values /= np.maximum(values.sum(1, keepdims=True), 1e-30)
    nodes, columns = np.nonzero(values)
    found = {
        "roots": roots[:-1],
        "left": left,
        "right": right,
        "feature": np.concatenate([tree.feature for tree in trees]),
        "threshold": np.concatenate([tree.threshold for tree in trees]),
        "starts": np.append(0, np.cumsum(np.bincount(nodes, minlength=len(left)))),
        "labels": classes[columns],
        "shares": values[nodes, columns],
    }
    return {name: np.ascontiguousarray(found[name], dtype=kind) for name, kind in KINDS.items()}


def _are_trees(own: Arrays, n_classes: npt.NDArray[Any]) -> bool:
    """Whether these arrays describe trees, one after the other, whose children follow parents."""
    kinds = {name: (one.dtype, one.ndim) for name, one in own.items()}
    if kinds != {name: (np.dtype(kind), 1) for name, kind in KINDS.items()}:
        return False
    left, right, starts, roots = own["left"], own["right"], own["starts"], own["roots"]
    n, entries = len(left), len(own["labels"])
    lengths = {n, len(right), len(own["feature"]), len(own["threshold"]), len(starts) - 1}
    if lengths != {n} or n == 0 or len(own["shares"]) != entries or len(roots) == 0:
        return False
    inner, place = left >= 0, np.arange(n)
    tree = np.searchsorted(roots, place, side="right")
    children = np.concatenate([left[inner], right[inner]])
    if not ((children >= 0) & (children < n)).all():
        return False
    each_once = np.sort(np.concatenate([roots, children]))
    return bool(
        (np.diff(roots) > 0).all()
        and np.array_equal(each_once, place)
        and ((left > place) & (right > place))[inner].all()
        and (tree[children] == np.tile(tree[inner], 2)).all()
        and (own["feature"][inner] >= 0).all()
        and np.isfinite(own["threshold"][inner]).all()
        and starts[0] == 0
        and starts[-1] == entries
        and (np.diff(starts) >= ~inner).all()
        and ((own["labels"] >= 0) & (own["labels"] < n_classes)).all()
        and (np.isfinite(own["shares"]) & (own["shares"] >= 0)).all()
    )
