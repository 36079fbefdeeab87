"""Grouping: tests of whether rows share their sets in groups, such as all objects of one picture.

In such data every candidate is the true label of some row of its group, so a group has at least as many rows as its set has labels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.priors.distinct_sets import DistinctSets

Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

PERMUTATIONS = 20
CELLS = 20_000_000  # most values of all permutations together
RATES = 60  # grid of the mixture in `test_counts`


class Clusters(NamedTuple):
    """Groups of rows with one set each: the number of labels and of rows of each group, and the number of its set."""

    sizes: Numbers
    rows: Numbers
    of_set: Numbers

    @property
    def completeness(self) -> float:
        """The share of candidates of the groups of several labels that have a row of their own; 1 if every group is complete."""
        several = self.sizes > 1
        needed = self.sizes[several]
        return float(np.minimum(self.rows[several], needed).sum() / max(needed.sum(), 1))

    @property
    def n_several(self) -> int:
        return int((self.sizes > 1).sum())


def runs(sets: DistinctSets, order: Numbers | None = None) -> Clusters:
    """Neighbouring rows with equal sets, as groups."""
    rows = sets.of_row if order is None else sets.of_row[order]
    starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
    lengths = np.diff(np.append(starts, len(rows)))
    of_set = rows[starts]
    return Clusters(sets.sizes[of_set], lengths, of_set)


def equal_sets(sets: DistinctSets) -> Clusters:
    """All rows with equal sets, as groups."""
    return Clusters(sets.sizes, sets.counts.astype(np.int64), np.arange(len(sets.counts)))


def given_groups(sets: DistinctSets, groups: Numbers) -> tuple[Clusters, float]:
    """The rows of each group that have its most frequent set, and the share of the rows of several labels in groups that do.

    Groups of one row say nothing, so they do not count.
    """
    pairs, rows = np.unique(np.stack([groups, sets.of_row]), axis=1, return_counts=True)
    group, of_set = pairs
    clusters = Clusters(sets.sizes[of_set], rows, of_set)
    first = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    most, total = np.maximum.reduceat(rows, first), np.add.reduceat(rows, first)
    several = total > 1
    agreeing = float((most[several] - 1).sum() / max((total[several] - 1).sum(), 1))
    return clusters, agreeing if several.any() else 0.0


class OrderTest(NamedTuple):
    """Neighbouring rows of several labels that have equal sets, as a share, and how complete the runs of equal sets are."""

    equal: float
    expected: float
    p: float
    completeness: float
    expected_completeness: float
    sorted: bool

    @property
    def gain(self) -> float:
        """How much of what shuffled rows lack to complete groups the order supplies."""
        return (self.completeness - self.expected_completeness) / max(1 - self.expected_completeness, 1e-9)


def test_order(sets: DistinctSets) -> OrderTest | None:
    """Compare the runs of equal sets with those of shuffled rows.

    The number of equal neighbours among shuffled rows has a known mean; its distribution is close to Poisson's where equal sets are
    rare, and its variance never exceeds the mean by much, so the p-value is that of a normal variable with twice the mean as variance.

    Returns:
        The result, or None if there are fewer than two rows of several labels. `sorted` tells that the rows may have been sorted, so that
        runs say nothing.
    """
    several = np.flatnonzero(sets.sizes[sets.of_row] > 1)
    m = len(several)
    if m < 2:
        return None
    rows = sets.of_row[several]
    counts = np.bincount(rows, minlength=len(sets.counts)).astype(float)
    share = float((counts * (counts - 1)).sum() / (m * (m - 1)))
    # Neighbours in the table, not among the rows of several labels alone.
    neighbours = several[1:] == several[:-1] + 1
    n_neighbours = int(neighbours.sum())
    equal = int(((rows[1:] == rows[:-1]) & neighbours).sum())
    mean = share * n_neighbours
    z = (equal - mean) / math.sqrt(2 * mean + 1)
    rng = np.random.default_rng(0)
    repeats = max(1, min(PERMUTATIONS, CELLS // len(sets.of_row)))
    shuffled = float(np.mean([runs(sets, rng.permutation(len(sets.of_row))).completeness for _ in range(repeats)]))
    found = runs(sets)
    return OrderTest(
        equal / max(n_neighbours, 1),
        share,
        0.5 * math.erfc(z / math.sqrt(2)),
        found.completeness,
        shuffled,
        is_sorted(sets, found),
    )


def is_sorted(sets: DistinctSets, found: Clusters) -> bool:
    """Whether the rows may have been sorted by class or by set.

    Sorted rows form at most C blocks of neighbours with a common label, since sets that are sorted as text start with it. Twice as many
    are allowed, for tables that were sorted in two parts.
    """
    most = 2 * int((sets.appearances > 0).sum())
    blocks = 0
    common: set[int] = set()
    indptr, indices = sets.matrix.indptr, sets.matrix.indices
    for number in found.of_set:
        labels = indices[indptr[number] : indptr[number + 1]].tolist()
        common = common.intersection(labels)
        if not common:
            blocks, common = blocks + 1, set(labels)
            if blocks > most:
                return False
    return True


class CountTest(NamedTuple):
    """Distinct sets with fewer rows than labels: how many there are, and the least number among rows that were drawn one by one."""

    too_few: int
    expected: float
    p: float
    completeness: float


def test_counts(sets: DistinctSets) -> CountTest | None:
    """Test whether rows were drawn one by one, by how often each distinct set of several labels occurs.

    If they were, from whatever distribution of sets, the counts of sets of one size follow a mixture of Poisson distributions, which
    cannot lack small counts. In grouped data no set of k labels has fewer than k rows. The best mixture (found by EM, given that
    unseen sets are not counted) tells how many sets should have fewer rows than labels.

    Returns:
        The result, or None if no set has several labels.
    """
    too_few, expected, variance = 0, 0.0, 0.0
    for size in np.unique(sets.sizes[sets.sizes > 1]):
        counts = sets.counts[sets.sizes == size].astype(np.int64)
        share = _mixture_below(counts, int(size))
        too_few += int((counts < size).sum())
        expected += share * len(counts)
        variance += share * (1 - share) * len(counts)
    if not (sets.sizes > 1).any():
        return None
    z = (expected - too_few) / math.sqrt(variance + 1)
    return CountTest(too_few, expected, 0.5 * math.erfc(z / math.sqrt(2)), equal_sets(sets).completeness)


def _mixture_below(counts: Numbers, size: int) -> float:
    """The share of counts below `size` in the mixture of zero-truncated Poisson distributions that fits the counts best."""
    highest = 4 * size + 10  # what exceeds it tells nothing about small counts
    clipped = np.minimum(counts, highest)
    seen, times = np.unique(clipped, return_counts=True)
    rates = np.geomspace(0.01, 3 * highest, RATES)
    log_factorial = np.cumsum(np.log(np.arange(1, highest + 1)))
    values = np.arange(1, highest + 1)
    table = np.exp(values * np.log(rates)[:, None] - rates[:, None] - log_factorial - np.log(-np.expm1(-rates))[:, None])
    table[:, -1] = np.maximum(1 - table[:, :-1].sum(1), 0)
    likelihood = table[:, seen - 1]
    mixture = np.full(RATES, 1 / RATES)
    shares = times / times.sum()
    for _ in range(300):
        mixture = mixture * (likelihood @ (shares / np.maximum(mixture @ likelihood, 1e-300)))
    return float(mixture @ table[:, : size - 1].sum(1))
