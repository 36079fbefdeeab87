"""Audit: how good labels are, as the answers of people about some of the rows show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.formatting import counted

LEVEL = 0.95  # of intervals
RARE_SHARE = 1 / 3  # of the audit that asks about rare classes, if there are any
SEARCHED = 0.2  # of the rows, the most suspicious ones, in which sets without the truth are sought
PSEUDO = 2.0  # answers with the average result by which the variance of each stratum is smoothed
LEAST, MOST = 0.001, 0.999  # confidences beyond are the same to a recalibration
STEPS = 50  # of Newton's method
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


# ---- which rows are asked about ----------------------------------------------------------------


def spread_order(n: int, start: float) -> Numbers:
    """The numbers below n in an order of which every beginning is spread evenly over all of them.

    It is van der Corput's, shifted by `start`: if that is drawn from between 0 and 1, the first k
    numbers are a systematic sample, in which each number is with probability k / n.

    Examples:
        >>> spread_order(8, 0.0)
        array([0, 4, 2, 6, 1, 5, 3, 7])
    """
    bits = max(n - 1, 1).bit_length()
    places, steps = np.zeros(1 << bits), np.arange(1 << bits)
    for bit in range(bits):
        places += (steps >> bit & 1) / (2 << bit)
    numbers = ((places + start) % 1 * n).astype(np.int64)
    first = np.unique(numbers, return_index=True)[1]
    return np.asarray(numbers[np.sort(first)])


def is_rare(labels: Numbers) -> Flags:
    """Whether each row's label has at most half as many rows as labels have on average.

    Examples:
        >>> is_rare(np.array([0, 0, 0, 0, 1]))
        array([False, False, False, False,  True])
    """
    counts = np.bincount(labels)
    return np.asarray((2 * counts <= counts.sum() / max((counts > 0).sum(), 1))[labels])


def audit_order(labels: Numbers, confidence: npt.NDArray[np.floating], seed: int) -> Numbers:
    """All rows in the order in which a random audit asks about them; any beginning is a sample.

    A third of each beginning are rows of rare classes, which `is_rare` tells, as long as there are
    any. Rows of rare classes, and the others, are equally probable among themselves, and spread
    over classes and confidences.
    """
    rng, rare = np.random.default_rng(seed), is_rare(labels)
    # Confidences rise in one class and fall in the next, so that neighbours are alike.
    rising = np.where(labels % 2, -confidence, confidence)
    by_class = np.lexsort((rising, labels))
    rows, turns = [], []
    of_rare = max(RARE_SHARE, rare.mean())
    for stratum, share in ((rare, of_rare), (~rare, 1 - of_rare)):
        own = by_class[stratum[by_class]]
        rows.append(own[spread_order(len(own), rng.random())] if len(own) else own)
        turns.append((np.arange(len(own)) + rng.random()) / share)
    return np.asarray(np.concatenate(rows)[np.argsort(np.concatenate(turns), kind="stable")])


def ladder(n: int, questions: int, seed: int) -> tuple[Numbers, Floats]:
    """Ranks to ask about in a ranking of n rows, the first ranks most often.

    Returns:
        One rank of each rung of a ladder whose rungs become longer, and for each of the n ranks the
        probability with which it is asked about.

    Examples:
        >>> ladder(100, 3, seed=0)[1].round(2)[:8]
        array([0.5 , 0.5 , 0.2 , 0.2 , 0.2 , 0.2 , 0.2 , 0.08])
    """
    reach = min(n, max(questions, round(SEARCHED * n)))
    probability = np.zeros(n)
    if not reach or not questions:
        return np.zeros(0, dtype=np.int64), probability
    growth = (reach + 1) ** (np.arange(1, questions + 1) / questions) - 1
    ends = np.minimum(np.maximum(np.round(growth), np.arange(1, questions + 1)), reach)
    ends = np.unique(ends.astype(np.int64))
    lengths = np.diff(ends, prepend=0)
    probability[: ends[-1]] = np.repeat(1 / lengths, lengths)
    drawn = np.random.default_rng(seed).random(len(ends))
    return ends - lengths + (drawn * lengths).astype(np.int64), probability


# ---- what is estimated -------------------------------------------------------------------------


class Estimate(NamedTuple):
    """A share of rows, with an interval that holds it with a probability of 95 %."""

    share: float
    lower: float
    upper: float
    answers: int

    def __str__(self) -> str:
        interval = f"{self.lower:.1%} to {self.upper:.1%}"
        return f"{self.share:.1%} ({interval}, {counted(self.answers, 'answer')})"


def estimate_share(
    answers: Sequence[npt.NDArray[np.floating]], sizes: Sequence[int]
) -> Estimate | None:
    """Estimate the share of rows of which something is true, from samples of several strata.

    The interval is that of Clopper and Pearson with the effective number of answers, as Korn and
    Graubard propose. Variances of strata are smoothed towards that of all, since a small sample
    without a mistake does not show that there is none, and unequal weights never count as a gain.

    Args:
        answers: For each stratum, what was found in the rows of its sample: 0 or 1, or a share.
        sizes: For each stratum, its number of rows.

    Returns:
        The estimate, as if strata without answers were like the others; None without any answer.

    Examples:
        >>> print(estimate_share([np.array([1, 1, 1, 0]), np.ones(6)], [100, 900]))
        97.5% (57.0% to 100.0%, 10 answers)
    """
    strata = zip(answers, sizes, strict=True)
    known = [(len(found), found.sum(), size) for found, size in strata if len(found) and size]
    if not known:
        return None
    n, right, total = np.asarray(known, dtype=np.float64).T
    weight = total / total.sum()
    share = float(weight @ (right / n))
    average = (right.sum() + 0.5) / (n.sum() + 1)
    smooth = (right + PSEUDO * average) / (n + PSEUDO)
    left = weight**2 * (1 - np.minimum(n / total, 1)) / n  # nothing where every row was answered
    if not left.any():
        return Estimate(share, share, share, int(n.sum()))
    mean = float(weight @ smooth)
    effective = min(mean * (1 - mean) / float(left @ (smooth * (1 - smooth))), 1 / left.sum())
    return Estimate(share, *_bounds(share, float(effective)), int(n.sum()))


def _bounds(share: float, n: float) -> tuple[float, float]:
    """The interval of Clopper and Pearson for a share of n answers, which need not be whole."""
    from scipy.special import betaincinv  # importing it takes longer than most commands do

    right, tail = share * n, (1 - LEVEL) / 2
    lower = betaincinv(right, n - right + 1, tail) if right > 1e-9 else 0.0
    upper = betaincinv(right + 1, n - right, 1 - tail) if n - right > 1e-9 else 1.0
    return float(lower), float(upper)


def weighted_share(
    answers: npt.NDArray[np.floating], probability: npt.NDArray[np.floating]
) -> Estimate | None:
    """Estimate a share of rows that were asked about with different probabilities."""
    if not len(answers):
        return None
    weight = 1 / np.maximum(probability, 1e-9)
    share = float(weight @ answers / weight.sum())
    effective = float(weight.sum() ** 2 / (weight**2).sum())
    return Estimate(share, *_bounds(share, effective), len(answers))


def narrowing(
    answers: Sequence[npt.NDArray[np.floating]], sizes: Sequence[int], more: int = 20
) -> float:
    """By how much the interval of `estimate_share` is expected to narrow with more answers."""
    n = max(sum(map(len, answers)), 1)
    longer = [
        np.full(round(len(found) * (1 + more / n)), found.mean() if len(found) else 0.0)
        for found in answers
    ]
    now, later = estimate_share(answers, sizes), estimate_share(longer, sizes)
    if now is None or later is None:
        return 1.0
    return max(0.0, (now.upper - now.lower) - (later.upper - later.lower))


# ---- recalibration -----------------------------------------------------------------------------


class Prior(NamedTuple):
    """What a recalibration assumes before the first answer: normal distributions."""

    intercept: float
    intercept_spread: float
    slope: float
    slope_spread: float
    group_spread: float  # of what each group adds to the intercept


CONFIDENCES = Prior(0.0, 0.7, 1.0, 0.5, 1.0)
# Of a set that the classifiers contradict with odds of one to one, hardly any lacks the true label.
CONTRADICTIONS = Prior(-5.0, 2.0, 1.5, 0.7, 0.7)


def recalibrated(
    probability: npt.NDArray[np.floating],
    rows: Numbers,
    answers: npt.NDArray[np.floating],
    prior: Prior,
    groupings: Sequence[npt.NDArray[Any]] = (),
) -> Floats:
    """Probabilities that follow answers about some rows, and the prior where these are few.

    It is a logistic regression on the logit of a probability, with a slope that is not negative.
    For each group of each grouping, such as a class, the intercept has a term of its own, which is
    shrunk towards zero.

    Examples:
        >>> before, answered = np.array([0.6, 0.9, 0.9]), np.array([0])
        >>> recalibrated(before, answered, np.array([0.0]), CONFIDENCES).round(2)
        array([0.53, 0.86, 0.86])
    """
    from scipy.special import expit, logit

    scores = logit(np.clip(probability.astype(np.float64), LEAST, MOST))
    columns, widths = [np.ones(len(scores)), scores], [prior.intercept_spread, prior.slope_spread]
    for groups in groupings:
        named = np.unique(groups[rows])
        columns += [groups == name for name in named]
        widths += [prior.group_spread] * len(named)
    design = np.stack(columns, axis=1).astype(np.float64)
    mean, precision = np.zeros(len(columns)), 1 / np.square(widths)
    mean[:2] = prior.intercept, prior.slope
    found, seen = mean.copy(), design[rows]
    for _ in range(STEPS):
        expected = expit(seen @ found)
        gradient = seen.T @ (answers - expected) - precision * (found - mean)
        curvature = (seen.T * (expected * (1 - expected))) @ seen + np.diag(precision)
        step = np.linalg.solve(curvature, gradient)
        found += step / max(1.0, float(np.abs(step).max()))
        found[1] = max(found[1], 0.0)
        if np.abs(step).max() < 1e-8:
            break
    return np.asarray(expit(design @ found))
