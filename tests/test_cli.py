"""The command line as a user sees it: real processes, real files, exit statuses."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from ltpll import __version__
from ltpll.cleaning.settings import TrainingSettings, TrainJob
from ltpll.cli import MOVED, demo
from ltpll.parts import describe_parts
from support.commands import ltpll, ltpll_here


def test_without_arguments_it_prints_help():
    result = subprocess.run(
        [sys.executable, "-m", "ltpll"], capture_output=True, text=True, check=False
    )  # as a shell starts it
    assert "demo" in result.stdout + result.stderr
    assert "train" in result.stdout + result.stderr


def test_version_is_that_of_the_package():
    assert ltpll("--version").stdout.strip() == f"ltpll {__version__}"


def test_list_shows_every_registered_part():
    shown = ltpll("list").stdout
    for part in describe_parts():
        assert re.search(rf"{part.kind}\s+{re.escape(part.name)}\s", shown), part


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("train", "--epochs", "many"), 2),
        (("nonsense",), 2),
        (("demo", "--set", "run.workers=-1"), 2),
    ],
)
def test_bad_arguments_exit_with_2_and_no_traceback(arguments, status, tmp_path):
    result = ltpll(*arguments, cwd=tmp_path)
    assert result.returncode == status
    assert "Traceback" not in result.stderr + result.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("more", [[], ["--help"], ["cifar10", "--imbalance", "50"]])
def test_a_command_that_moved_names_the_package_that_has_it(more):
    for moved in MOVED:
        message = ltpll_here(moved, *more, status=2)
        assert message.startswith(f"`ltpll {moved}` is in the package ltpll-research")
        assert f"`ltpll-research {moved}`" in message


def test_the_demo_runs_three_commands_and_names_them_and_continues(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quick = TrainingSettings(epochs=1, folds=0, rebalancer="mean-target")
    monkeypatch.setitem(demo.__globals__, "TrainJob", partial(TrainJob, training=quick))
    printed = ltpll_here("demo")
    folder = Path("ltpll-runs/demo")
    assert [line for line in printed.splitlines() if line.startswith("$ ")] == [
        f"$ ltpll train {folder}/digits.csv --out {folder}/run",
        f"$ ltpll clean {folder}/run --out {folder}/cleaned.csv",
        f"$ ltpll report {folder}/run --out {folder}/report.html",
    ]
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert len((folder / "cleaned.csv").read_text().splitlines()) == 487
    assert "This run was finished earlier" in ltpll_here("demo")
