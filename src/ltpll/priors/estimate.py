"""Estimate: the class prior that candidate sets imply, with bounds for every class."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr  # scipy.stats would take a second to import

from ltpll.candidates import Candidates
from ltpll.candidates.open_sets import outside_odds
from ltpll.errors import InputError
from ltpll.priors.distinct_sets import DistinctSets, distinct_sets
from ltpll.priors.grouping import Clusters
from ltpll.priors.regime import Evidence, Regime, decide_regime
from ltpll.validation import in_range

Array = npt.NDArray[np.float64]
How = Literal["auto", "sets", "average"]
HOW = ("auto", "sets", "average")

# Per class, in the log-likelihood of all sets, which sampling changes by about 1/2 per class.
TOLERANCE = 0.001
MOST_STEPS = 5_000
REMEMBERED = 32  # estimates: the members of a committee have the same folds
DEVIATION_CLASS_LIMIT = 2_000  # beyond it, inverting a matrix of classes × classes takes too long


@dataclass(frozen=True, eq=False, repr=False)
class PriorEstimate:
    """The class prior that candidate sets imply.

    Arrays have one value per class, in the order of `classes`.

    The bounds are for the shares of the classes among these rows: with a width of 2, they hold for
    95 % of the classes if the regime is right, and in the regime "co-occurrence" if no class has
    more objects per picture than others. Where the regime is unclear, the estimate is a mean of
    `em` and `average`, weighted by their precision, and the bounds reach beyond both by as much as
    these differ.

    Attributes:
        classes: The names of the classes.
        n: The number of rows.
        estimate: The share of each class.
        lower: The lower bound of each share.
        upper: The upper bound of each share.
        regime: How the sets arose: wrong labels joined independently, sets hold what occurs
            together, neither fits, or all are known.
        because: The reason in one sentence.
        evidence: The tests behind it.
        em: The most likely shares if wrong labels join independently.
        average: The mean of uniform targets.
        deviation: The standard deviation of each estimated share; where the regime is unclear, it
            includes the distance of `em` and `average`.
        em_gap: How far the log-likelihood of `em` may be from its maximum.
        singletons: The share of rows with one candidate.
        width: The width of the bounds in standard deviations.
        how: How the estimate was chosen: "auto", "sets", "average" or "given".
        seen: Whether each class is a candidate at all.
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
        """The largest share over the smallest of the classes that are candidates.

        Shares below one row count as one row.
        """
        return float(self.estimate.max() / max(self.estimate[self.seen].min(), 1 / self.n))

    @property
    def centre(self) -> Array:
        """The mean of a normal distribution around the estimate, cut off at 0 and 1.

        Where the estimate of a rare class is zero, within its deviation, this share is positive: a
        class that is a candidate may exist.
        """
        certain = self.deviation < 1e-12
        deviation = np.where(certain, 1.0, self.deviation)
        low, high = -self.estimate / deviation, (1 - self.estimate) / deviation
        density = (np.exp(-(low**2) / 2) - np.exp(-(high**2) / 2)) / math.sqrt(2 * math.pi)
        shift = deviation * density / (ndtr(high) - ndtr(low))
        centre = np.where(certain, self.estimate, self.estimate + shift)
        return np.asarray(centre / centre.sum())

    @property
    def expected_error(self) -> float:
        """The L1 error of the estimate that the deviations imply, at most 2."""
        return min(2.0, math.sqrt(2 / math.pi) * float(self.deviation.sum()))

    def as_record(self) -> dict[str, Any]:
        """All values in a dictionary that JSON can hold."""
        names = ("n", "regime", "because", "how", "width", "singletons", "imbalance")
        arrays = ("estimate", "lower", "upper", "em", "average", "deviation")
        plain = (str, int, float)
        return {
            "classes": [one if isinstance(one, plain) else str(one) for one in self.classes],
            **{name: getattr(self, name) for name in (*names, "expected_error", "em_gap")},
            **{name: getattr(self, name).tolist() for name in arrays},
            "evidence": [vars(one) for one in self.evidence],
        }

    def __repr__(self) -> str:
        why = f"({self.regime}: {self.because})"
        lines = [f"Class prior of {self.n:,} rows, {len(self.classes)} classes {why}"]
        order = np.argsort(-self.estimate, kind="stable")
        for c in order[:20]:
            bounds = f"[{self.lower[c]:.2%}, {self.upper[c]:.2%}]"
            lines.append(f"  {str(self.classes[c])[:30]:<30} {self.estimate[c]:7.2%}  {bounds}")
        if len(order) > 20:
            lines.append(f"  and {len(order) - 20} smaller classes")
        return "\n".join(lines)


