"""Our runs compared with the paper's numbers."""

import pytest

from ltpll.experiments.benchmark import Experiment
from ltpll.experiments.paper.catalog import ITEMS
from ltpll.experiments.paper.compare import cell_text, compare, comparison_tables, markdown_table
from ltpll.experiments.paper.grid import Finished
from ltpll.methods import METHODS


def record(seed, last, best, rebalancer="records", posthoc=None):
    settings = {"data": "cifar100", "imbalance": 100, "ambiguity": 0.05, "method": "corr", "rebalancer": rebalancer, "seed": seed}
    figures = {"test": (last, best)} | (posthoc or {})
    return {
        "config": Experiment.from_mapping(settings).config(),
        "last": {row: {"balanced_accuracy": a} for row, (a, _) in figures.items()},
        "best": {row: {"epoch": 1, row: {"balanced_accuracy": b}} for row, (_, b) in figures.items()},
    }


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
    monkeypatch.setattr("ltpll.experiments.paper.grid.METHODS", {name: cls for name, cls in METHODS.items() if name != "solar"})
    item = ITEMS["mixup"]
    table = compare(item, Finished([]), 1, {})
    solar = table[[line.name for line in item.lines].index("solar")][0]
    assert cell_text(solar) == "solar: not built yet"
    assert solar.published == 83.88


def test_markdown_shows_only_cells_with_runs():
    text = markdown_table(ITEMS["main"], compare(ITEMS["main"], Finished([record(0, 0.39, 0.41)]), 1, {}))
    assert text.splitlines()[2:] == ["| CIFAR-100-LT ρ=100 q=0.05 | corr + records | 39.00 | 41.00 | 1 | 40.59 | -1.59 |"]
    assert markdown_table(ITEMS["main"], compare(ITEMS["main"], Finished([]), 1, {})) == "*No runs yet.*"


def test_a_page_gets_the_tables_that_have_runs_and_marks_large_differences():
    finished = Finished([record(0, 0.30, 0.41), record(0, 0.34, 0.35, "none", {"oracle-la-posthoc": (0.36, 0.37)})])
    found = {table.title.partition(":")[0]: table for table in comparison_tables(finished, 1)}
    assert set(found) == {"Table 1", "Tables 2 and 10", "Table 5", "Tables 4 and 12"}
    marks = {cells[1]: (cells[-1], marked) for cells, marked in found["Table 1"].rows}
    assert marks == {"corr": ("-0.09", False), "corr + oracle-la-posthoc": ("-0.79", False), "corr + records": ("-10.59", True)}
