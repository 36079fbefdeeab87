"""`ltpll train` with the setting prune."""

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


def test_train_refuses_to_prune_by_pixels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_trees(tmp_path, n=8)
    assert "by features, which pictures do not have" in ltpll(
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
    """Rows of pictures, which share their sets, so that these show the class shares before pruning
    and not afterwards.
    """
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
    quick = ("--epochs", "1", "--folds", "0", "--device", "cpu")
    ltpll("train", "s.csv", "--set", "training.prune=true", "--out", "both", *quick)
    prior = json.loads((tmp_path / "both" / "result.json").read_text())["prior"]
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
