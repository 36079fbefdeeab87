"""Describe: statistics of candidate sets, such as sizes, pairs of classes, ambiguity and estimates of the class prior."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import triu

from ltpll.analysis.bound import ambiguity_degree
from ltpll.candidates import Candidates
from ltpll.priors.distinct_sets import DistinctSets, distinct_sets
from ltpll.priors.set_priors import average_prior, em_deviation, em_prior

Array = npt.NDArray[np.float64]
Speaks = Literal["independent", "not independent", "co-occurrence", "neither"]

NOTICED_ERROR, LARGE_ERROR = 0.15, 0.3  # L1 error of a prior; a uniform prior has an error of about 1 on the paper's long tails


@dataclass(frozen=True)
class Pair:
    """Two classes: the number of sets that contain both, and the number expected if they joined sets independently."""

    classes: tuple[Hashable, Hashable]
    sets: int
    expected: float
    times: float


@dataclass(frozen=True)
class Pairs:
    """The most frequent of the `n` pairs of classes that share a set; `n_above` pairs do so more often than chance explains."""

    most_frequent: list[Pair]
    n: int
    n_above: int
    most_above: Pair | None


@dataclass(frozen=True)
class Estimate:
    """A class prior and its imbalance (largest over smallest), which is a lower bound if the smallest class is below one example.

    `error` is the L1 error if true labels are known. For EM, `low` to `high` is the range of the imbalance within two standard
    deviations (`high` is None if the smallest class may be empty), and `random_error` the L1 error expected from sampling alone.
    """

    prior: list[float]
    imbalance: float
    below_one_example: bool
    error: float | None
    low: float | None = None
    high: float | None = None
    random_error: float | None = None


@dataclass(frozen=True)
class Evidence:
    """A statistic of the sets next to its value, within `margin`, if wrong labels joined independently."""

    what: str
    observed: float
    independent: float
    margin: float
    speaks_for: Speaks


@dataclass(frozen=True)
class Verdict:
    """How the sets probably arose, and which estimate of the prior is therefore better."""

    regime: Literal["independent", "co-occurrence", "unclear", "known"]
    trust: Literal["em", "average"]
    certainty: Literal["sure", "fairly sure", "unsure"]
    because: str


@dataclass(frozen=True)
class Description:
    """The result of `describe`; lists over classes are in the order of `classes`.

    `em_gap` bounds how far the log-likelihood is from its maximum; above `TOLERANCE`, EM did not converge.
    """

    n_examples: int
    n_classes: int
    classes: tuple[Hashable, ...]
    appearances: list[int]
    mean_size: float
    size_counts: dict[int, int]
    pairs: Pairs
    wrong_label_rate: float
    ambiguity_degree: float | None
    ambiguity_bounds: tuple[float, float]
    distinct_sets: int
    recurring: float
    recurring_if_independent: float
    evidence: list[Evidence]
    verdict: Verdict
    em: Estimate
    em_gap: float
    average: Estimate
    class_counts: list[int] | None
    true_imbalance: float | None

    def record(self) -> dict[str, Any]:
        """All values in a dictionary that JSON can hold."""
        return asdict(self)


def describe(candidates: Candidates, labels: Sequence[int] | None = None, *, most_pairs: int = 10) -> Description:
    """Compute statistics of candidate sets.

    Args:
        candidates: The candidate sets.
        labels: True class numbers, if known; they add the ambiguity degree, class counts and the errors of the estimated priors.
        most_pairs: The number of most frequent pairs of classes to list.

    Returns:
        Sizes, pairs, ambiguity, two estimates of the class prior, and a verdict on which of the two to trust.

    Example:
        >>> describe(Candidates.of(["cat|fox", "dog", "cat"])).mean_size
        1.3333333333333333
    """
    sets = distinct_sets(candidates)
    n, n_classes = sets.n, candidates.n_classes
    truth = None if labels is None else np.bincount(np.asarray(labels), minlength=n_classes)
    together = co_occurrence(sets)
    found = pairs(sets, together, candidates.classes, most_pairs)
    prior, gap = em_prior(sets)
    em = _estimate(sets, prior, truth, em_deviation(sets, prior))
    expected, recurring = expected_repetition(sets, prior)
    evidence = [_repetition(len(sets.counts), expected), _fit(sets, prior), _dispersion(sets), _surplus(found)]
    sizes = np.bincount(sets.sizes, weights=sets.counts)
    return Description(
        n_examples=n,
        n_classes=n_classes,
        classes=candidates.classes,
        appearances=sets.appearances.astype(int).tolist(),
        mean_size=sets.mean_size,
        size_counts={int(size): int(sizes[size]) for size in np.flatnonzero(sizes)},
        pairs=found,
        wrong_label_rate=wrong_label_rate(sets),
        ambiguity_degree=None if labels is None else ambiguity_degree(candidates, list(labels)),
        ambiguity_bounds=ambiguity_bounds(sets, together),
        distinct_sets=len(sets.counts),
        recurring=float(sets.counts[sets.counts > 1].sum()) / n,
        recurring_if_independent=recurring,
        evidence=evidence,
        verdict=choose_regime(evidence, em.random_error, all_known=bool((sets.sizes == 1).all())),
        em=em,
        em_gap=gap,
        average=_estimate(sets, average_prior(sets), truth),
        class_counts=None if truth is None else truth.tolist(),
        true_imbalance=None if truth is None else float(truth.max() / truth[truth > 0].min()),
    )


# ---- sets and pairs ---------------------------------------------------------------------------------------------------


def co_occurrence(sets: DistinctSets) -> Any:
    """The number of rows whose sets contain both of two classes, a sparse (C, C) matrix."""
    return (sets.matrix.T @ sets.matrix.multiply(sets.counts[:, None]).tocsr()).tocsr()


def pairs(sets: DistinctSets, together: Any, classes: Sequence[Hashable], most: int) -> Pairs:
    """Count the pairs of classes that share sets, and list the `most` most frequent pairs.

    A pair is above chance if √count is too far from its expectation under independence, where it has a standard deviation of 1/2;
    the threshold keeps the probability of finding any such pair by chance below 1%.
    """
    upper = triu(together, k=1).tocoo()
    counts, expected = upper.data, sets.appearances[upper.row] * sets.appearances[upper.col] / sets.n
    above = np.flatnonzero(2 * (np.sqrt(counts) - np.sqrt(expected)) > math.sqrt(2 * math.log(100 * max(len(counts), 1))))

    def pair(i: int) -> Pair:
        a, b = int(upper.row[i]), int(upper.col[i])
        return Pair((classes[a], classes[b]), int(counts[i]), float(expected[i]), float(counts[i] / expected[i]))

    order = np.lexsort((upper.col, upper.row, -counts))[:most]
    most_above = pair(int(above[np.argmax(counts[above] / expected[above])])) if len(above) else None
    return Pairs([pair(int(i)) for i in order], len(counts), len(above), most_above)


def wrong_label_rate(sets: DistinctSets) -> float:
    """The average probability that a wrong label joins a set; no true labels are needed, since one label of every set is true."""
    return (sets.mean_size - 1) / (sets.n_classes - 1)


def ambiguity_bounds(sets: DistinctSets, together: Any) -> tuple[float, float]:
    """Lower and upper bounds on the ambiguity degree η (see `bound.ambiguity_degree`) that hold for any true labels.

    Lower: class b, true in a share π_b of the rows, is in a share p_b ≤ π_b + (1 − π_b) η of the sets. Summing over the k most
    frequent classes gives η ≥ (p_1 + … + p_k − 1) / (k − 1).
    Upper: at most n_ab examples of class a have b in their sets, and the rows with the set {a} are examples of a without b.
    """
    shares = np.sort(sets.appearances / sets.n)[::-1]
    low = float(((np.cumsum(shares)[1:] - 1) / np.arange(1, len(shares))).max())
    certain = sets.per_class(sets.counts * (sets.sizes == 1))
    entries = together.tocoo()
    other = entries.row != entries.col
    shared = entries.data[other]
    high = float((shared / (shared + certain[entries.row[other]])).max(initial=0.0))
    return max(low, 0.0), high


# ---- the class prior --------------------------------------------------------------------------------------------------


def _estimate(sets: DistinctSets, prior: Array, truth: npt.NDArray[Any] | None, deviation: Array | None = None) -> Estimate:
    """The imbalance of a prior; classes that are never a candidate do not count."""
    seen, one = sets.appearances > 0, 1 / sets.n
    largest, smallest = float(prior.max()), float(prior[seen].min())
    estimate = Estimate(
        prior=prior.tolist(),
        imbalance=largest / max(smallest, one),
        below_one_example=smallest < one * (1 - 1e-9),
        error=None if truth is None else float(np.abs(prior - truth / sets.n).sum()),
    )
    if deviation is None:
        return estimate
    least = float((prior - 2 * deviation)[seen].min())
    return replace(
        estimate,
        low=max(1.0, largest / max(float((prior + 2 * deviation)[seen].min()), one)),
        high=largest / least if least > one else None,
        random_error=min(2.0, math.sqrt(2 / math.pi) * float(deviation.sum())),
    )


# ---- where the sets come from -----------------------------------------------------------------------------------------


def expected_repetition(sets: DistinctSets, prior: Array, draws: int = 4_000) -> tuple[float, float]:
    """The expected number of distinct sets, and share of rows whose set recurs, if wrong labels were drawn uniformly.

    Given the observed sizes, a set S of k labels has the probability P(S) = P(k) · π(S) / (C−1 choose k−1). Both results are means over
    sets drawn with this probability: of (1 − (1 − P)^N) / P and of 1 − (1 − P)^(N−1).
    """
    n, n_classes = sets.n, sets.n_classes
    rng = np.random.default_rng(0)
    draws = int(np.clip(4_000_000 // n_classes, 200, draws))
    shares = np.bincount(sets.sizes, weights=sets.counts, minlength=n_classes + 1) / n
    size = rng.choice(n_classes + 1, draws, p=shares)
    order = rng.random((draws, n_classes))
    order[np.arange(draws), rng.choice(n_classes, draws, p=prior)] = -1.0  # the true label always comes first
    mass = np.cumsum(prior[order.argsort(axis=1)], axis=1)[np.arange(draws), size - 1]
    ways = np.asarray([math.lgamma(n_classes) - math.lgamma(k) - math.lgamma(n_classes - k + 1) for k in range(1, n_classes + 1)])
    probability = np.minimum(np.exp(np.log(shares[size]) + np.log(mass) - ways[size - 1]), 1 - 1e-12)
    never = np.log1p(-probability)
    rare = probability < 1e-9 / n
    distinct = np.where(rare, n, -np.expm1(n * never) / np.where(rare, 1.0, probability))
    return float(distinct.mean()), float(-np.expm1((n - 1) * never).mean())


def _repetition(observed: int, expected: float) -> Evidence:
    """If the objects of an image share a set, there are far fewer distinct sets than independent wrong labels would give."""
    margin = 2 * math.sqrt(expected)
    speaks: Speaks = "neither"
    if observed < expected / 2 and observed < expected - margin:
        speaks = "co-occurrence"
    elif observed > 0.85 * expected:
        speaks = "independent"
    return Evidence("distinct sets", observed, expected, margin, speaks)


def _dispersion(sets: DistinctSets) -> Evidence:
    """Independent wrong labels give binomial set sizes; the margin is two standard deviations of their variance."""
    observed = float((sets.sizes - sets.mean_size) ** 2 @ sets.counts) / sets.n
    rate = wrong_label_rate(sets)
    noise = rate * (1 - rate)
    variance = (sets.n_classes - 1) * noise
    if variance < 1e-9:
        return Evidence("variance of set sizes", observed, 0.0, 0.0, "neither")
    margin = 2 * variance * math.sqrt((2 + (1 - 6 * noise) / variance) / sets.n)
    speaks: Speaks = "independent" if abs(observed - variance) <= 1.5 * margin else "not independent"
    return Evidence("variance of set sizes", observed, variance, margin, "neither" if margin > variance / 2 else speaks)


def _fit(sets: DistinctSets, prior: Array) -> Evidence:
    """Under independence, class j is in a share q + (1 − q) π_j of the sets; the L1 distance is compared with sampling noise."""
    shares = sets.appearances / sets.n
    rate = wrong_label_rate(sets)
    distance = float(np.abs(rate + (1 - rate) * prior - shares).sum())
    noise = float(np.sqrt(2 / math.pi * shares * (1 - shares).clip(0) / sets.n).sum())
    speaks: Speaks = "independent" if distance <= noise + 1e-9 else "not independent" if distance > 2 * noise else "neither"
    return Evidence("misfit of class shares", distance, 0.0, noise, speaks)


def _surplus(found: Pairs) -> Evidence:
    return Evidence("pairs above chance", found.n_above, 0.0, 0.0, "not independent" if found.n_above else "independent")


def choose_regime(evidence: Sequence[Evidence], random_error: float | None, *, all_known: bool = False) -> Verdict:
    """Distinct sets and the fit decide; sizes and pairs only lower the certainty, since EM is correct for uniform sets of any size."""
    if all_known:
        return Verdict("known", "average", "sure", "every set has a single label, so both estimates equal the class counts")
    repetition, fit, dispersion, surplus = (item.speaks_for for item in evidence)
    if repetition == "co-occurrence":
        because = "the same sets recur far more often than they would with independent wrong labels"
        if fit == "independent":
            return Verdict("co-occurrence", "average", "unsure", f"{because}, although EM fits how often each class appears")
        return Verdict("co-occurrence", "average", "sure" if fit == "not independent" else "fairly sure", because)
    if repetition == fit == "independent":
        because = "sets are as varied, and classes appear as often, as expected with independent wrong labels"
        if random_error is not None and random_error > LARGE_ERROR:
            return Verdict("independent", "em", "unsure", f"{because}, but there are too few examples for so many labels")
        if "not independent" in (dispersion, surplus):
            what = "some pairs are too frequent" if surplus == "not independent" else "set sizes do not fit independent labels"
            return Verdict("independent", "em", "fairly sure", f"{because}; however, {what}")
        if random_error is None or random_error > NOTICED_ERROR:
            return Verdict("independent", "em", "fairly sure", f"{because}; however, there are few examples for so many labels")
        return Verdict("independent", "em", "sure", because)
    if repetition == "independent":
        because = "sets are as varied as expected with independent wrong labels, but some classes join more often than others"
        return Verdict("unclear", "em", "unsure", because)
    return Verdict("unclear", "average", "unsure", "sets recur somewhat more often than they would with independent wrong labels")
