"""Priors: how often each class is the true one, read off the candidate sets alone."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from ltpll.candidates import Candidates

Array = npt.NDArray[np.float64]

TOLERANCE = 0.01  # of the log-likelihood of all sets together, which sampling moves by about 1/2 for every class
MOST_STEPS = 5_000
MOST_CLASSES = 2_000  # for whom a matrix of classes × classes is inverted


class Distinct(NamedTuple):
    """Every set once: `matrix` is (distinct sets, C) of zeros and ones, `counts` in how many rows each of them stands."""

    matrix: Any
    counts: Array

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
        """In how many rows each class is a candidate, (C,)."""
        return self.per_class(self.counts)

    def per_class(self, weights: Array) -> Array:
        """Σ over the sets that hold a class of the sets' weights, (C,)."""
        return np.asarray(self.matrix.T @ weights)


def distinct_sets(candidates: Candidates) -> Distinct:
    """Identical sets merged; two sets are taken for identical if the sums of their labels' 64-bit random numbers agree."""
    offsets, labels = candidates.offsets.cpu().numpy(), candidates.labels.cpu().numpy()
    numbers = np.random.default_rng(0).integers(0, 2**64, candidates.n_classes, dtype=np.uint64)
    # Two of a million different sets are confused once in 30 million times.
    sums = np.add.reduceat(numbers[labels], offsets[:-1])
    _, first, counts = np.unique(sums, return_index=True, return_counts=True)
    matrix = csr_matrix((np.ones(len(labels)), labels, offsets), shape=(len(candidates), candidates.n_classes))
    return Distinct(matrix[first], counts.astype(np.float64))


def em_prior(sets: Distinct, tolerance: float = TOLERANCE) -> tuple[Array, float]:
    """The prior that makes the sets likeliest if wrong labels join whatever the true one is: π_j ← mean_i S_ij π_j / Σ_k S_ik π_k.

    The log-likelihood is concave, so the largest factor d_j by which a step would raise a class tells how far N examples
    are from its maximum: by no more than N (max_j d_j − 1), which ends the search at `tolerance` and is given back.
    Steps are extrapolated (Varadhan and Roland 2008), since plain ones take thousands; where that fails, plain ones are kept.
    """
    n = sets.n
    weights = sets.counts / n
    back = sets.matrix.T.tocsr()

    def step(prior: Array) -> tuple[Array, float, float]:
        likelihood = sets.matrix @ prior
        factors = back @ (weights / likelihood)
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
        # A tenth of the plain step at least: a class once at zero could never come back.
        far = np.maximum(prior + 2 * stride * change + stride**2 * bend, two / 10)
        landed, reached, _ = step(far / far.sum())
        prior = landed if reached >= likelihood else two
    return prior / prior.sum(), gap


def average_prior(sets: Distinct) -> Array:
    """The mean of targets that are uniform on each set."""
    return sets.per_class(sets.counts / sets.sizes) / sets.n


def em_deviation(sets: Distinct, prior: Array) -> Array | None:
    """Standard deviation of the EM estimate, class by class, from the curvature of the likelihood; None for too many classes."""
    seen = np.flatnonzero(sets.appearances)
    if len(seen) > MOST_CLASSES:
        return None
    scaled = sets.matrix.multiply((np.sqrt(sets.counts) / (sets.matrix @ prior))[:, None]).tocsr()[:, seen]
    # What the sets do not tell at all (the identity keeps the matrix invertible) then has a deviation of one, which is the whole range.
    inverse = np.linalg.inv((scaled.T @ scaled).toarray() + np.eye(len(seen)))
    along = inverse.sum(1)  # probabilities sum to one, which takes a direction away
    deviation = np.zeros(len(prior))
    deviation[seen] = np.sqrt(np.maximum(np.diag(inverse) - along**2 / along.sum(), 0))
    return deviation
