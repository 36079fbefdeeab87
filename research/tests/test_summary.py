import numpy as np
import pytest

from ltpll.errors import InputError
from ltpll_research.summary import Figure, paired, rows


def record(method, rebalancer, seed, accuracy, posthoc=None):
    made = {
        "config": {"method": method, "rebalancer": rebalancer, "seed": seed},
        "posthoc": list(posthoc or {}),
        "last": {
            "test": {"balanced_accuracy": accuracy, "few": None},
            "target_recovery": accuracy / 2,
        },
        "best": {"test": {"test": {"balanced_accuracy": accuracy + 0.1}}},
    }
    for name, value in (posthoc or {}).items():
        made["last"][name] = {"balanced_accuracy": value}
    return made


RECORDS = [
    record("corr", "none", 0, 0.4, {"oracle-la-posthoc": 0.45}),
    record("corr", "records", 0, 0.6),
    record("corr", "none", 1, 0.5, {"oracle-la-posthoc": 0.51}),
    record("corr", "records", 1, 0.65),
]


def test_rows_group_by_method_and_rebalancer_and_posthoc_follows_its_run():
    assert [(row.label, row.n) for row in rows(RECORDS)] == [
        ("corr", 2),
        ("corr + oracle-la-posthoc", 2),
        ("corr + records", 2),
    ]


def test_figures_are_the_mean_and_the_sample_standard_deviation():
    figure = rows(RECORDS)[0].last("balanced_accuracy")
    assert figure.mean == pytest.approx(np.mean([0.4, 0.5]))
    assert figure.std == pytest.approx(np.std([0.4, 0.5], ddof=1))
    assert figure.percent() == "45.0 ± 7.1"
    assert rows(RECORDS)[0].best().mean == pytest.approx(0.55)
    assert rows(RECORDS)[0].target_recovery.mean == pytest.approx(0.225)


def test_one_run_has_no_spread_and_no_value_is_no_figure():
    assert Figure.of([0.5]) == Figure(0.5, None, 1)
    assert Figure.of([0.5]).percent() == "50.0"
    assert Figure.of([None, None]) is None
    assert rows(RECORDS)[0].last("few") is None


def test_differences_are_paired_by_seed():
    none, _, records = rows(RECORDS)

    def accuracy(record, key):
        return record["last"][key]["balanced_accuracy"]

    figure = paired(records, none, accuracy)
    gains = np.asarray([0.6 - 0.4, 0.65 - 0.5])
    assert (figure.mean, figure.n) == (pytest.approx(gains.mean()), 2)
    assert figure.std == pytest.approx(gains.std(ddof=1))
    assert paired(records, rows(RECORDS[:1])[0], accuracy).n == 1  # seed 0 is all that both have
    assert paired(records, rows(RECORDS[2:3])[0], lambda record, key: None) is None


def test_runs_of_another_setting_make_rows_of_their_own():
    longer = [record("corr", "records", seed, 0.9) for seed in (0, 1)]
    for one in longer:
        one["config"]["epochs"] = 800
    assert [row.n for row in rows([*RECORDS, *longer])] == [2, 2, 2, 2]


def test_a_posthoc_adjustment_of_a_rebalanced_run_is_not_mixed_with_that_of_a_bare_one():
    both = record("corr", "records", 2, 0.6, {"oracle-la-posthoc": 0.7})
    assert [row.label for row in rows([*RECORDS, both])] == [
        "corr",
        "corr + oracle-la-posthoc",
        "corr + records",
        "corr + records + oracle-la-posthoc",
    ]


def test_one_seed_twice_in_a_row_is_refused_by_name():
    twice = [{**record("corr", "none", 0, 0.4), "key": key} for key in ("a1", "b2")]
    with pytest.raises(InputError, match=r"a1 and b2 .* seed 0"):
        rows(twice)
