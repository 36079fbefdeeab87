"""Origins: votes of annotators, and candidate sets as models propose them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.synthetic.longtail import check_class_numbers
from ltpll.validation import in_range

Array = npt.NDArray[np.float64]


def crowd_votes(
    labels: npt.ArrayLike,
    n_classes: int,
    *,
    seed: int,
    annotators: Sequence[float | npt.ArrayLike] = (0.9, 0.75, 0.6),
    confusion: npt.ArrayLike | None = None,
    per_row: int | None = None,
    misleading: float = 0.0,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Draw the labels that several annotators give each example.

    The true label may be missing among them.

    Args:
        labels: True class numbers.
        n_classes: The number of classes.
        seed: Seed of the random numbers.
        annotators: How often each annotator is right, or (C, C) probabilities of the labels that an
            annotator gives to each class.
        confusion: (C, C), for each true class the relative frequencies of the wrong labels; by
            default random, so that each class is confused with few others.
        per_row: The number of annotators of each example, chosen at random; by default all of them.
        misleading: The share of the examples that are easily taken for one other class, and get its
            label in six of ten votes.

    Returns:
        The row, the annotator and the label of each vote, for `ltpll.candidates_from_votes`.

    Raises:
        InputError: A number is out of range, or a matrix does not fit.

    Examples:
        >>> rows, annotators, votes = crowd_votes([0, 1, 2], n_classes=3, seed=0)
        >>> len(votes)
        9
    """
    y = check_class_numbers(labels, n_classes)
    rng = np.random.default_rng(seed)
    n, n_annotators = len(y), len(annotators)
    if per_row is not None:
        in_range(per_row, "per_row", 1, n_annotators)
    in_range(misleading, "misleading", 0, 1)
    given = _draw_annotations(y, n_classes, rng, annotators, confusion)
    taken_for = (y + rng.integers(1, n_classes, n)) % n_classes
    misled = (rng.random(n) < misleading)[:, None] & (rng.random(given.shape) < 0.6)
    given = np.where(misled, taken_for[:, None], given)
    chosen = rng.random(given.shape).argsort(1) < (per_row or n_annotators)
    rows, who = np.nonzero(chosen)
    return rows, who, given[chosen]


def _draw_annotations(
    y: npt.NDArray[Any],
    n_classes: int,
    rng: np.random.Generator,
    annotators: Sequence[float | npt.ArrayLike],
    confusion: npt.ArrayLike | None,
) -> npt.NDArray[np.int64]:
    """The label that each annotator gives each example, (N, annotators)."""
    kinds = [np.asarray(annotator, dtype=np.float64) for annotator in annotators]
    if not kinds:
        raise InputError("There are no annotators: give one probability per annotator.")
    for kind in kinds:
        if kind.ndim == 0:
            in_range(float(kind), "The accuracy of an annotator", 0, 1)
        elif kind.shape != (n_classes,) * 2 or (kind < 0).any() or not np.allclose(kind.sum(1), 1):
            which = f"An annotator's matrix has the shape {kind.shape}"
            raise InputError(f"{which}: give {n_classes} × {n_classes} probabilities, row by row.")
    if confusion is None:
        wrong = rng.dirichlet(np.full(n_classes, 0.3), n_classes)
    else:
        wrong = np.array(confusion, dtype=np.float64)
    if wrong.shape != (n_classes, n_classes) or (wrong < 0).any():
        which = f"The confusion matrix has the shape {wrong.shape}"
        raise InputError(
            f"{which}: give {n_classes} × {n_classes} frequencies that are not negative."
        )
    np.fill_diagonal(wrong, 0.0)
    totals = wrong.sum(1, keepdims=True)
    wrong = np.where(totals > 0, wrong, 1 - np.eye(n_classes))
    wrong = wrong / wrong.sum(1, keepdims=True)
    given = []
    for kind in kinds:
        edges = np.cumsum(wrong if kind.ndim == 0 else kind, axis=1)
        drawn = np.minimum((rng.random(len(y))[:, None] > edges[y]).sum(1), n_classes - 1)
        given.append(np.where(rng.random(len(y)) < kind, y, drawn) if kind.ndim == 0 else drawn)
    return np.stack(given, axis=1)


def top_k_candidates(
    labels: npt.ArrayLike, n_classes: int, k: int, *, seed: int, signal: float = 2.0
) -> Candidates:
    """Draw candidate sets that hold the k labels which a model finds most likely.

    The scores of the labels are those of a model whose classes resemble each other: a random
    symmetric resemblance with the true class, plus noise for each example, plus `signal` for the
    true class. Where it is not among the k best, it replaces the last of them.

    Args:
        labels: True class numbers.
        n_classes: The number of classes.
        k: The number of candidates.
        seed: Seed of the random numbers.
        signal: How much the score of the true class is raised.

    Returns:
        Sets of k labels that contain the true label.

    Raises:
        InputError: `k` is not between 1 and the number of classes, or a label is out of range.

    Examples:
        >>> top_k_candidates([0, 1, 2], n_classes=5, k=2, seed=0).sizes
        tensor([2, 2, 2], dtype=torch.int32)
    """
    y = check_class_numbers(labels, n_classes)
    in_range(k, "k", 1, n_classes)
    rng = np.random.default_rng(seed)
    resemblance = rng.standard_normal((n_classes, n_classes))
    resemblance = (resemblance + resemblance.T) / np.sqrt(2)
    best = np.empty((len(y), k), dtype=np.int64)
    chunk = max(1, (1 << 22) // n_classes)
    for start in range(0, len(y), chunk):
        part = y[start : start + chunk]
        scores = resemblance[part] + rng.standard_normal((len(part), n_classes))
        scores[np.arange(len(part)), part] += signal
        best[start : start + chunk] = np.argsort(-scores, axis=1)[:, :k]
        missing = ~(best[start : start + chunk] == part[:, None]).any(1)
        best[start : start + chunk][missing, -1] = part[missing]
    return Candidates.from_flat(np.arange(len(y) + 1) * k, best.ravel(), n_classes)
