import re
from pathlib import Path

import numpy as np
import pytest

from ltpll.runs.run import Run
from ltpll_research.studies import digits, run_missing
from ltpll_research.summary import rows
from support.commands import research
from support.interrupted_runs import shortened

ADDED = (
    "",
    " + mean-target",
    " + oracle-la-posthoc",
    " + records",
    " + records + mean-target",
    " + anchor",
)


def trained(configs, root):
    """The runs with PRODEN among these."""
    runs = [Run(root, config) for config in configs if config["method"] == "proden"]
    run_missing(runs, digits.train, workers=0)
    return runs


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Records of one seed, after half of the epochs."""
    return [
        run.result()
        for run in trained(shortened(digits.configs, 20)(1), tmp_path_factory.mktemp("digits"))
    ]


def test_the_demo_trains_missing_runs_prints_its_table_and_ends_with_the_path_of_its_page(tmp_path):
    trained(shortened(digits.configs, 2)(1), tmp_path / "ltpll-runs" / "digits")
    result = research(
        "demo", "--seeds", "1", "--workers", "0", cwd=tmp_path, called=("short_study", 2)
    )
    assert result.returncode == 0, result.stderr
    assert "3 of 6 runs were finished earlier" in result.stdout
    for row in (f"{method}{added}" for method in ("proden", "corr") for added in ADDED):
        assert re.search(rf"^\s*{re.escape(row)}\s+\d+\.\d", result.stdout, re.M), result.stdout
    last = result.stdout.strip().splitlines()[-1]
    page = Path(last.removeprefix("Report: "))
    assert page == (tmp_path / "ltpll-runs" / "demo.html").resolve()
    assert "<html" in page.read_text()[:500]


def test_the_study_combines_two_methods_with_three_rebalancers_for_every_seed():
    cells = [
        (config["method"], config["rebalancer"], config["seed"]) for config in digits.configs(3)
    ]
    assert len(set(cells)) == len(cells) == 2 * 3 * 3


def test_class_sizes_decrease_by_the_imbalance(records):
    counts = records[0]["class_counts"]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == 120
    assert counts[0] / counts[-1] == pytest.approx(20, rel=0.01)


def test_records_recovers_more_labels_than_no_rebalancing_and_lifts_the_rarer_classes(records):
    table = {row.label.removeprefix("proden"): row for row in rows(records)}
    assert set(table) == set(ADDED)
    plain, rebalanced = table[""], table[" + records"]
    assert rebalanced.target_recovery.mean > plain.target_recovery.mean
    assert rebalanced.last("medium").mean > plain.last("medium").mean
    assert rebalanced.last("balanced_accuracy").mean > plain.last("balanced_accuracy").mean


def test_the_anchor_has_its_options_and_is_more_accurate_than_no_rebalancing(records):
    plain, _, anchored = records
    assert anchored["config"]["options"] == digits.OPTIONS
    assert anchored["config"]["rebalancer"] == "anchor"
    assert (
        anchored["last"]["test"]["balanced_accuracy"] > plain["last"]["test"]["balanced_accuracy"]
    )


def test_only_the_anchors_record_has_the_prior_of_the_sets_and_all_rows_are_compared_in_one_setting(
    records,
):
    assert ["prior" in record for record in records] == [False, False, True]
    lower, upper = (np.asarray(records[2]["prior"][name]) for name in ("lower", "upper"))
    assert np.all(lower <= upper)
    assert len({row.setting for row in rows(records)}) == 1


def test_subset_candidates_and_training_have_separate_seeds(tmp_path):
    records = [run.result() for run in trained(shortened(digits.configs, 1)(2), tmp_path)]
    seeds = [seed for record in records for seed in record["seeds"].values()]
    assert len(set(seeds)) == 6  # three for each of the two seeds, shared by all rebalancers
    assert records[0]["seeds"] == records[1]["seeds"]


def test_a_record_holds_its_environment_and_its_curves(records):
    record = records[0]
    assert {"commit", "python", "torch", "hardware", "threads"} <= record["environment"].keys()
    epochs = record["config"]["epochs"]
    assert record["curves"]["epoch"] == list(range(1, epochs + 1))
    assert record["curves"]["accuracy"]["test"][-1] == record["last"]["test"]["balanced_accuracy"]
    best = record["best"]["test"]
    assert best["test"]["balanced_accuracy"] == max(record["curves"]["accuracy"]["test"])
    assert np.isclose(sum(record["last"]["mean_target"]), 1, atol=1e-4)
