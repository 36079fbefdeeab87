"""Ambiguity: random candidate sets around true labels, uniform or by superclass."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.synthetic.longtail import RandomNumbers, check_class_numbers
from ltpll.validation import in_range


def uniform_candidates(
    labels: npt.ArrayLike, n_classes: int, ambiguity: float, *, seed: int
) -> Candidates:
    """Draw candidate sets in which every wrong label joins independently with the same probability.

    Args:
        labels: True class numbers.
        n_classes: The number of classes.
        ambiguity: The probability q that a wrong label joins a set.
        seed: Seed of the random numbers.

    Returns:
        Sets that contain the true label; some may contain nothing else.

    Raises:
        InputError: The ambiguity is not a probability, or a label is out of range.

    Examples:
        >>> uniform_candidates([0, 1, 2], n_classes=3, ambiguity=0.5, seed=0).n_classes
        3
    """
    probability = joining_probabilities(n_classes, ambiguity)
    return join_labels(labels, probability, np.random.default_rng(seed))


def superclass_candidates(
    labels: npt.ArrayLike,
    superclass: npt.ArrayLike,
    ambiguity: float,
    *,
    seed: int,
    factor: float = 8.0,
) -> Candidates:
    """Draw candidate sets in which labels of the true superclass join more often.

    Args:
        labels: True class numbers.
        superclass: The superclass of each class.
        ambiguity: The probability q that a label of another superclass joins a set.
        seed: Seed of the random numbers.
        factor: Labels of the same superclass join with probability `factor` · q; 8 is the paper's
            CIFAR-100-LT-NU.

    Returns:
        Sets that contain the true label.

    Raises:
        InputError: A probability is above 1, or a label is out of range.

    Examples:
        >>> superclass_candidates([0, 3], superclass=[0, 0, 1, 1], ambiguity=0.1, seed=0).n_classes
        4
    """
    group = np.asarray(superclass)
    probability = joining_probabilities(len(group), ambiguity, group, factor)
    return join_labels(labels, probability, np.random.default_rng(seed))


def joining_probabilities(
    n_classes: int,
    ambiguity: float,
    superclass: npt.NDArray[Any] | None = None,
    factor: float = 8.0,
) -> npt.NDArray[np.float64]:
    """The probability that a label joins the set of a true label, (true, other).

    Higher inside a superclass if there are some.
    """
    outside = in_range(ambiguity, "The ambiguity", 0, 1)
    if superclass is None:
        return np.broadcast_to(outside, (n_classes, n_classes))
    inside = in_range(factor * ambiguity, "The ambiguity inside a superclass", 0, 1)
    return np.where(superclass[:, None] == superclass[None, :], inside, outside)


def join_labels(
    labels: npt.ArrayLike, probability: npt.NDArray[np.float64], rng: RandomNumbers
) -> Candidates:
    """Draw sets with `probability[true, other]`, in chunks of rows to limit memory."""
    n_classes = len(probability)
    y = check_class_numbers(labels, n_classes)
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
