"""The estimated prior: the regime, and how often bounds hold, over sets of many origins."""

import json
import time

import numpy as np
import pytest

import ltpll
from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.priors import estimate, estimate_prior
from ltpll.priors.distinct_sets import distinct_sets
from ltpll.priors.estimate import average_prior, em_prior
from ltpll.synthetic import superclass_candidates, top_k_candidates, uniform_candidates
from ltpll_research.set_origins import crowd_candidates, grouped_candidates, neighbour_candidates


def long_tail(n, n_classes, imbalance, seed):
    prior = imbalance ** -np.linspace(0, 1, n_classes)
    return np.random.default_rng(seed).choice(n_classes, n, p=prior / prior.sum())


def shares(labels, n_classes):
    return np.bincount(labels, minlength=n_classes) / len(labels)


def error(estimate, labels):
    return float(np.abs(estimate - shares(labels, len(estimate))).sum())


def within(found, labels):
    truth = shares(labels, len(found.classes))
    return ((truth >= found.lower - 1e-12) & (truth <= found.upper + 1e-12))[found.seen]


def pictures_of_scenes(n=600, n_classes=12, seed=0):
    """Each picture shows a few usual objects, and every object gets the picture's set."""
    rng = np.random.default_rng(seed)
    scenes = rng.dirichlet(np.full(n_classes, 0.3), 10) * 0.7 ** np.arange(n_classes)
    scenes /= scenes.sum(1, keepdims=True)
    sets, labels = [], []
    for scene in rng.integers(0, len(scenes), n):
        objects = rng.choice(n_classes, 2 + rng.poisson(2), p=scenes[scene]).tolist()
        sets += [set(objects)] * len(objects)
        labels += objects
    return Candidates.of(sets, n_classes=n_classes), np.asarray(labels)


# ---- the regime ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_classes", "ambiguity"), [(10, 0.1), (10, 0.6), (40, 0.1)])
def test_independent_wrong_labels_are_recognised_and_em_is_the_estimate(n_classes, ambiguity):
    labels = long_tail(2000, n_classes, 20, seed=0)
    candidates = uniform_candidates(labels, n_classes, ambiguity, seed=0)
    found = estimate_prior(candidates)
    assert found.regime == "independent"
    np.testing.assert_array_equal(found.estimate, em_prior(distinct_sets(candidates))[0])
    assert error(found.em, labels) < error(found.average, labels)


@pytest.mark.parametrize("kept", [1.0, 0.8])
@pytest.mark.parametrize("seed", range(3))
def test_pictures_in_the_order_of_a_file_are_recognised_and_the_average_is_the_estimate(kept, seed):
    candidates, labels = pictures_of_scenes(seed=seed)
    rows = np.flatnonzero(np.random.default_rng(seed).random(len(labels)) < kept)
    candidates, labels = candidates.select(rows), labels[rows]
    found = estimate_prior(candidates)
    assert found.regime == "co-occurrence"
    np.testing.assert_array_equal(found.estimate, average_prior(distinct_sets(candidates)))
    assert error(found.average, labels) < error(found.em, labels) / 2


def test_ordered_classes_with_neighbours_as_candidates_are_not_taken_for_independent():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(70), 14))
    found = estimate_prior(neighbour_candidates(labels, 70, seed=0))
    assert found.regime == "unclear"
    assert error(found.em, labels) > 0.6
    assert (
        error(found.estimate, labels) < 0.3
    )  # EM is so imprecise here that the average has most of the weight
    assert within(found, labels).mean() > 0.95


