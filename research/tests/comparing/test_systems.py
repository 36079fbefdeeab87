"""What is compared with what: problems, systems, and paired differences over seeds."""

import numpy as np
import pytest

from ltpll_research.comparing.systems import compare_systems
from support.refusals import refusal


def image_run(seed, accuracy, method="corr", rebalancer="none", posthoc=None, **settings):
    rows = {"test": accuracy} | (posthoc or {})
    return {
        "key": f"{method}-{rebalancer}-{seed}-{sorted(settings.items())}",
        "config": {
            **{"experiment": "images", "data": "cifar10", "imbalance": 100.0},
            **{"method": method, "rebalancer": rebalancer, "extras": [], "seed": seed},
            **settings,
        },
        "posthoc": list(posthoc or {}),
        "last": {
            **{name: {"balanced_accuracy": one, "few": None} for name, one in rows.items()},
            "target_recovery": accuracy / 2,
        },
        "best": {name: {name: {"balanced_accuracy": one + 0.1}} for name, one in rows.items()},
    }


def table_run(seed, recovered, method="corr", **settings):
    return {
        "key": f"{method}-{seed}",
        "config": {
            **{"experiment": "own", "data": {"fingerprint": "f"}, "method": method},
            **{"rebalancer": "auto", "extras": [], "seed": seed},
            **settings,
        },
        "source": {"table": "some/birds.csv"},
        "last": {"test": {"accuracy": recovered - 0.2, "covering_rate": 1.0}},
        "recovered": recovered,
    }


BARE, LIFTED = (0.40, 0.50, 0.48), (0.60, 0.65, 0.58)
RUNS = [
    run
    for seed in range(3)
    for run in (
        image_run(seed, LIFTED[seed], rebalancer="records"),
        image_run(seed, BARE[seed], posthoc={"mean-target": 0.55}),
    )
]


def labels(problem):
    return [system.label for system in problem.systems]


def test_gains_are_paired_by_seed_with_the_standard_error_of_their_mean():
    (problem,) = compare_systems(RUNS)
    assert labels(problem) == ["corr", "corr + mean-target", "corr + records"]
    gains = 100 * (np.asarray(LIFTED) - BARE)
    error = gains.std(ddof=1) / np.sqrt(3)
    assert [problem.gain(system) for system in problem.systems][::2] == [
        "reference",
        f"{gains.mean():+.1f} ± {error:.1f}",
    ]
    figure = problem.systems[2].figure("balanced")
    assert (figure.mean, figure.std) == pytest.approx((np.mean(LIFTED), np.std(LIFTED, ddof=1)))


def test_seeds_that_only_one_of_two_systems_has_do_not_count_in_their_difference():
    (problem,) = compare_systems(RUNS[:5])
    assert problem.gain(problem.systems[2]).endswith("(n = 2)")
    (problem,) = compare_systems(RUNS[:3])
    assert problem.gain(problem.systems[2]) == "–"  # one pair has no error


def test_every_method_is_compared_with_itself_without_rebalancing_unless_told_otherwise():
    others = [image_run(seed, 0.3, method="proden") for seed in range(3)]
    others += [image_run(seed, 0.7, method="proden", rebalancer="records") for seed in range(3)]
    (problem,) = compare_systems(RUNS + others)
    gains = {system.label: problem.gain(system) for system in problem.systems}
    assert gains["proden"] == gains["corr"] == "reference"
    assert gains["proden + records"] == "+40.0 ± 0.0"
    (problem,) = compare_systems(RUNS + others, "proden + records")
    gains = {system.label: problem.gain(system) for system in problem.systems}
    assert gains["proden"] == "−40.0 ± 0.0"
    assert gains["proden + records"] == "reference"
    assert "choose one of corr" in refusal(lambda: compare_systems(RUNS, "cor"))


def test_settings_of_the_data_make_problems_and_all_others_systems():
    runs = [
        image_run(0, 0.5, imbalance=rho, lr=lr, precision="float32")
        for rho in (10.0, 100.0)
        for lr in (0.1, 0.2)
    ]
    problems = compare_systems(runs)
    assert [one.title for one in problems] == ["cifar10, imbalance 10", "cifar10, imbalance 100"]
    assert [labels(one) for one in problems] == [["corr, lr 0.1", "corr, lr 0.2"]] * 2


def test_runs_on_tables_are_compared_by_what_they_measured():
    runs = [
        table_run(seed, 0.9 + seed / 100, method) for seed in (0, 1) for method in ("corr", "lw")
    ]
    (problem,) = compare_systems([*runs, table_run(0, 0.95, learner="committee")])
    assert problem.title == "birds.csv"
    assert problem.measures == ["accuracy", "recovered"]
    assert labels(problem) == ["committee", "corr + auto, learner committee", "lw + auto"] or set(
        labels(problem)
    ) == {"committee, learner committee", "corr + auto", "lw + auto"}
    assert problem.systems[1].text("recovered") == "90.5 ± 0.7"


def test_runs_without_any_figure_are_refused():
    run = table_run(0, 0.9)
    del run["recovered"], run["last"]["test"]
    assert "Nothing was measured on birds.csv" in refusal(lambda: compare_systems([run]))


def test_the_same_run_twice_is_refused_by_name():
    twice = [dict(RUNS[0], key=key) for key in ("a1", "b2")]
    assert "a1 and b2" in refusal(lambda: compare_systems(twice))
