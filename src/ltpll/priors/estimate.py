"""Estimate: the class prior that candidate sets imply, with bounds for every class."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import truncnorm

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.priors.distinct_sets import DistinctSets, distinct_sets
from ltpll.priors.grouping import Clusters, runs
from ltpll.priors.regime import Evidence, Regime, decide_regime
from ltpll.priors.set_priors import average_prior, em_deviation, em_prior

Array = npt.NDArray[np.float64]
How = Literal["auto", "sets", "average"]
HOW = ("auto", "sets", "average")


@dataclass(frozen=True)
class PriorEstimate:
    """The class prior that candidate sets imply; arrays have one value per class, in the order of `classes`.

    The bounds are for the shares of the classes among these rows.

    Attributes:
        classes: The names of the classes.
        n: The number of rows.
        estimate: The share of each class.
        lower: The lower bound of each share.
        upper: The upper bound of each share.
        regime: How the sets arose: wrong labels joined independently, sets hold what occurs together, neither fits, or all are known.
        because: The reason in one sentence.
        evidence: The tests behind it.
        em: The most likely shares if wrong labels join independently.
        average: The mean of uniform targets.
        deviation: The standard deviation of each estimated share.
        em_gap: How far the log-likelihood of `em` may be from its maximum.
        singletons: The share of rows with one candidate.
        width: The width of the bounds in standard deviations.
        how: How the estimate was chosen: "auto", "sets", "average" or "given".
    """

    classes: tuple[Hashable, ...]
    n: int
    estimate: Array
    lower: Array
    upper: Array
    regime: Regime
    because: str
    evidence: list[Evidence]
    em: Array
    average: Array
    deviation: Array
    em_gap: float
    singletons: float
    width: float
    how: str
    seen: npt.NDArray[np.bool_]

    @property
    def imbalance(self) -> float:
        """The largest share over the smallest of the classes that are candidates; shares below one row count as one row."""
        return float(self.estimate.max() / max(self.estimate[self.seen].min(), 1 / self.n))

    @property
    def centre(self) -> Array:
        """The mean of a normal distribution around the estimate that is cut off at 0 and 1, scaled to sum to one.

        Where the estimate of a rare class is zero, within its deviation, this share is positive: a class that is a candidate may exist.
        """
        certain = self.deviation < 1e-12
        deviation = np.where(certain, 1.0, self.deviation)
        means = truncnorm.mean(-self.estimate / deviation, (1 - self.estimate) / deviation, self.estimate, deviation)
        centre = np.where(certain, self.estimate, means)
        return np.asarray(centre / centre.sum())

    @property
    def expected_error(self) -> float:
        """The L1 error of the estimate that the deviations imply, at most 2."""
        return min(2.0, math.sqrt(2 / math.pi) * float(self.deviation.sum()))

    def record(self) -> dict[str, Any]:
        """All values in a dictionary that JSON can hold."""
        arrays = {name: getattr(self, name).tolist() for name in ("estimate", "lower", "upper", "em", "average", "deviation")}
        return {
            "classes": [name if isinstance(name, (str, int, float)) else str(name) for name in self.classes],
            "n": self.n,
            "regime": self.regime,
            "because": self.because,
            "how": self.how,
            "width": self.width,
            "singletons": self.singletons,
            "imbalance": self.imbalance,
            "expected_error": self.expected_error,
            "em_gap": self.em_gap,
            **arrays,
            "evidence": [vars(one) for one in self.evidence],
        }

    def __str__(self) -> str:
        lines = [f"Class prior of {self.n:,} rows, {len(self.classes)} classes ({self.regime}: {self.because})"]
        order = np.argsort(-self.estimate, kind="stable")
        lines += [
            f"  {str(self.classes[c])[:30]:<30} {self.estimate[c]:7.2%}  [{self.lower[c]:.2%}, {self.upper[c]:.2%}]" for c in order[:20]
        ]
        if len(order) > 20:
            lines.append(f"  and {len(order) - 20} smaller classes")
        return "\n".join(lines)


def estimate_prior(candidates: Candidates, *, how: How = "auto", width: float = 2.0) -> PriorEstimate:
    """Estimate the class prior from candidate sets alone.

    Args:
        candidates: The candidate sets; if they have `groups`, these help to tell how the sets arose.
        how: `"sets"` for the most likely prior if wrong labels join independently (EM), `"average"` for the mean of uniform targets,
            which is nearly unbiased if sets hold what occurs together, `"auto"` to decide by tests.
        width: The width of the bounds in standard deviations.

    Returns:
        The estimate, bounds for every class, and the regime with the evidence for it.

    Raises:
        InputError: `how` is unknown, or the width is negative.

    Example:
        >>> found = estimate_prior(Candidates.of([[0], [0], [0, 1], [1]]))
        >>> found.estimate.round(2)
        array([0.67, 0.33])
    """
    if how not in HOW:
        raise InputError(f"how is {how!r}: it must be one of {', '.join(HOW)}.")
    if not 0 <= width < math.inf:
        raise InputError(f"The width is {width}: it is a number of standard deviations, so it must be finite and at least 0.")
    sets = distinct_sets(candidates)
    groups = None if candidates.groups is None else candidates.groups.cpu().numpy()
    decision = decide_regime(sets, groups)
    em, gap = em_prior(sets)
    average = average_prior(sets)
    em_bounds = _em_bounds(sets, em, width)
    average_bounds = _average_bounds(sets, average, decision.clusters or runs(sets), width)
    seen = sets.appearances > 0
    if decision.regime == "known":
        estimate, deviation, lower, upper = average, np.zeros_like(average), average, average
    elif how == "sets" or (how == "auto" and decision.regime == "independent"):
        estimate, (deviation, lower, upper) = em, em_bounds
    elif how == "average" or decision.regime == "co-occurrence":
        estimate, (deviation, lower, upper) = average, average_bounds
    else:
        estimate = (em + average) / 2
        lower, upper = np.minimum(em_bounds[1], average_bounds[1]), np.maximum(em_bounds[2], average_bounds[2])
        deviation = (upper - lower) / (2 * max(width, 1e-9)) if width else np.abs(em - average)
    return PriorEstimate(
        classes=candidates.classes,
        n=sets.n,
        estimate=estimate,
        lower=lower,
        upper=upper,
        regime=decision.regime,
        because=decision.because,
        evidence=decision.evidence,
        em=em,
        average=average,
        deviation=deviation,
        em_gap=gap,
        singletons=float(sets.counts[sets.sizes == 1].sum()) / sets.n,
        width=float(width),
        how=how,
        seen=seen,
    )


def _clip(sets: DistinctSets, estimate: Array, deviation: Array, width: float) -> tuple[Array, Array, Array]:
    """Bounds around an estimate; a class is true in all rows of which it is the only candidate, and only where it is a candidate."""
    lowest = sets.per_class(sets.counts * (sets.sizes == 1)) / sets.n
    highest = sets.appearances / sets.n
    lower = np.clip(estimate - width * deviation, lowest, highest)
    upper = np.clip(estimate + width * deviation, lowest, highest)
    return deviation, lower, upper


def _em_bounds(sets: DistinctSets, em: Array, width: float) -> tuple[Array, Array, Array]:
    """Bounds of the realised shares around EM.

    The variance of EM around the prior is that of the realised shares around the prior plus that of EM around the realised shares, of
    which the latter is wanted.
    """
    seen = sets.appearances > 0
    interior = np.where(seen, sets.n * em + 0.5, 0.0)
    interior /= interior.sum()
    deviation = em_deviation(sets, interior)
    if deviation is None:
        deviation = _moment_deviation(sets)
    realised = np.sqrt(np.maximum(deviation**2 - interior * (1 - interior) / sets.n, 0))
    return _clip(sets, em, realised, width)


def _moment_deviation(sets: DistinctSets) -> Array:
    """Standard deviations of the shares that class appearances imply, which exceed those of EM and need no matrix of classes."""
    share = sets.appearances / sets.n
    rate = (sets.mean_size - 1) / (sets.n_classes - 1)
    return np.sqrt(share * (1 - share) / sets.n) / max(1 - rate, 1e-9)


def _average_bounds(sets: DistinctSets, average: Array, clusters: Clusters, width: float) -> tuple[Array, Array, Array]:
    """Bounds of the realised shares around the average uniform target if rows share sets in groups.

    In a group of m rows and k labels, each label is true in one row at least. The m − k other truths are spread over the labels with
    shares of their own in each group, which are drawn uniformly.
    """
    k, m = clusters.sizes.astype(float), clusters.rows.astype(float)
    others = np.maximum(m - k, 0)
    variance = others * (k - 1) / k**2 * (k + others) / (k + 1) + np.where(m < k, m * (1 - 1 / k) / k, 0)
    per_set: Array = np.bincount(clusters.of_set, weights=variance, minlength=len(sets.counts)).astype(np.float64)
    deviation = np.sqrt(sets.per_class(per_set)) / sets.n
    return _clip(sets, average, deviation, width)
