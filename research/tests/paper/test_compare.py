"""Our runs compared with the paper's numbers."""

import pytest

from ltpll.methods import METHODS
from ltpll_research.benchmark import Experiment
from ltpll_research.paper.catalog import ITEMS
from ltpll_research.paper.compare import cell_text, compare, departures
from ltpll_research.paper.grid import Finished, experiment_of
from support.paper_runs import paper_record as record


def cell(table, label, column="CIFAR-100-LT ρ=100 q=0.05"):
    item = ITEMS["main"]
    names = [line.label for line in item.lines]
    return table[names.index(label)][item.columns.index(column)]


def test_cells_hold_mean_deviation_count_and_difference_over_the_requested_seeds():
    finished = Finished([record(0, 0.39, 0.41), record(1, 0.41, 0.42), record(2, 0.99, 0.99)])
    found = cell(compare(ITEMS["main"], finished, 2, {}), "corr + records")
    assert (found.last.mean, found.last.n) == (pytest.approx(40.0), 2)
    assert found.last.std == pytest.approx(2**0.5)
    assert found.best.mean == pytest.approx(41.5)
    assert found.difference == pytest.approx(40.0 - 40.59)
    assert cell_text(found) == "40.00 ± 1.41 (best 41.50)"


def test_the_posthoc_row_comes_from_the_run_without_rebalancing():
    finished = Finished([record(0, 0.33, 0.34, "none", {"oracle-la-posthoc": (0.36, 0.37)})])
    table = compare(ITEMS["main"], finished, 1, {})
    assert cell(table, "corr").last.mean == pytest.approx(33.0)
    assert cell(table, "corr + oracle-la-posthoc").last.mean == pytest.approx(36.0)


def test_other_protocols_are_other_runs():
    table = compare(ITEMS["main"], Finished([record(0, 0.39, 0.41)]), 1, {"epochs": 100})
    assert cell(table, "corr + records").last is None


def test_a_row_that_is_not_built_says_so(monkeypatch):
    monkeypatch.setattr(
        "ltpll_research.paper.grid.METHODS",
        {name: cls for name, cls in METHODS.items() if name != "solar"},
    )
    item = ITEMS["mixup"]
    table = compare(item, Finished([]), 1, {})
    solar = table[[line.name for line in item.lines].index("solar")][0]
    assert cell_text(solar) == "solar: not built yet"
    assert solar.published == 83.88


def test_a_cell_says_in_what_its_runs_depart_from_the_protocol():
    assert (
        cell(
            compare(ITEMS["main"], Finished([record(0, 0.39, 0.41)]), 1, {}), "corr + records"
        ).departures
        == ()
    )
    setting = {"data": "cifar100", "imbalance": 100, "method": "corr", "rebalancer": "records"}
    made = Experiment.from_mapping(
        {
            **setting,
            "seed": 3,
            "precision": "bfloat16",
            "epochs": 200,
            "lr": 0.05,
            "views": "flip-crop",
        }
    )
    assert departures(made, setting) == ("200 epochs", "views = flip-crop", "lr = 0.05")


@pytest.mark.parametrize("line", ITEMS["systems"].lines, ids=lambda line: line.label)
def test_a_run_of_any_protocol_departs_from_it_only_in_what_was_changed(line):
    for cell in line.cells:
        assert departures(experiment_of(cell.setting, {}, 0), cell.setting) == ()
        assert departures(
            experiment_of(cell.setting, {"epochs": 100, "lr": 0.1}, 0), cell.setting
        ) == ("100 epochs", "lr = 0.1")


def test_runs_of_an_earlier_edition_count_where_no_other_is_finished_and_say_so():
    old = [record(seed, 0.30, 0.31, edition=1) for seed in (0, 1)]
    found = cell(compare(ITEMS["main"], Finished(old), 2, {}), "corr + records")
    assert (found.last.mean, found.last.n, found.edition, found.manner) == (
        pytest.approx(30.0),
        2,
        1,
        ("edition 1",),
    )
    assert cell_text(found) == "30.00 ± 0.00 (best 31.00), edition 1"
    both = cell(
        compare(ITEMS["main"], Finished([*old, record(1, 0.40, 0.41)]), 2, {}), "corr + records"
    )
    assert (both.last.mean, both.last.n, both.manner) == (
        pytest.approx(40.0),
        1,
        (),
    )  # editions are never averaged
