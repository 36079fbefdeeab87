"""Independence: tests of whether wrong labels join sets independently of each other.

If they do, a set S of k labels has the probability P(S) = P(k) · π(S) / (C−1 choose k−1), whatever
the distribution of sizes. Three consequences hold for every prior π, so they can be tested without
an estimate of it:

- how often two labels share a set is a sum of one term per label (`pairs_test`);
- the share of a class, read off the sets of one size, does not depend on the size (`sizes_test`);
- no class is a candidate less often than a class that is never true (`absences_test`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, chdtrc  # scipy.stats would take a second to import

from ltpll.priors.distinct_sets import DistinctSets

Array = npt.NDArray[np.float64]

SAMPLED_ROWS = 800  # from which the null distribution is estimated
# Of labels in sets; beyond it, pairs are counted in a random part of the smaller sets.
MOST_PAIRS = 100_000_000


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


def absences_test(sets: DistinctSets) -> Outcome:
    """Test whether some class is a candidate less often than one that is never true."""
    rate = (sets.mean_size - 1) / (sets.n_classes - 1)
    rarest = float(sets.appearances.min())
    p = min(1.0, sets.n_classes * float(bdtr(rarest, sets.n, rate)))
    return Outcome(rarest / sets.n, rate, p)


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
