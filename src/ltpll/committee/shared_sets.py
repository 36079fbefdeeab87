"""Shared sets: what rows that share a set tell about each other's labels.

Where all objects of a picture share the set of what it shows, every candidate is the label of one
of them. If a picture of a cat and a dog has two objects, and one of them is surely the cat, the
other one is the dog. A classifier that looks at one row at a time does not know that.

A group of rows i shares the set S. Given the labels, a class without a row is in the set with the
small probability e; a class with a row always is. So labels y have the probability

    product over i of p_i(y_i)  ×  e to the number of candidates that no row has

up to a factor. With f(U) = product over i of the sum of p_i(j) over all j in U, the inclusion of
classes without a row gives the normalisation as the sum over all subsets U of S of
(e − 1)^|S − U| f(U), and likewise the probability of each label of each row. How often classes
without a row are in the sets, e, is estimated from the sets.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.priors.distinct_sets import distinct_sets
from ltpll.priors.regime import decide_regime

Shares = npt.NDArray[np.floating[Any]]
Numbers = npt.NDArray[np.int64]
MOST_LABELS = 8  # of a set, all of whose subsets are visited
VALUES_AT_ONCE = 2**22
EXPECTED, PSEUDO = 0.1, 10.0  # e, before as many classes without a row have been seen
LEAST = 0.01  # e, so that sums over subsets are exact enough
ROUNDS = 5  # in which e and the labels follow from each other
CLOSE = 0.005  # a change of e that is not worth another round


class _Groups(NamedTuple):
    """Groups whose sets have the same number of labels, one after the other."""

    rows: Numbers  # (R,)
    labels: Numbers  # (R, labels)
    starts: Numbers  # of each group among the rows


class SharedSets:
    """Groups of at least two rows that share a set of at least two labels.

    Args:
        of_row: The number of each row's group, (rows,).
        candidates: The candidate sets, from which answers have not yet taken labels.

    Examples:
        >>> pictures = Candidates.of(["cat|dog", "cat|dog", "dog"])
        >>> shared = SharedSets(np.array([0, 0, 1]), pictures)
        >>> shared.informed(np.array([[0.9, 0.1], [0.6, 0.4], [0.0, 1.0]])).round(1)
        array([[0.9, 0.1],
               [0.3, 0.7],
               [0. , 1. ]], dtype=float32)
    """

    def __init__(self, of_row: Numbers, candidates: Candidates) -> None:
        sizes, offsets = candidates.sizes.cpu().numpy(), candidates.offsets.cpu().numpy()
        labels = candidates.labels.cpu().numpy()
        order = np.argsort(of_row, kind="stable")
        several = np.bincount(of_row)[of_row[order]] > 1
        self._groups = []
        self._absent = 0  # classes that are not in the set, summed over all groups
        for size in range(2, min(int(sizes.max()), MOST_LABELS) + 1):
            rows = order[several & (sizes[order] == size)]
            if not len(rows):
                continue
            starts = np.flatnonzero(np.diff(of_row[rows], prepend=-1))
            self._groups.append(
                _Groups(rows, labels[offsets[rows, None] + np.arange(size)], starts)
            )
            self._absent += len(starts) * (candidates.n_classes - size)

    @classmethod
    def found_in(cls, candidates: Candidates) -> Self | None:
        """The groups that are given, or that the order of the rows shows; None if there are none."""
        observed = candidates.observed or candidates
        groups = None if observed.groups is None else observed.groups.cpu().numpy()
        clusters = decide_regime(distinct_sets(observed), groups).clusters
        return None if clusters is None else cls(clusters.of_row, observed)

    def informed(self, soft: Shares) -> npt.NDArray[np.float32]:
        """Soft labels that also know the other rows of each group.

        Args:
            soft: The probabilities of the candidates of each row, (rows, classes). Those outside of
                the set, and the sum of those inside, stay what they are.
        """
        found, e = np.array(soft, dtype=np.float32), EXPECTED
        for _ in range(ROUNDS):
            without = 0.0
            for some in self._groups:
                at = some.rows[:, None], some.labels
                inside = np.asarray(soft[at], dtype=np.float64)
                total = inside.sum(1, keepdims=True)
                own = labels_of_groups(inside / np.maximum(total, 1e-12), some.starts, e)
                without += np.multiply.reduceat(1 - own, some.starts).sum()
                found[at] = own * total
            seen = without + self._absent + PSEUDO
            before, e = e, max(LEAST, (without + EXPECTED * PSEUDO) / seen)
            if abs(e - before) < CLOSE:
                break
        return found


def labels_of_groups(inside: Shares, starts: Numbers, e: float) -> npt.NDArray[np.float64]:
    """The probabilities of labels of rows in groups, whose other rows have labels as well.

    Args:
        inside: What a classifier says about each row alone, (rows, labels of the set). Rows of
            zeros have a label outside of the set.
        starts: The first row of each group.
        e: The probability that a class without a row is in the set.
    """
    n_labels = inside.shape[1]
    kept = (np.arange(2**n_labels)[:, None] >> np.arange(n_labels) & 1).astype(np.float64)
    factors = (e - 1) ** (n_labels - kept.sum(1))
    found = np.empty(inside.shape)
    ends = np.append(starts[1:], len(inside))
    at_once = max(1, VALUES_AT_ONCE // len(kept))
    first = 0
    while first < len(starts):  # whole groups, of about as many rows as fit
        last = max(first + 1, int(np.searchsorted(ends, starts[first] + at_once, side="right")))
        rows = slice(starts[first], ends[last - 1])
        own, begin = inside[rows], starts[first:last] - starts[first]
        told = own.sum(1) > 0
        logs = np.where(told[:, None], np.log(np.maximum(own @ kept.T, 1e-200)), 0)
        of_row = np.repeat(np.arange(len(begin)), ends[first:last] - starts[first:last])
        others = np.exp(np.add.reduceat(logs, begin)[of_row] - logs)
        # Rounding may leave a little less than nothing, or nothing where all is improbable.
        joint = np.maximum(own * ((others * factors) @ kept), 0)
        total = joint.sum(1, keepdims=True)
        found[rows] = np.where(total > 1e-12, joint / np.maximum(total, 1e-300), own)
        first = last
    return found
