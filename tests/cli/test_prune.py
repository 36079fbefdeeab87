"""The command `data prune`, and `train --prune`."""

import json

import numpy as np
import pytest

from ltpll import estimate_prior
from ltpll.synthetic import grouped_candidates
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
    ltpll(
        *command.removeprefix("Next: ltpll ").split(),
        "--out",
        "run",
        "--epochs",
        "1",
        "--folds",
        "0",
        "--device",
        "cpu",
    )
    assert (tmp_path / "run" / "done").exists()


def test_train_prunes_if_told_to_and_the_run_says_so(table, tmp_path):
    quick = ("--epochs", "1", "--folds", "0", "--device", "cpu")
    assert "Neighbours voted against 30 of 93" in " ".join(
        ltpll("train", "t.csv", "--set", "training.prune=true", "--out", "pruned", *quick).split()
    )
    assert "Neighbours" not in ltpll("train", "t.csv", "--out", "plain", *quick)
    configs = {
        name: json.loads((tmp_path / name / "result.json").read_text())["config"]
        for name in ("pruned", "plain")
    }
    assert configs["pruned"]["prune"] == {"neighbours": 20, "threshold": 0.3}
    assert "prune" not in configs["plain"]
    assert "different: data, prune" in ltpll("train", "t.csv", "--out", "pruned", *quick, status=2)
    ltpll("clean", "pruned", "--out", "cleaned.csv")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--out", "t.csv"), "is given as TABLE and would be overwritten"),
        (("--out", "t.parquet"), "write to .csv or .tsv"),
        (("--out", "missing/p.csv"), "There is no folder missing"),
        (("--images", ".", "--out", "p.csv"), "give a pretrained network with --backbone"),
        (("--group", "scene", "--out", "p.csv"), "no column called 'scene'"),
    ],
)
def test_what_cannot_be_pruned_or_written_is_refused_and_nothing_is_written(
    table, tmp_path, options, words
):
    assert words in ltpll("data", "prune", "t.csv", *options, status=2)
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_train_refuses_to_prune_by_pixels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_trees(tmp_path, n=8)
    assert "not by pixels" in ltpll(
        "train",
        "labels.csv",
        "--images",
        "pictures",
        "--set",
        "training.prune=true",
        "--out",
        "run",
        status=2,
    )
    assert not (tmp_path / "run").exists()


@pytest.fixture
def scenes(tmp_path, monkeypatch):
    """Rows of pictures, which share their sets, so that these show the class shares before pruning and not afterwards."""
    monkeypatch.chdir(tmp_path)
    sets, labels = grouped_candidates(60, [4, 3, 2, 1], seed=0)
    x = np.eye(4)[labels] * 4 + np.random.default_rng(0).normal(size=(len(labels), 4))
    rows = [
        ["|".join(f"c{k}" for k in sets.row(i)), *values]
        for i, values in enumerate(x.round(3).tolist())
    ]
    write_csv(tmp_path / "s.csv", ["candidates", *"abcd"], rows)
    return estimate_prior(sets)


def test_the_shares_that_the_sets_show_before_pruning_are_kept_for_training(scenes, tmp_path):
    assert scenes.regime == "co-occurrence"
    printed = ltpll("data", "prune", "s.csv", "--out", "p.csv")
    assert "Next: ltpll train p.csv --prior p.shares.csv" in printed
    quick = ("--epochs", "1", "--folds", "0", "--device", "cpu")
    ltpll("train", "p.csv", "--set", "training.prior=p.shares.csv", "--out", "first", *quick)
    ltpll("train", "s.csv", "--set", "training.prune=true", "--out", "both", *quick)
    priors = [
        json.loads((tmp_path / run / "result.json").read_text())["prior"]
        for run in ("first", "both")
    ]
    for prior in priors:
        assert prior["how"] == "given"
        np.testing.assert_allclose(prior["estimate"], scenes.average, atol=1e-5)
    chosen = ltpll(
        "train",
        "s.csv",
        "--set",
        "training.prune=true",
        "--set",
        "training.prior=sets",
        "--out",
        "chosen",
        *quick,
    )
    assert "as requested" in " ".join(chosen.split())
    ltpll(
        "train",
        "s.csv",
        "--set",
        "training.prune=true",
        "--rebalancer",
        "none",
        "--out",
        "none",
        *quick,
    )
    assert json.loads((tmp_path / "none" / "result.json").read_text())["config"]["prior"] == "auto"
