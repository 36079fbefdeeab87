"""Ambiguity: candidate sets drawn around known labels, uniformly or with a preference for the label's superclass."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.data.synthetic.longtail import class_numbers
from ltpll.errors import InputError


def uniform_candidates(labels: npt.ArrayLike, n_classes: int, ambiguity: float, *, seed: int) -> Candidates:
    """The true label, and every other label with probability q, independently; a set may stay a singleton."""
    return _flip(labels, np.broadcast_to(_probability(ambiguity, "ambiguity"), (n_classes, n_classes)), seed)


def superclass_candidates(
    labels: npt.ArrayLike, superclass: npt.ArrayLike, ambiguity: float, *, seed: int, factor: float = 8.0
) -> Candidates:
    """The true label, every label of its superclass with probability `factor`·q, and every other label with probability q.

    `superclass[c]` is the superclass of class c; factor 8 is the paper's non-uniform setting (CIFAR-100-LT-NU).
    """
    group = np.asarray(superclass)
    outside = _probability(ambiguity, "ambiguity")
    inside = _probability(factor * ambiguity, "ambiguity inside a superclass")
    return _flip(labels, np.where(group[:, None] == group[None, :], inside, outside), seed)


def _probability(value: float, what: str) -> float:
    if not 0 <= value <= 1:
        raise InputError(f"The {what} is {value}: it is the probability that a wrong label joins the set, so between 0 and 1.")
    return float(value)


def _flip(labels: npt.ArrayLike, probability: npt.NDArray[np.float64], seed: int) -> Candidates:
    """Draw sets with `probability[true, other]`, a chunk of rows at a time so that memory does not grow with N × C."""
    y = class_numbers(labels)
    n_classes = len(probability)
    wrong = np.flatnonzero(y >= n_classes)
    if len(wrong):
        raise InputError(f"Row {int(wrong[0])} has the label {int(y[wrong[0]])}, but classes are numbered 0 to {n_classes - 1}.")
    rng = np.random.default_rng(seed)
    sets: list[npt.NDArray[np.int64]] = []
    sizes: list[npt.NDArray[np.int64]] = []
    chunk = max(1, (1 << 22) // n_classes)
    for start in range(0, len(y), chunk):
        part = y[start : start + chunk]
        joined = rng.random((len(part), n_classes)) < probability[part]
        joined[np.arange(len(part)), part] = True
        sizes.append(joined.sum(1))
        sets.append(np.nonzero(joined)[1])
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    return Candidates.from_flat(indptr, np.concatenate(sets), n_classes)
