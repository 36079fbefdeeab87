"""`ltpll-research train`: runs on a table for every combination, in one process."""

import re

from ltpll.runs.run import Run
from support.commands import research_here as research
from support.user_tables import feature_rows, write_csv

HEADER = ["id", "candidates", "u", "v"]


def table_with_labels(path):
    rows = feature_rows(60)
    labels = ["c" if i % 10 == 9 else "ab"[i % 2] for i in range(60)]
    return write_csv(
        path, [*HEADER, "label"], [[*row, y] for row, y in zip(rows, labels, strict=True)]
    )


def test_every_seed_and_combination_has_a_run_and_they_are_compared(tmp_path):
    table = table_with_labels(tmp_path / "birds.csv")
    quick = ["training.epochs=1", "training.folds=0", "training.learner=network", "run.device=cpu"]
    words = [word for text in quick for word in ("--set", text)]
    arguments = [table, "--seeds", "3-4", "--rebalancer", "none,mean-target", *words]
    shown = research("train", *arguments, "--out", tmp_path / "runs")
    folders = sorted(path.name for path in (tmp_path / "runs").iterdir() if path.is_dir())
    assert folders == [
        f"seed={seed},rebalancer={name}" for seed in (3, 4) for name in ("mean-target", "none")
    ]
    for name in folders:
        config = Run.open(tmp_path / "runs" / name).config
        assert name == f"seed={config['seed']},rebalancer={config['rebalancer']}"
    assert re.search(r"corr \+ mean-target +\d", shown)
    compared = research("compare", tmp_path / "runs", "--out", tmp_path / "c.svg")
    assert "corr + mean-target" in compared
    assert (tmp_path / "c.svg").read_text().count("<svg") == 1


def test_a_setting_that_does_not_exist_is_refused_before_anything_is_written(tmp_path):
    table = write_csv(tmp_path / "birds.csv", HEADER, feature_rows(20))
    message = research(
        "train", table, "--set", "training.rate=1,2", "--out", tmp_path / "runs", status=2
    )
    assert "training.rate" in message
    assert not (tmp_path / "runs").exists()


def test_a_table_of_which_nothing_is_known_is_trained_on_and_said_to_be_incomparable(tmp_path):
    table = write_csv(tmp_path / "birds.csv", HEADER, feature_rows(40))
    quick = ["--set", "training.epochs=1", "--set", "training.folds=0", "--out", tmp_path / "runs"]
    assert "Nothing was measured on birds.csv" in research("train", table, *quick)
