"""Grouping: tests of whether rows share their sets in groups, such as all objects of one picture.

In such data every candidate is the true label of some row of its group, so a group has at least as
many rows as its set has labels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.priors.distinct_sets import DistinctSets

Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

PERMUTATIONS = 10


class Clusters(NamedTuple):
    """Kinds of groups of rows with one set each: how many labels and rows a group has, the number
    of its set, how many such groups, and the number of each row's group.
    """

    sizes: Numbers
    rows: Numbers
    of_set: Numbers
    times: Array
    of_row: Numbers

    @property
    def completeness(self) -> float:
        """The share of the candidates of groups of several labels that have a row of their own."""
        several = self.sizes > 1
        needed, times = self.sizes[several], self.times[several]
        covered = np.minimum(self.rows[several], needed)
        return float(covered @ times / max(float(needed @ times), 1e-9))


def runs_of_equal_sets(sets: DistinctSets, order: Numbers | None = None) -> Clusters:
    """Neighbouring rows with equal sets, as groups."""
    rows = sets.of_row if order is None else sets.of_row[order]
    starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
    of_set = rows[starts]
    lengths = np.diff(np.append(starts, len(rows)))
    of_row = np.repeat(np.arange(len(starts)), lengths)
    return Clusters(sets.sizes[of_set], lengths, of_set, np.ones(len(of_set)), of_row)


def given_groups(sets: DistinctSets, groups: Numbers) -> tuple[Clusters, float]:
    """The rows of each group with equal sets, and how many rows agree with their group: 1 if each
    group has one set, 0 if all sets differ.

    Groups of one row say nothing, so they do not count.
    """
    (group, of_set), of_row, rows = np.unique(
        np.stack([groups, sets.of_row]), axis=1, return_inverse=True, return_counts=True
    )
    clusters = Clusters(sets.sizes[of_set], rows, of_set, np.ones(len(rows)), of_row.reshape(-1))
    first = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    most, total = np.maximum.reduceat(rows, first), np.add.reduceat(rows, first)
    several = total > 1
    agreeing = float((most[several] - 1).sum() / max((total[several] - 1).sum(), 1))
    return clusters, agreeing if several.any() else 0.0


class OrderTest(NamedTuple):
    """Neighbouring rows with equal sets of several labels, and how complete their runs are.

    `gain` is how much of what shuffled rows lack to complete groups the order supplies.
    """

    equal: float
    expected: float
    p: float
    completeness: float
    expected_completeness: float
    gain: float
    sorted: bool


def order_test(sets: DistinctSets) -> OrderTest | None:
    """Compare the runs of equal sets with those of shuffled rows.

    If the rows may have been sorted by class, they are shuffled within blocks of rows with a common
    label. If they may have been sorted by set, which leaves one run of each set in a block, runs of
    equal sets say nothing, and the result is marked as `sorted`. The number of equal neighbours
    among shuffled rows has at most about twice its mean as variance, from which the p-value
    follows. None if there are no two neighbouring rows of several labels.
    """
    several = sets.sizes[sets.of_row] > 1
    n = int((several[1:] & several[:-1]).sum())
    if n == 0:
        return None
    found = runs_of_equal_sets(sets)
    of_run = _label_blocks(sets, found)
    blocks = None if of_run is None else np.repeat(of_run, found.rows)
    rng = np.random.default_rng(0)
    equal, completeness = [], []
    for _ in range(PERMUTATIONS):
        if blocks is None:
            order = rng.permutation(len(several))
        else:
            order = np.lexsort((rng.random(len(several)), blocks))
        shuffled = runs_of_equal_sets(sets, order)
        equal.append(_equal_neighbours(shuffled))
        completeness.append(shuffled.completeness)
    observed, mean, usual = _equal_neighbours(found), np.mean(equal), float(np.mean(completeness))
    z = (observed - mean) / math.sqrt(2 * mean + 1)
    is_sorted = False
    if blocks is not None:  # nearly all sets have one run in each block
        multiple = (sets.sizes > 1) & (sets.counts > 1)
        in_block = np.unique((blocks * len(sets.counts) + sets.of_row)[multiple[sets.of_row]])
        is_sorted = int(multiple[found.of_set].sum()) <= 1.1 * len(in_block)
    return OrderTest(
        equal=observed / n,
        expected=float(mean) / n,
        p=0.5 * math.erfc(z / math.sqrt(2)),
        completeness=found.completeness,
        expected_completeness=usual,
        gain=(found.completeness - usual) / max(1 - usual, 1e-9),
        sorted=is_sorted,
    )


def _equal_neighbours(runs: Clusters) -> int:
    """The number of rows of several labels whose set is that of the row before."""
    return int((runs.rows - 1)[runs.sizes > 1].sum())


def _label_blocks(sets: DistinctSets, found: Clusters) -> Numbers | None:
    """The block of each run, or None if the rows cannot have been sorted by class or by set.

    Sorted rows form at most C blocks of neighbours with a common label: the class, or the first
    label of sets that were sorted as text. Twice as many are allowed, for tables that consist of a
    sorted training part and a sorted test part.
    """
    most = 2 * int((sets.appearances > 0).sum())
    blocks = np.zeros(len(found.of_set), dtype=np.int64)
    block = 0
    common: set[int] | None = None
    indptr, indices = sets.matrix.indptr, sets.matrix.indices
    for i, number in enumerate(found.of_set):
        labels = set(indices[indptr[number] : indptr[number + 1]].tolist())
        common = labels if common is None else common & labels
        if not common:
            block, common = block + 1, labels
            if block >= most:
                return None
        blocks[i] = block
    return blocks
