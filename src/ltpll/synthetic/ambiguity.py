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


def remove_labels(
    candidates: Candidates, labels: npt.ArrayLike, share: float, *, seed: int
) -> Candidates:
    """Remove the true label from a share of the candidate sets, for sets that lack it.

    Args:
        candidates: The candidate sets.
        labels: True class numbers.
        share: The probability that a set loses its true label.
        seed: Seed of the random numbers.

    Returns:
        The sets without these labels; a set that would be empty gets a random wrong label.

    Raises:
        InputError: The share is not a probability.

    Examples:
        >>> sets = uniform_candidates([0, 1, 2], n_classes=3, ambiguity=0.5, seed=0)
        >>> remove_labels(sets, [0, 1, 2], 1.0, seed=0).contains(torch.tensor([0, 1, 2]))
        tensor([False, False, False])
    """
    in_range(share, "The share", 0, 1)
    y, n_classes = np.asarray(labels, dtype=np.int64), candidates.n_classes
    rng = np.random.default_rng(seed)
    lost = rng.random(len(y)) < share
    instead = (y + rng.integers(1, n_classes, len(y))) % n_classes
    numbers = candidates.labels.cpu().numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(y)), candidates.sizes.cpu().numpy())
    kept = ~(lost[rows] & (numbers == y[rows]))
    empty = np.flatnonzero(np.bincount(rows[kept], minlength=len(y)) == 0)
    rows = np.concatenate([rows[kept], empty])
    numbers = np.concatenate([numbers[kept], instead[empty]])
    order = np.argsort(rows, kind="stable")
    indptr = np.searchsorted(rows[order], np.arange(len(y) + 1))
    return Candidates.from_flat(indptr, numbers[order], n_classes, candidates.classes)


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
