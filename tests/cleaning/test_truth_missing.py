"""Tables whose sets may lack the true label: from the file to cleaned labels outside the sets."""

import json

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from support.commands import ltpll_here
from support.user_tables import rows_of, write_csv

NAMES = ("ash", "birch", "cedar", "elm", "fir")
QUICK = (
    "--method",
    "proden",
    "--rebalancer",
    "none",
    "--epochs",
    20,
    "--device",
    "cpu",
    "--set",
    "run.threads=1",
)


def write_lacking(path, share=0.3, n=300):
    x, y = make_blobs(n, 3, centers=5, random_state=3)
    rng = np.random.default_rng(0)
    sets = rng.random((n, 5)) < 0.25
    sets[np.arange(n), y] = rng.random(n) >= share
    for row in np.flatnonzero(~sets.any(1)):
        sets[row, (y[row] + rng.integers(1, 5)) % 5] = True
    cells = ["|".join(NAMES[c] for c in np.flatnonzero(row)) for row in sets]
    rows = [
        (i, cell, NAMES[label], *features)
        for i, (cell, label, features) in enumerate(zip(cells, y, x.tolist(), strict=True))
    ]
    write_csv(path, ["id", "candidates", "label", "a", "b", "c"], rows)


def cleaned(run, out):
    printed = ltpll_here("clean", run, "--out", out)
    return printed, rows_of(out)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lacking")
    write_lacking(folder / "trees.csv")
    said = ltpll_here(
        "train",
        folder / "trees.csv",
        *QUICK,
        "--folds",
        3,
        "--set",
        "training.truth_missing=auto",
        "--out",
        folder / "open",
    )
    ltpll_here("train", folder / "trees.csv", *QUICK, "--folds", 3, "--out", folder / "closed")
    return folder, said


def test_labels_leave_their_sets_and_more_of_them_are_right(runs, tmp_path):
    folder, said = runs
    record = json.loads((folder / "open" / "result.json").read_text())
    assert "seem to lack the true label, so labels may leave their sets." in said
    assert record["truth_missing"] == pytest.approx(0.3, abs=0.08)
    printed, rows = cleaned(folder / "open", tmp_path / "open.csv")
    outside = [row for row in rows if row["label"] not in row["candidates"].split("|")]
    assert f"{len(outside)} labels lie outside their sets." in printed
    assert [row["in_set"] == "true" for row in rows] == [
        row["label"] in row["candidates"].split("|") for row in rows
    ]
    assert np.mean([row["label"] == row["true_label"] for row in outside]) > 0.9
    right = np.mean([row["label"] == row["true_label"] for row in rows])
    expected = np.mean([float(row["confidence"]) for row in rows])
    assert right == pytest.approx(expected, abs=0.1)
    printed, closed = cleaned(folder / "closed", tmp_path / "closed.csv")
    assert "with --set training.truth_missing=auto, labels can leave their sets." in printed
    assert "in_set" not in closed[0]
    assert all(row["label"] in row["candidates"].split("|") for row in closed)
    assert right > np.mean([row["label"] == row["true_label"] for row in closed]) + 0.1


def test_the_report_and_the_class_table_count_labels_outside_the_sets(runs, tmp_path):
    folder, _ = runs
    ltpll_here("report", folder / "open", "--out", tmp_path / "page.html")
    assert "labels lie outside their sets." in (tmp_path / "page.html").read_text()
    _, rows = cleaned(folder / "open", tmp_path / "open.csv")
    for one in rows_of(tmp_path / "open.classes.csv"):
        name = one["class"]
        held = [row for row in rows if name in row["candidates"].split("|")]
        assert int(one["label_of"]) == sum(row["label"] == name for row in rows)
        assert float(one["distractor_rate"]) == pytest.approx(
            np.mean([row["label"] != name for row in held]), abs=1e-3
        )


def test_a_finished_run_keeps_the_share_that_it_has_estimated(runs, tmp_path):
    folder, _ = runs
    record = json.loads((folder / "open" / "result.json").read_text())
    assert 0 < record["truth_missing"] < 1
    assert not list((folder / "open").glob("missing*"))
    assert "finished earlier" in ltpll_here(
        "train",
        folder / "trees.csv",
        *QUICK,
        "--folds",
        3,
        "--set",
        "training.truth_missing=auto",
        "--out",
        folder / "open",
    )
    other = ltpll_here(
        "train",
        folder / "trees.csv",
        *QUICK,
        "--folds",
        3,
        "--set",
        "training.truth_missing=0.2",
        "--out",
        folder / "open",
        status=2,
    )
    assert "truth_missing" in other


@pytest.mark.parametrize("value", ["often", "1", "-0.5", "nan"])
def test_other_values_are_refused_and_nothing_is_written(tmp_path, value):
    write_lacking(tmp_path / "trees.csv", n=60)
    message = ltpll_here(
        "train",
        tmp_path / "trees.csv",
        "--set",
        f"training.truth_missing={value}",
        "--out",
        tmp_path / "run",
        status=2,
    )
    assert message.startswith("training.truth_missing is ")
    assert not (tmp_path / "run").exists()