def estimate_prior(
    candidates: Any,
    *,
    how: How = "auto",
    width: float = 2.0,
    missing: float | Sequence[float] = 0.0,
) -> PriorEstimate:
    """Estimate the class prior from candidate sets alone.

    Args:
        candidates: The candidate sets, or anything that `Candidates.of` takes. If they have
            `groups`, these help to tell how the sets arose. If answers have replaced some of the
            sets, the estimate is that of the sets before.
        how: `"sets"` for the most likely prior if wrong labels join independently (EM), `"average"`
            for the mean of uniform targets, which is nearly unbiased if sets hold what occurs
            together, `"auto"` to decide by tests.
        width: The width of the bounds in standard deviations.
        missing: The share of sets that lack the true label, or that share for each size of a set,
            from 0 to the number of classes. If it is above zero, wrong labels are taken to join
            independently unless rows share their sets in groups.

    Returns:
        The estimate, bounds for every class, and the regime with the evidence for it.

    Raises:
        InputError: `how` is unknown, or the width is negative.

    Examples:
        >>> sets = ["cat|dog", "dog|cow", "cat|fox|cow", "fox", "cat", "cow", "dog|fox"] * 3
        >>> found = estimate_prior(Candidates.of(sets))
        >>> found.regime, found.estimate.round(2), found.upper.round(2)
        ('independent', array([0.29, 0.29, 0.14, 0.29]), array([0.43, 0.43, 0.42, 0.43]))
    """
    if how not in HOW:
        raise InputError(f"how is {how!r}: it must be one of {', '.join(HOW)}.")
    in_range(width, "width", 0)
    candidates = candidates if isinstance(candidates, Candidates) else Candidates.of(candidates)
    candidates = candidates.observed or candidates
    key = (_digest(candidates), how, width, tuple(np.ravel(missing).tolist()))
    found = _remembered.get(key)
    if found is None:
        if len(_remembered) >= REMEMBERED:
            _remembered.clear()
        found = _remembered[key] = _estimated(candidates, how, width, missing)
    return found


_remembered: dict[Any, PriorEstimate] = {}


def _digest(candidates: Candidates) -> bytes:
    """A hash of all that an estimate depends on."""
    found = hashlib.sha256(repr(candidates.classes).encode())
    for part in (candidates.offsets, candidates.labels, candidates.groups):
        found.update(b"-" if part is None else np.ascontiguousarray(part.cpu().numpy()).data)
    return found.digest()


def _estimated(
    candidates: Candidates, how: How, width: float, missing: float | Sequence[float]
) -> PriorEstimate:
    sets = distinct_sets(candidates)
    groups = None if candidates.groups is None else candidates.groups.cpu().numpy()
    decision = decide_regime(sets, groups)
    odds: Array | float = 0.0
    if np.any(missing):
        odds = outside_odds(missing, sets.sizes, sets.n_classes)
        if decision.regime in ("independent", "unclear"):
            because = "wrong labels are taken to join independently, and some sets to lack the true"
            because += " label"
            decision = replace(decision, regime="independent", because=because)
    em, gap = em_prior(sets, odds=odds)
    average = average_prior(sets)
    em_noise = _em_deviation_among_rows(sets, em, odds)
    every = np.arange(len(sets.counts))
    # Each row by itself, unless rows share sets in groups.
    single = Clusters(sets.sizes, np.ones_like(every), every, sets.counts, sets.of_row)
    average_noise = _average_deviation(sets, decision.clusters or single)
    rule: str = how
    if how == "auto":
        rule = {"independent": "sets", "unclear": "both"}.get(decision.regime, "average")
    if decision.regime == "known":
        estimate, deviation, lower, upper = average, np.zeros_like(average), average, average
    elif rule == "both":
        # EM and the average weigh by their precision; half of their distance is the bias of each.
        apart = np.abs(em - average)
        em_error, average_error = (
            float(noise @ noise + apart @ apart / 4) for noise in (em_noise, average_noise)
        )
        weight = average_error / max(em_error + average_error, 1e-300)
        estimate = weight * em + (1 - weight) * average
        deviation = (apart + em_noise + average_noise) / 2
        lower = np.minimum(em - width * em_noise, average - width * average_noise) - apart
        upper = np.maximum(em + width * em_noise, average + width * average_noise) + apart
    else:
        estimate, deviation = (em, em_noise) if rule == "sets" else (average, average_noise)
        lower, upper = estimate - width * deviation, estimate + width * deviation
    # A class is true in every row of which it is the only candidate, and only where it is a
    # candidate, unless sets lack the true label.
    single_rows, possible = sets.counts * (sets.sizes == 1), sets.appearances / sets.n
    least: Any = 0.0
    most: Any = 1.0
    if not np.any(missing):
        least, most = sets.sum_per_class(single_rows) / sets.n, possible
    return PriorEstimate(
        classes=candidates.classes,
        n=sets.n,
        estimate=estimate,
        lower=np.clip(lower, least, most),
        upper=np.clip(upper, least, most),
        regime=decision.regime,
        because=decision.because,
        evidence=decision.evidence,
        em=em,
        average=average,
        deviation=deviation,
        em_gap=gap,
        singletons=float(single_rows.sum()) / sets.n,
        width=float(width),
        how=how,
        seen=possible > 0,
    )


