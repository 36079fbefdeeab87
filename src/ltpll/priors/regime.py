"""Regime: how candidate sets probably arose, decided by tests with stated error rates.

Independent wrong labels are taken for something else with a probability of 1 % (`SIZE`). Rows that
were drawn one by one, from whatever distribution of sets, are taken for groups with a probability
of at most 0.1 % (`GROUP_SIZE`).

What sets alone do not show: groups among rows that were shuffled or sorted by set, and whether
neighbouring rows with equal sets are copies of one example rather than objects of one picture. The
former is unclear, and the latter is taken for co-occurrence; `groups` settle both.

If wrong labels join independently, a set S of k labels has the probability
P(S) = P(k) · π(S) / (C−1 choose k−1), whatever the distribution of sizes. Two consequences hold for
every prior π, so they can be tested without an estimate of it:

- how often two labels share a set is a sum of one term per label (`pairs_test`);
- the share of a class, read off the sets of one size, does not depend on the size (`sizes_test`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc  # scipy.stats would take a second to import

from ltpll.priors.distinct_sets import DistinctSets
from ltpll.priors.grouping import Clusters, given_groups, order_test, runs_of_equal_sets

Array = npt.NDArray[np.float64]
Regime = Literal["independent", "co-occurrence", "unclear", "known"]

SIZE = 0.01
GROUP_SIZE = 0.001
# Of the rows of given groups must share their set; a few may have been corrected by hand.
AGREEING = 0.9
# Of the candidates of groups must have a row of their own; below 1, since rows may be missing.
COMPLETE = 0.7
GAIN = 0.5  # of what shuffled rows lack to complete groups, the order must supply
SAMPLED_ROWS = 800  # from which the null distribution is estimated
# Of labels in sets; beyond it, pairs are counted in a random part of the smaller sets.
MOST_PAIRS = 100_000_000


@dataclass(frozen=True)
class Evidence:
    """A statistic of the sets, what it would be by chance, and what it indicates.

    `p` is the probability of a value at least as extreme, or None if the statistic is not a test.
    """

    what: str
    observed: float
    expected: float | None
    p: float | None
    speaks_for: str


@dataclass(frozen=True)
class Decision:
    """The regime, the reason in one sentence, the evidence, and the groups of rows."""

    regime: Regime
    because: str
    evidence: list[Evidence]
    clusters: Clusters | None = None


def decide_regime(sets: DistinctSets, groups: npt.NDArray[np.int64] | None = None) -> Decision:
    """Decide how the sets arose.

    Groups that share their sets, given or visible in the order of the rows, mean co-occurrence.
    Otherwise wrong labels are independent unless one of two tests rejects that.
    """
    if (sets.sizes == 1).all():
        return Decision("known", "every set has a single label, so the class counts are known", [])
    # A class that is nowhere a candidate was not among the labels that could join.
    sets = DistinctSets(sets.matrix[:, sets.appearances > 0], sets.counts, sets.of_row)
    evidence: list[Evidence] = []
    told = ""
    if groups is not None:
        told, clusters = _read_groups(sets, groups, evidence)
        if clusters is not None:
            return Decision("co-occurrence", told, evidence, clusters)
    grouped = _find_groups(sets, evidence)
    rejected, testable = _test_independence(sets, evidence)
    if grouped:
        because = told + "neighbouring rows share their sets, in runs with rows for all labels"
        return Decision("co-occurrence", because, evidence, runs_of_equal_sets(sets))
    if rejected:
        hidden = "rows do not visibly share their sets in groups"
        if any(one.what.endswith("(sorted?)") for one in evidence):
            hidden = "the rows may be sorted, so that groups would not show"
        because = f"wrong labels do not join independently, and {hidden}"
    elif not testable:
        because = "sets like these cannot show whether wrong labels join independently"
    else:
        because = "no test rejects that wrong labels join independently of the true label"
    return Decision(
        "unclear" if rejected or not testable else "independent", told + because, evidence
    )


def _read_groups(
    sets: DistinctSets, groups: npt.NDArray[np.int64], evidence: list[Evidence]
) -> tuple[str, Clusters | None]:
    """Whether the given groups share their sets: the reason, and the groups if they do."""
    clusters, agreeing = given_groups(sets, groups)
    complete = clusters.completeness
    for what, value, least in (
        ("rows with their group's set", agreeing, AGREEING),
        ("labels with a row in group", complete, COMPLETE),
    ):
        speaks_for = "co-occurrence" if value >= least else "not co-occurrence"
        evidence.append(Evidence(what, value, None, None, speaks_for))
    if agreeing < AGREEING:
        return "rows of a group do not share one set; ", None
    if complete < COMPLETE:
        fewer = "groups have fewer rows than labels, so that most labels cannot be true in them; "
        return fewer, None
    return "the rows of a group share one set, and there are rows for all of its labels", clusters


def _find_groups(sets: DistinctSets, evidence: list[Evidence]) -> bool:
    """Whether neighbouring rows visibly share their sets in groups."""
    order = order_test(sets)
    if order is None:
        return False
    complete = order.completeness >= COMPLETE and order.gain >= GAIN
    found = order.p < GROUP_SIZE and complete and not order.sorted
    speaks_for = "co-occurrence" if found else "neither"
    which = "equal neighbours (sorted?)" if order.sorted else "equal neighbours"
    shares = order.completeness, order.expected_completeness
    evidence.append(Evidence(which, order.equal, order.expected, order.p, speaks_for))
    evidence.append(Evidence("labels with a row in runs", *shares, None, speaks_for))
    return found


def _test_independence(sets: DistinctSets, evidence: list[Evidence]) -> tuple[bool, bool]:
    """Whether independence is rejected, and whether it could have been."""
    tests = {
        "surplus of shared pairs": pairs_test(sets),
        "small against large sets": sizes_test(sets),
    }
    rejected = False
    for what, result in tests.items():
        if result is not None:
            against = result.p < SIZE / len(tests)
            rejected |= against
            speaks_for = "not independent" if against else "independent"
            evidence.append(Evidence(what, *result, speaks_for))
    return rejected, any(result is not None for result in tests.values())


# ---- tests of independence -----------------------------------------------------------------------


class Outcome(NamedTuple):
    """A statistic, its value if wrong labels join independently, and its p-value."""

    observed: float
    expected: float
    p: float


def pairs_test(sets: DistinctSets) -> Outcome | None:
    """Test whether pairs of labels share sets as often as a sum of one term per label explains.

    Each set becomes a vector with a one for each pair of its labels, from which the closest sums of
    one term per label are subtracted. With independent wrong labels these vectors have mean zero
    for every prior and size, so that Σ_{i≠j} ⟨x_i, x_j⟩ has mean zero. Large values, of sets that
    overlap in more pairs than they should, count against independence. None if no set can tell,
    with fewer than four classes or without sets of 2 to C − 2 labels.
    """
    n_classes = sets.n_classes
    sizes = sets.sizes.astype(float)
    norm = _pair_kernel(sizes, sizes, sizes, n_classes) if n_classes > 3 else np.zeros(len(sizes))
    rows = np.flatnonzero((norm > 1e-9) & (sizes**2 <= MOST_PAIRS))
    if len(rows) == 0:
        return None
    rng = np.random.default_rng(0)
    per_row = sizes[rows] ** 2
    if per_row.sum() > MOST_PAIRS:
        rows = rng.permutation(rows)[: max(2, int(len(rows) * MOST_PAIRS / per_row.sum()))]
    matrix, counts = sets.matrix[rows], sets.counts[rows]
    if counts.sum() < 2:
        return None
    weights = 1 / np.sqrt(norm[rows])
    together = (matrix.T @ matrix.multiply((weights * counts)[:, None]).tocsr()).tocoo()
    other = together.row != together.col
    pairs = together.data[other]
    per_class = np.bincount(together.row[other], weights=pairs, minlength=n_classes)
    total = float(per_class.sum())
    alone = per_class @ per_class - total**2 / (2 * (n_classes - 1))
    length = (pairs @ pairs) / 2 - alone / (n_classes - 2)
    sample = _sample_rows(counts, rng)
    overlaps = (matrix[sample] @ matrix[sample].T).toarray()
    size = sizes[rows][sample]
    kernel = _pair_kernel(overlaps, size[:, None], size[None, :], n_classes)
    kernel = kernel * weights[sample][:, None] * weights[sample][None, :]
    return _upper_tail(float(length - counts.sum()), kernel, float(counts.sum()))


def _pair_kernel(overlap: Array, size: Array, other: Array, n_classes: int) -> Array:
    """The inner product of the pair vectors of two sets, without one term per label."""
    both = (size - 1) * (other - 1)
    return np.asarray(
        overlap * (overlap - 1) / 2
        - both * overlap / (n_classes - 2)
        + size * other * both / (2 * (n_classes - 1) * (n_classes - 2))
    )


def sizes_test(sets: DistinctSets) -> Outcome | None:
    """Test whether small and large sets agree on the shares of the classes.

    Of a class with share π_j, a share π_j + (1 − π_j) (k − 1) / (C − 1) of the sets of size k
    contain it, which gives one unbiased estimate of π per set. A contrast between small and large
    sets has mean zero for every prior. None if all sets have the same size.
    """
    n_classes, sizes, counts = sets.n_classes, sets.sizes.astype(float), sets.counts
    known = (n_classes - sizes) / (n_classes - 1)  # 1 for a single label, 0 for a set of all labels
    precision = known**2 * counts
    if precision.sum() == 0:
        return None
    contrast = known**2 * (sizes - (precision @ sizes) / precision.sum())
    if float(np.abs(contrast) @ counts) < 1e-9 * sets.n:
        return None
    some = known > 0
    scale, shift = np.zeros(len(sizes)), np.zeros(len(sizes))
    scale[some] = 1 / known[some]
    shift[some] = (1 - known[some]) / known[some]  # an estimate of π is scale · S − shift

    def weighted_sum(weights: Array) -> Array:
        return sets.sum_per_class(weights * scale) - float(weights @ shift)

    prior = weighted_sum(precision) / precision.sum()
    matrix = sets.matrix
    squared = (
        scale**2 * sizes
        - 2 * scale * (matrix @ prior + shift * sizes)
        + n_classes * shift**2
        + 2 * shift * prior.sum()
        + prior @ prior
    )
    length = weighted_sum(contrast * counts)
    statistic = float(length @ length - (contrast**2 * counts) @ squared)
    sample = _sample_rows(counts * some, np.random.default_rng(0))
    dense = matrix[sample].toarray() * scale[sample][:, None] - shift[sample][:, None] - prior
    dense *= contrast[sample][:, None]
    return _upper_tail(statistic, dense @ dense.T, float(counts[some].sum()))


def _sample_rows(counts: Array, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Positions of the sets of some random rows."""
    n = int(counts.sum())
    few = n <= SAMPLED_ROWS
    chosen = np.arange(n) if few else np.sort(rng.choice(n, SAMPLED_ROWS, replace=False))
    return np.searchsorted(np.cumsum(counts), chosen, side="right")


def _upper_tail(statistic: float, kernel: Array, n: float) -> Outcome | None:
    """Test Σ_{i≠j} K(x_i, x_j) over n rows by the kernel matrix of a sample of rows.

    Under the null hypothesis it is a sum of centred χ² variables, approximated by one with the same
    variance and skewness.
    """
    m = len(kernel)
    if m < 4:
        return None
    np.fill_diagonal(kernel, 0.0)
    square = kernel @ kernel
    second = float(np.trace(square)) / (m * (m - 1))
    if second <= 0:
        return None
    third = float((square * kernel).sum()) / (m * (m - 1) * (m - 2))
    z = statistic / math.sqrt(2 * second * n * (n - 1))
    freedom = min(second**3 / third**2, 1e9) if third > 0 else 1e9
    return Outcome(z, 0.0, float(chdtrc(freedom, max(freedom + z * math.sqrt(2 * freedom), 0.0))))
