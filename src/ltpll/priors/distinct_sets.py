"""Distinct sets: identical candidate sets merged and counted, and the class priors they imply."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from ltpll.candidates import Candidates

Array = npt.NDArray[np.float64]

# Per class, in the log-likelihood of all sets, which sampling changes by about 1/2 per class.
TOLERANCE = 0.001
MOST_STEPS = 5_000
DEVIATION_CLASS_LIMIT = 2_000  # beyond it, inverting a matrix of classes × classes takes too long


class DistinctSets(NamedTuple):
    """Each distinct set once.

    `matrix` is a sparse 0/1 matrix (distinct sets, C), `counts` the number of rows with each set,
    and `of_row` the number of each row's set, (N,).
    """

    matrix: Any
    counts: Array
    of_row: npt.NDArray[np.int64]

    @property
    def n(self) -> int:
        return int(self.counts.sum())

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        return np.asarray(np.diff(self.matrix.indptr), dtype=np.int64)

    @property
    def n_classes(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def mean_size(self) -> float:
        return float(self.sizes @ self.counts) / self.n

    @property
    def appearances(self) -> Array:
        """The number of rows in which each class is a candidate, (C,)."""
        return self.sum_per_class(self.counts)

    def sum_per_class(self, weights: Array) -> Array:
        """For each class, the sum of `weights` over the sets that contain it, (C,)."""
        return np.asarray(self.matrix.T @ weights)


def distinct_sets(candidates: Candidates) -> DistinctSets:
    """Merge identical candidate sets.

    Each label gets a random 64-bit number, and sets are identical if their sums agree: among a
    million distinct sets, two collide with a probability of 1 in 30 million.
    """
    offsets, labels = candidates.offsets.cpu().numpy(), candidates.labels.cpu().numpy()
    numbers = np.random.default_rng(0).integers(0, 2**64, candidates.n_classes, dtype=np.uint64)
    sums = np.add.reduceat(numbers[labels], offsets[:-1])
    _, first, of_row, counts = np.unique(
        sums, return_index=True, return_inverse=True, return_counts=True
    )
    matrix = csr_matrix(
        (np.ones(len(labels)), labels, offsets), shape=(len(candidates), candidates.n_classes)
    )
    return DistinctSets(matrix[first], counts.astype(np.float64), of_row)


def em_prior(
    sets: DistinctSets, tolerance: float | None = None, odds: Array | float = 0.0
) -> tuple[Array, float]:
    """Estimate the class prior by expectation maximisation: π_j ← mean_i S_ij π_j / Σ_k S_ik π_k.

    This is the maximum likelihood estimate if wrong labels join a set independently of the true
    label. If sets may lack the true label, S_ij is λ_i instead of 0 for classes outside the set
    (`ltpll.candidates.open_sets`). The log-likelihood is concave, so it is within N (max_j d_j − 1)
    of its maximum, where d_j is the factor by which a step would raise class j. Steps are
    extrapolated (Varadhan and Roland, 2008), since plain steps take thousands of iterations; an
    extrapolation that lowers the likelihood is replaced by the plain step.

    Returns:
        The prior, (C,), and the bound on the distance to the maximum, which is above `tolerance`
        (by default 0.001 per class) if EM did not converge.
    """
    n = sets.n
    tolerance = TOLERANCE * sets.n_classes if tolerance is None else tolerance
    weights = sets.counts / n
    transposed = sets.matrix.T.tocsr()

    def step(prior: Array) -> tuple[Array, float, float]:
        likelihood = set_likelihood(sets, prior, odds)
        inside = transposed @ (weights * (1 - odds) / likelihood)
        factors = inside + float(weights @ (odds / likelihood))
        return prior * factors, float(weights @ np.log(likelihood)), n * (float(factors.max()) - 1)

    prior = np.full(sets.n_classes, 1 / sets.n_classes)
    gap = math.inf
    for _ in range(MOST_STEPS // 3):
        one, _, gap = step(prior)
        if gap <= tolerance:
            break
        two, likelihood, _ = step(one)
        change = one - prior
        bend = two - one - change
        stride = max(1.0, math.sqrt(float(change @ change) / max(float(bend @ bend), 1e-300)))
        # At least a tenth of the plain step, since a class at zero would stay there.
        far = np.maximum(prior + 2 * stride * change + stride**2 * bend, two / 10)
        landed, reached, _ = step(far / far.sum())
        prior = landed if reached >= likelihood else two
    return prior / prior.sum(), gap


def set_likelihood(sets: DistinctSets, prior: Array, odds: Array | float) -> Array:
    """How probable each distinct set is, up to a factor that the prior does not change."""
    found: Array = odds + (1 - odds) * (sets.matrix @ prior)
    return found


def average_prior(sets: DistinctSets) -> Array:
    """Estimate the class prior as the mean of uniform targets, (C,)."""
    return sets.sum_per_class(sets.counts / sets.sizes) / sets.n


def em_deviation(sets: DistinctSets, prior: Array, odds: Array | float = 0.0) -> Array | None:
    """Standard deviation of the EM estimate of each class, from the curvature of the likelihood.

    None if there are too many classes.
    """
    seen = np.flatnonzero(sets.appearances)
    if len(seen) > DEVIATION_CLASS_LIMIT:
        return None
    slopes = np.sqrt(sets.counts) * (1 - odds) / set_likelihood(sets, prior, odds)
    scaled = sets.matrix.multiply(slopes[:, None]).tocsr()[:, seen]
    # The identity keeps the matrix invertible: a direction on which the sets carry no information
    # gets a deviation of 1, the whole range.
    inverse = np.linalg.inv((scaled.T @ scaled).toarray() + np.eye(len(seen)))
    along = inverse.sum(1)  # probabilities sum to one, which removes one direction
    deviation = np.zeros(len(prior))
    deviation[seen] = np.sqrt(np.maximum(np.diag(inverse) - along**2 / along.sum(), 0))
    return deviation
