"""Ambiguity: random candidate sets around true labels, uniform or with a preference for the label's superclass, some without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.synthetic.longtail import RandomNumbers, check_class_numbers


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
    return join_labels(
        labels, joining_probabilities(n_classes, ambiguity), np.random.default_rng(seed)
    )


def superclass_candidates(
    labels: npt.ArrayLike,
    superclass: npt.ArrayLike,
    ambiguity: float,
    *,
    seed: int,
    factor: float = 8.0,
) -> Candidates:
    """Draw candidate sets in which labels of the true label's superclass join more often than others.

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
    return join_labels(
        labels,
        joining_probabilities(len(group), ambiguity, group, factor),
        np.random.default_rng(seed),
    )


def joining_probabilities(
    n_classes: int,
    ambiguity: float,
    superclass: npt.NDArray[Any] | None = None,
    factor: float = 8.0,
) -> npt.NDArray[np.float64]:
    """The probability that a label joins the set of a true label, (true, other); higher inside a superclass if there are some."""
    outside = _probability(ambiguity, "ambiguity")
    if superclass is None:
        return np.broadcast_to(outside, (n_classes, n_classes))
    inside = _probability(factor * ambiguity, "ambiguity inside a superclass")
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
    if not 0 <= share <= 1:
        raise InputError(
            f"The share is {share}: it is the probability that a set loses its true label, so it "
            "must lie between 0 and 1."
        )
    y, rng, n_classes = (
        np.asarray(labels, dtype=np.int64),
        np.random.default_rng(seed),
        candidates.n_classes,
    )
    lost = rng.random(len(y)) < share
    instead = (y + rng.integers(1, n_classes, len(y))) % n_classes
    numbers, sizes = (
        candidates.labels.cpu().numpy().astype(np.int64),
        candidates.sizes.cpu().numpy(),
    )
    rows = np.repeat(np.arange(len(y)), sizes)
    kept = ~(lost[rows] & (numbers == y[rows]))
    empty = np.flatnonzero(np.bincount(rows[kept], minlength=len(y)) == 0)
    rows, numbers = (
        np.concatenate([rows[kept], empty]),
        np.concatenate([numbers[kept], instead[empty]]),
    )
    order = np.argsort(rows, kind="stable")
    indptr = np.searchsorted(rows[order], np.arange(len(y) + 1))
    return Candidates.from_flat(indptr, numbers[order], n_classes, candidates.classes)


def _probability(value: float, what: str) -> float:
    if not 0 <= value <= 1:
        raise InputError(
            f"The {what} is {value}: it is the probability that a wrong label joins a set, so it "
            "must lie between 0 and 1."
        )
    return float(value)


def join_labels(
    labels: npt.ArrayLike, probability: npt.NDArray[np.float64], rng: RandomNumbers
) -> Candidates:
    """Draw sets with `probability[true, other]`, in chunks of rows so that memory does not grow with N × C."""
    y = check_class_numbers(labels)
    n_classes = len(probability)
    wrong = np.flatnonzero(y >= n_classes)
    if len(wrong):
        raise InputError(
            f"Row {int(wrong[0])} has the label {int(y[wrong[0]])}, but classes are numbered 0 to "
            f"{n_classes - 1}."
        )
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
