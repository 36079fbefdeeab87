"""The command `data prune`, and `train --prune`."""

import json

import pytest

from support.commands import ltpll_here as ltpll
from support.user_tables import feature_rows, write_csv, write_trees

HEADER = ["id", "candidates", "u", "v", "label"]


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [[*row, "abc"[2 if i % 10 == 9 else i % 2]] for i, row in enumerate(feature_rows())]
    return write_csv(tmp_path / "t.csv", HEADER, rows)


def test_a_pruned_table_is_trained_with_the_command_that_is_printed(table, tmp_path):
    printed = ltpll("data", "prune", "t.csv", "--id", "id", "--out", "p.csv")
    assert "Neighbours voted against 30 of 93 candidates" in " ".join(printed.split())
    assert "Lost true labels (for evaluation only): 0 of 60 (0.0%)" in " ".join(printed.split())
    command = next(line for line in printed.splitlines() if line.startswith("Next: ltpll train"))
    assert command.startswith("Next: ltpll train p.csv --id id")
    lines = (tmp_path / "p.classes.csv").read_text().splitlines()
    assert lines[0].replace('"', "") == "class,candidate_in,removed,share"
    assert sum(int(line.split(",")[2]) for line in lines[1:]) == 30
    ltpll(*command.removeprefix("Next: ltpll ").split(), "--out", "run", "--epochs", "1", "--folds", "0", "--device", "cpu")
    assert (tmp_path / "run" / "done").exists()


def test_train_prunes_if_told_to_and_the_run_says_so(table, tmp_path):
    quick = ("--epochs", "1", "--folds", "0", "--device", "cpu")
    assert "Neighbours voted against 30 of 93" in " ".join(ltpll("train", "t.csv", "--prune", "--out", "pruned", *quick).split())
    assert "Neighbours" not in ltpll("train", "t.csv", "--out", "plain", *quick)
    configs = {name: json.loads((tmp_path / name / "result.json").read_text())["config"] for name in ("pruned", "plain")}
    assert configs["pruned"]["prune"] == {"neighbours": 20, "threshold": 0.3}
    assert "prune" not in configs["plain"]
    assert "different: data, prune" in ltpll("train", "t.csv", "--out", "pruned", *quick, status=2)
    ltpll("clean", "pruned", "--out", "cleaned.csv")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--out", "t.csv"), "is the table and would be overwritten"),
        (("--out", "t.parquet"), "write to .csv or .tsv"),
        (("--out", "missing/p.csv"), "There is no folder missing"),
        (("--images", ".", "--out", "p.csv"), "give a pretrained network with --backbone"),
        (("--group", "scene", "--out", "p.csv"), "no column called 'scene'"),
    ],
)
def test_what_cannot_be_pruned_or_written_is_refused_and_nothing_is_written(table, tmp_path, options, words):
    assert words in ltpll("data", "prune", "t.csv", *options, status=2)
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_train_refuses_to_prune_by_pixels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_trees(tmp_path, n=8)
    assert "not by pixels" in ltpll("train", "labels.csv", "--images", "pictures", "--prune", "--out", "run", status=2)
    assert not (tmp_path / "run").exists()