# ---- EM and the average, with their deviations -----------------------------------------------------


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
        likelihood = _set_likelihood(sets, prior, odds)
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


def _set_likelihood(sets: DistinctSets, prior: Array, odds: Array | float) -> Array:
    """How probable each distinct set is, up to a factor that the prior does not change."""
    found: Array = odds + (1 - odds) * (sets.matrix @ prior)
    return found


def average_prior(sets: DistinctSets) -> Array:
    """Estimate the class prior as the mean of uniform targets, (C,)."""
    return sets.sum_per_class(sets.counts / sets.sizes) / sets.n


def em_deviation(sets: DistinctSets, prior: Array, odds: Array | float = 0.0) -> Array:
    """Standard deviation of the EM estimate of each class around the true prior, from the curvature
    of the likelihood.
    """
    seen = np.flatnonzero(sets.appearances)
    if len(seen) > DEVIATION_CLASS_LIMIT:
        # That of class appearances is larger, but needs no matrix of classes.
        share = sets.appearances / sets.n
        rate = (sets.mean_size - 1) / (sets.n_classes - 1)
        return np.asarray(np.sqrt(share * (1 - share) / sets.n) / max(1 - rate, 1e-9))
    slopes = np.sqrt(sets.counts) * (1 - odds) / _set_likelihood(sets, prior, odds)
    scaled = sets.matrix.multiply(slopes[:, None]).tocsr()[:, seen]
    # The identity keeps the matrix invertible: a direction on which the sets carry no information
    # gets a deviation of 1, the whole range.
    inverse = np.linalg.inv((scaled.T @ scaled).toarray() + np.eye(len(seen)))
    along = inverse.sum(1)  # probabilities sum to one, which removes one direction
    deviation = np.zeros(len(prior))
    deviation[seen] = np.sqrt(np.maximum(np.diag(inverse) - along**2 / along.sum(), 0))
    return deviation


def _em_deviation_among_rows(sets: DistinctSets, em: Array, odds: Array | float) -> Array:
    """Standard deviations of the EM estimate around the shares among these rows.

    The variance of EM around the prior is that of the shares around the prior plus that of EM
    around the shares, and the latter is wanted. Half a row is added to each class, since the
    curvature of the likelihood says little where a share is estimated as zero.
    """
    interior = np.where(sets.appearances > 0, sets.n * em + 0.5, 0.0)
    interior /= interior.sum()
    variance = em_deviation(sets, interior, odds) ** 2 - interior * (1 - interior) / sets.n
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


def _average_deviation(sets: DistinctSets, clusters: Clusters) -> Array:
    """Standard deviations of the average uniform target, if rows share sets in groups.

    In a complete group of m rows and k labels, each label is true in at least one row, and all ways
    to divide the other m − k rows among the labels are equally likely. Missing rows add the
    variance of random removal: about twice as many are missing as labels without a row show, since
    rows to spare may be missing too.
    """
    k, m = clusters.sizes.astype(np.float64), clusters.rows.astype(np.float64)
    spare = np.maximum(m - k, 0)
    complete = spare * (k + spare) / (k + 1) * (k - 1) / k**2
    removed = m * (k - 1) / k**2
    missing = min(1.0, 2 * (1 - clusters.completeness))
    variance = np.where(m < k, removed, complete + missing * removed) * clusters.times
    per_set = np.bincount(clusters.of_set, variance, len(sets.counts)).astype(np.float64)
    return np.sqrt(sets.sum_per_class(per_set)) / sets.n
