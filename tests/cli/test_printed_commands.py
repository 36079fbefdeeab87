"""The commands that are printed to be copied: a shell takes every path in them for one word."""

import shlex

import pytest

from support.commands import ltpll_here as ltpll
from support.user_tables import feature_rows, write_csv

NAME = "it's mine; $(x) & more"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / NAME
    folder.mkdir()
    write_csv(folder / "a b.csv", ["id", "candidates", "u", "v"], feature_rows(60))
    return folder


def words(printed, start):
    line = next(line for line in printed.splitlines() if line.startswith(start))
    return shlex.split(line.removeprefix(start).replace("; ltpll", " ; ltpll"))


def test_every_printed_command_can_be_pasted_into_a_shell(folder):
    table, run = f"{NAME}/a b.csv", f"{NAME}/run 1"
    assert words(ltpll("demo", "--only-table", "--out", NAME), "Next: ") == [
        *("ltpll", "train", f"{NAME}/digits.csv"),
        *("--out", f"{NAME}/run"),
    ]
    quick = ("--epochs", "1", "--folds", "0", "--device", "cpu")
    assert words(ltpll("train", table, "--out", run, *quick), "Next: ").count(run) == 4
    queue = words(ltpll("review", run, "--out", f"{NAME}/q u.csv"), "ltpll train")
    assert queue[:3] == [table, "--reviewed", f"{NAME}/q u.csv"]
    refused = ltpll("train", table, "--out", run, *quick, "--goal", "balanced", status=2)
    assert str(folder / "run 1") in shlex.split(
        refused[refused.index("ltpll predict") : refused.index(", or train again")]
    )
