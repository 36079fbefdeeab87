"""Audits: samples with known probabilities, intervals that hold the truth, recalibration."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import binomtest

from ltpll.evaluation.audit import (
    CONFIDENCES,
    audit_order,
    estimate_share,
    is_rare,
    ladder,
    narrowing,
    recalibrated,
    spread_order,
    weighted_share,
)


@pytest.mark.parametrize("n", [1, 2, 7, 8, 100, 129])
def test_an_order_has_every_number_once_and_its_beginnings_are_spread(n):
    order = spread_order(n, 0.37)
    assert sorted(order.tolist()) == list(range(n))
    for k in (1, 2, 4, 8, 16):
        if k <= n // 2:
            gaps = np.diff(np.sort(np.append(order[:k], order[:k].min() + n)))
            assert gaps.max() <= n / k + 1


def made_up(n=300, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(6), [150, 80, 40, 20, 7, 3])[:n]
    return labels, rng.random(n)


def test_rare_classes_are_those_with_at_most_half_as_many_rows_as_the_average():
    labels, _ = made_up()
    assert set(labels[is_rare(labels)].tolist()) == {3, 4, 5}


def test_a_third_of_an_audit_is_about_rare_classes_and_rows_of_a_stratum_are_equally_probable():
    labels, confidence = made_up()
    rare, times, draws = is_rare(labels), np.zeros(len(labels)), 2000
    for seed in range(draws):
        sample = audit_order(labels, confidence, seed)[:30]
        assert len(set(sample.tolist())) == 30
        assert abs(rare[sample].sum() - 10) <= 1
        times[sample] += 1
    for stratum, expected in ((rare, 10 / 30), (~rare, 20 / 270)):
        shares = times[stratum] / draws
        assert shares.mean() == pytest.approx(expected, rel=0.06)
        spread = np.sqrt(expected * (1 - expected) / draws)
        assert np.abs(shares - shares.mean()).max() < 5 * spread


def test_a_larger_audit_holds_the_smaller_one_and_all_rows_come_in_the_end():
    labels, confidence = made_up()
    order = audit_order(labels, confidence, 3)
    assert sorted(order.tolist()) == list(range(300))
    # The order does not depend on how many rows will be asked about, so beginnings are nested.
    assert np.bincount(labels[order[:40]], minlength=6)[:4].min() >= 2


def test_rungs_of_a_ladder_are_drawn_with_the_stated_probability():
    n, questions, times = 200, 8, np.zeros(200)
    for seed in range(3000):
        ranks, probability = ladder(n, questions, seed)
        times[ranks] += 1
    assert probability.sum() == pytest.approx(len(ranks))
    assert len(ranks) <= questions
    assert np.abs(times / 3000 - probability).max() < 0.05
    assert (np.diff(probability) <= 1e-12).all()
    assert probability[40:].max() == 0
    assert len(ladder(5, 0, 0)[0]) == len(ladder(0, 5, 0)[0]) == 0


@pytest.mark.parametrize(("right", "n"), [(0, 10), (10, 10), (7, 10), (95, 100), (1, 30)])
def test_the_interval_of_one_large_stratum_is_that_of_clopper_and_pearson(right, n):
    found = estimate_share([np.repeat([1.0, 0.0], [right, n - right])], [10**12])
    exact = binomtest(right, n).proportion_ci(0.95, method="exact")
    assert (found.share, found.answers) == (right / n, n)
    if right in (0, n):
        assert (found.lower, found.upper) == pytest.approx((exact.low, exact.high), abs=1e-6)
    else:  # as the variance is smoothed towards the average, the interval is a little wider
        assert found.lower <= exact.low + 1e-6
        assert found.upper >= exact.high - 1e-6
        assert found.upper - found.lower < 1.2 * (exact.high - exact.low)


@pytest.mark.parametrize("sizes", [(550, 50), (400, 200), (5000, 40)])
@pytest.mark.parametrize("n", [(20, 10), (67, 33), (7, 3)])
def test_intervals_hold_the_truth_in_at_least_93_percent_even_for_small_strata_and_rare_mistakes(
    sizes, n
):
    rng, draws = np.random.default_rng(1), 400
    for shares in [(1, 1), (1, 0.9), (0.99, 0.8), (0.95, 0.5), (0.9, 0.9), (0.7, 1), (0, 0)]:
        right = [round(size * share) for size, share in zip(sizes, shares, strict=True)]
        truth, held, seen = sum(right) / sum(sizes), 0, {}
        for _ in range(draws):
            counts = tuple(
                int(rng.hypergeometric(r, size - r, k))
                for r, size, k in zip(right, sizes, n, strict=True)
            )
            if counts not in seen:
                answers = [np.arange(k) < count for count, k in zip(counts, n, strict=True)]
                seen[counts] = estimate_share([one.astype(float) for one in answers], sizes)
            held += seen[counts].lower - 1e-9 <= truth <= seen[counts].upper + 1e-9
        assert held / draws >= 0.93, (shares, held / draws)


def test_a_stratum_whose_rows_are_all_answered_leaves_no_doubt():
    found = estimate_share([np.array([1.0, 0.0])], [2])
    assert (found.lower, found.share, found.upper) == (0.5, 0.5, 0.5)
    assert estimate_share([np.zeros(0)], [5]) is None
    half = estimate_share([np.ones(4), np.zeros(0)], [4, 4])  # the other stratum is not known
    assert half.share == 1


def test_strata_count_by_their_rows_and_not_by_their_answers():
    found = estimate_share([np.array([1.0, 0.0]), np.ones(8)], [900, 100])
    assert found.share == pytest.approx(0.55)


def test_answers_with_small_probabilities_stand_for_many_rows():
    answers, probability = np.array([1.0, 0.0, 1.0]), np.array([1.0, 0.1, 0.5])
    found = weighted_share(answers, probability)
    assert found.share == pytest.approx((1 + 2) / (1 + 10 + 2))
    assert found.lower < found.share < found.upper
    assert weighted_share(answers[:0], probability[:0]) is None


def test_more_answers_narrow_the_interval_less_and_less():
    gains = [narrowing([np.arange(n) % 10 > 0], [10**6]) for n in (10, 30, 100, 300, 3000)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 0.1
    assert gains[-1] < 0.01


def test_without_answers_confidences_stay_what_they_are_and_an_order_is_never_reversed():
    before = np.linspace(0.02, 0.98, 49)
    none = np.zeros(0, dtype=np.int64)
    assert recalibrated(before, none, np.zeros(0), CONFIDENCES) == pytest.approx(before)
    reversed_answers = (before < 0.5).astype(float)
    after = recalibrated(before, np.arange(49), reversed_answers, CONFIDENCES)
    assert (np.diff(after) >= -1e-12).all()


def test_recalibration_is_the_most_probable_logistic_regression_under_its_prior():
    rng = np.random.default_rng(0)
    before, groups = rng.uniform(0.05, 0.95, 200), rng.integers(0, 4, 200)
    rows = rng.permutation(200)[:60]
    answers = (rng.random(60) < before[rows] ** 2).astype(float)
    scores, prior = logit(before), CONFIDENCES

    def cost(found):
        of_group = np.zeros(4)
        of_group[:] = found[2:]
        expected = expit(found[0] + found[1] * scores[rows] + of_group[groups[rows]])
        likelihood = answers * np.log(expected) + (1 - answers) * np.log(1 - expected)
        distance = (found[0] - prior.intercept) ** 2 / prior.intercept_spread**2
        distance += (found[1] - prior.slope) ** 2 / prior.slope_spread**2
        return -likelihood.sum() + (distance + (of_group**2).sum() / prior.group_spread**2) / 2

    best = minimize(cost, [0, 1, 0, 0, 0, 0], method="BFGS", options={"gtol": 1e-8}).x
    expected = expit(best[0] + best[1] * scores + best[2:][groups])
    after = recalibrated(before, rows, answers, prior, [groups])
    assert after == pytest.approx(expected, abs=1e-5)