@pytest.mark.parametrize("order", ["drawn", "by class", "by set"])
@pytest.mark.parametrize("origin", ["crowd", "superclass", "top-k", "neighbours"])
def test_sets_of_other_origins_are_unclear_in_any_order(origin, order):
    labels = long_tail(1500, 20, 10, seed=1)
    candidates = {
        "crowd": lambda: crowd_candidates(labels, 20, seed=1),
        "superclass": lambda: superclass_candidates(labels, np.arange(20) // 5, 0.05, seed=1),
        "top-k": lambda: top_k_candidates(labels, 20, 3, seed=1),
        "neighbours": lambda: neighbour_candidates(labels, 20, seed=1, reach=1),
    }[origin]()
    keys = {
        "drawn": range(1500),
        "by class": labels,
        "by set": [tuple(candidates.row(i)) for i in range(1500)],
    }[order]
    found = estimate_prior(candidates.select(sorted(range(1500), key=keys.__getitem__)))
    assert found.regime == "unclear"
    apart = found.em - found.average
    weights = (found.estimate - found.average)[np.abs(apart) > 1e-6] / apart[np.abs(apart) > 1e-6]
    np.testing.assert_allclose(weights, weights[0], rtol=1e-6)
    assert 0 < weights[0] <= 0.5
    for inner in (found.em, found.average):
        assert (found.lower <= inner + 1e-12).all()
        assert (found.upper >= inner - 1e-12).all()


def test_groups_settle_the_regime_whatever_the_order():
    candidates, _ = grouped_candidates(60, np.ones(5), seed=0)
    rows = np.random.default_rng(0).permutation(len(candidates))
    shuffled = candidates.select(rows)
    assert estimate_prior(shuffled).regime == "co-occurrence"
    assert estimate_prior(shuffled.with_groups(None)).regime != "co-occurrence"


def test_groups_that_do_not_share_sets_are_said_not_to_and_the_tests_decide():
    labels = long_tail(800, 10, 5, seed=0)
    found = estimate_prior(
        uniform_candidates(labels, 10, 0.3, seed=0).with_groups(np.arange(800) // 4)
    )
    assert found.regime == "independent"
    assert found.because.startswith("rows of a group do not share one set; ")


def test_groups_with_fewer_rows_than_labels_do_not_mean_co_occurrence():
    sets = [[0, 1, 2, 3, 4]] * 2 + [[1, 2, 3, 5, 6]] * 2 + [[0, 4, 5, 6, 7]] * 2
    found = estimate_prior(Candidates.of(sets * 10, groups=np.repeat(np.arange(30), 2)))
    assert found.regime != "co-occurrence"
    assert "fewer rows than labels" in found.because


def test_sets_that_cannot_be_tested_are_unclear():
    found = estimate_prior(Candidates.of([[0], [1], [0, 1], [0, 1]] * 10))
    assert found.regime == "unclear"
    assert "cannot show" in found.because
    assert estimate_prior(Candidates.from_matrix(np.ones((50, 4), int))).regime == "unclear"


# ---- estimate and bounds -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_classes", "ambiguity", "imbalance", "n"),
    [(4, 0.3, 10, 200), (10, 0.1, 100, 400), (10, 0.5, 100, 600), (30, 0.3, 20, 300)],
)
def test_bounds_of_independent_sets_hold_for_95_percent_of_the_classes(
    n_classes, ambiguity, imbalance, n
):
    held, tail = [], []
    for seed in range(20):
        labels = long_tail(n, n_classes, imbalance, seed)
        found = estimate_prior(
            uniform_candidates(labels, n_classes, ambiguity, seed=seed), how="sets"
        )
        inside = (shares(labels, n_classes) >= found.lower - 1e-12) & (
            shares(labels, n_classes) <= found.upper + 1e-12
        )
        held.append(inside.mean())
        tail.append(inside[n_classes // 2 :].mean())
    assert np.mean(held) > 0.93
    assert np.mean(tail) > 0.93  # where estimates are near zero


@pytest.mark.parametrize("kept", [1.0, 0.8])
def test_bounds_of_grouped_sets_hold_for_95_percent_of_the_classes_if_objects_are_exchangeable(
    kept,
):
    held = []
    for seed in range(20):
        candidates, labels = grouped_candidates(150, np.ones(10), seed=seed, repeats=1.0)
        rows = np.flatnonzero(np.random.default_rng(seed).random(len(labels)) < kept)
        found = estimate_prior(candidates.select(rows))
        assert found.regime == "co-occurrence"
        held.append(within(found, labels[rows]).mean())
    assert 0.92 < np.mean(held) < 0.995


def test_bounds_tighten_with_the_width_and_never_leave_what_is_possible():
    labels = long_tail(400, 8, 20, seed=0)
    candidates = uniform_candidates(labels, 8, 0.3, seed=0)
    narrow, wide = (estimate_prior(candidates, width=width) for width in (1, 3))
    assert (wide.lower <= narrow.lower).all()
    assert (wide.upper >= narrow.upper).all()
    rows = [candidates.row(i) for i in range(400)]
    for c in range(8):
        assert wide.lower[c] >= sum(row == [c] for row in rows) / 400 - 1e-12
        assert wide.upper[c] <= sum(c in row for row in rows) / 400 + 1e-12
    point = estimate_prior(candidates, width=0)
    np.testing.assert_array_equal(point.lower, point.upper)


def test_known_labels_are_counted():
    found = estimate_prior(Candidates.of([[0]] * 6 + [[1]] * 3 + [[3]] * 2, n_classes=4))
    assert found.regime == "known"
    for values in (found.estimate, found.lower, found.upper):
        np.testing.assert_allclose(values, np.asarray([6, 3, 0, 2]) / 11)
    assert found.imbalance == pytest.approx(3)
    assert found.singletons == 1


@pytest.mark.parametrize("how", ["auto", "sets", "average"])
def test_a_class_that_is_never_a_candidate_has_no_share(how):
    found = estimate_prior(Candidates.of([{0}, {0}, {0, 2}, {2}, {2, 4}], n_classes=6), how=how)
    for values in (found.estimate, found.lower, found.upper):
        assert values[[1, 3, 5]].tolist() == [0, 0, 0]
    assert found.seen.tolist() == [True, False, True, False, True, False]


def test_the_estimate_can_be_chosen():
    candidates = uniform_candidates(long_tail(300, 5, 5, seed=0), 5, 0.4, seed=0)
    np.testing.assert_array_equal(
        estimate_prior(candidates, how="average").estimate, average_prior(distinct_sets(candidates))
    )
    np.testing.assert_array_equal(
        estimate_prior(candidates, how="sets").estimate, em_prior(distinct_sets(candidates))[0]
    )
    with pytest.raises(InputError, match="auto, sets, average"):
        estimate_prior(candidates, how="best")
    with pytest.raises(InputError, match="width is -1"):
        estimate_prior(candidates, width=-1)


def test_bounds_of_very_many_classes_are_wider_and_need_no_matrix_of_classes(monkeypatch):
    labels = long_tail(2000, 30, 10, seed=0)
    candidates = uniform_candidates(labels, 30, 0.1, seed=0)
    exact = estimate_prior(candidates)
    monkeypatch.setattr(estimate, "DEVIATION_CLASS_LIMIT", 10)
    rough = estimate_prior(candidates)
    assert (rough.deviation > 0.95 * exact.deviation).all()
    assert rough.deviation.sum() < 2 * exact.deviation.sum()
    assert within(rough, labels).mean() > 0.9


def test_a_record_is_json_and_a_text_names_the_classes():
    found = ltpll.estimate_prior(Candidates.of(["cat|dog", "dog", "cat|fox", "fox"] * 5))
    assert isinstance(found, ltpll.PriorEstimate)
    record = json.loads(json.dumps(found.as_record(), allow_nan=False))
    assert record["classes"] == ["cat", "dog", "fox"]
    assert record["estimate"] == found.estimate.tolist()
    assert record["regime"] == found.regime
    assert len(record["evidence"]) == len(found.evidence)
    assert "cat" in str(found)
    assert found.regime in str(found)


def test_many_sparse_sets_take_seconds():
    rng = np.random.default_rng(0)
    n, n_classes = 60_000, 400
    numbers = np.concatenate(
        [long_tail(n, n_classes, 50, seed=0)[:, None], rng.integers(0, n_classes, (n, 4))], axis=1
    )
    candidates = Candidates.from_flat(np.arange(n + 1) * 5, numbers.ravel(), n_classes)
    start = time.perf_counter()
    assert estimate_prior(candidates).regime == "independent"
    assert time.perf_counter() - start < 20


def test_classes_that_are_nowhere_candidates_do_not_speak_against_independence():
    labels = np.repeat(np.arange(5), [200, 100, 50, 25, 12])
    sets = uniform_candidates(labels, 5, 0.4, seed=0)
    wider = Candidates.of([sets.row(i) for i in range(len(labels))], n_classes=9)
    assert estimate_prior(wider).regime == estimate_prior(sets).regime == "independent"


def test_the_centre_is_the_mean_of_a_normal_distribution_that_is_cut_off_at_zero():
    found = estimate_prior(
        uniform_candidates(np.repeat(np.arange(5), [200, 100, 50, 5, 1]), 5, 0.6, seed=3)
    )
    rng = np.random.default_rng(0)
    means = []
    for middle, deviation in zip(found.estimate, found.deviation, strict=True):
        drawn = rng.normal(middle, deviation, 400_000)
        means.append(drawn[(drawn > 0) & (drawn < 1)].mean())
    np.testing.assert_allclose(found.centre, np.asarray(means) / sum(means), atol=2e-3)
    assert (found.centre > 0).all()
    known = estimate_prior(Candidates.of([[0], [0], [1]]))
    np.testing.assert_array_equal(known.centre, known.estimate)


# ---- sets that lack the true label ---------------------------------------------------------------


def lacking_sets(n, share, seed, n_classes=6, q=0.4):
    """Long-tailed labels, independent wrong labels, and the shares of sets without the true one."""
    rng = np.random.default_rng(seed)
    true = np.geomspace(1, 0.1, n_classes)
    y = rng.choice(n_classes, n, p=true / true.sum())
    sets = rng.random((n, n_classes)) < q
    sets[np.arange(n), y] = rng.random(n) >= share
    rows = sets.any(1)
    sets, y = sets[rows], y[rows]
    lacks, sizes = ~sets[np.arange(len(y)), y], sets.sum(1)
    by_size = [
        float(lacks[sizes == k].mean()) if (sizes == k).any() else 0.0 for k in range(n_classes + 1)
    ]
    return Candidates.from_matrix(sets), np.bincount(y, minlength=n_classes) / len(y), by_size


def test_with_missing_labels_em_equals_a_plain_loop():
    candidates, _, by_size = lacking_sets(300, 0.3, seed=0)
    found = estimate_prior(candidates, how="sets", missing=by_size)
    matrix = np.empty((len(candidates), 6))
    for i in range(len(candidates)):
        row = candidates.row(i)
        k = len(row)
        matrix[i] = by_size[k] / (1 - by_size[k]) * k / (6 - k) if k < 6 else 0.0
        matrix[i, row] = 1.0
    prior = np.full(6, 1 / 6)
    for _ in range(20_000):
        weights = matrix * prior
        prior = (weights / weights.sum(1, keepdims=True)).mean(0)
    np.testing.assert_allclose(found.em, prior, atol=2e-3)


def test_shares_are_found_and_bounded_although_sets_lack_the_true_label():
    inside, errors, without = [], [], []
    for seed in range(4):
        candidates, true, by_size = lacking_sets(2000, 0.3, seed)
        found = estimate_prior(candidates, missing=by_size)
        assert found.regime == "independent"
        inside.append((found.lower <= true) & (true <= found.upper))
        errors.append(np.abs(found.estimate - true).sum())
        without.append(np.abs(estimate_prior(candidates, how="sets").estimate - true).sum())
    assert np.mean(inside) > 0.9
    assert np.mean(errors) < 0.65 * np.mean(without)


def test_sets_may_be_given_in_every_form_that_candidates_take():
    cells = ["cat|dog", "dog|cow", "cat|fox|cow", "fox", "cat", "cow", "dog|fox"] * 3
    np.testing.assert_array_equal(
        estimate_prior(cells).estimate, estimate_prior(Candidates.of(cells)).estimate
    )


def test_equal_sets_are_estimated_once_and_others_anew():
    labels = np.arange(300) % 3
    sets = uniform_candidates(labels, 4, 0.3, seed=0)
    found = estimate_prior(sets)
    assert estimate_prior(sets.select(np.arange(300))) is found
    groups = (np.arange(300) // 2).tolist()
    others = [sets.select(np.arange(299)), uniform_candidates(labels, 4, 0.3, seed=1)]
    for other in [*others, sets.with_groups(groups)]:
        assert estimate_prior(other) is not found
    for options in ({"how": "average"}, {"width": 1.0}, {"missing": 0.1}):
        assert estimate_prior(sets, **options) is not found
    estimate._remembered.clear()
    np.testing.assert_array_equal(estimate_prior(sets).estimate, found.estimate)
