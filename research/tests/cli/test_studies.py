"""The command line of the studies as a user sees it: real processes, real files, exit statuses."""

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from support.commands import research
from support.fork_server import shared_fork_server


def toy(*options, cwd):
    """`ltpll-research toy` with a single seed and fewer epochs."""
    return research("toy", "--seeds", "1", *options, cwd=cwd, called=("short_study", 5))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder in which `ltpll-research toy` has run, and what it printed."""
    folder = tmp_path_factory.mktemp("toy")
    result = toy("--workers", "0", cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder, result.stdout


@pytest.fixture
def copied(finished, tmp_path):
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    return tmp_path


def stamps(folder):
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.rglob("done")}


def test_toy_prints_a_table_and_draws_the_figure_whose_path_comes_last(finished):
    folder, printed = finished
    for row in ("proden", "proden + oracle-la", "proden + records"):
        assert re.search(rf"^\s*{re.escape(row)}\s+\d+\.\d", printed, re.M), printed
    figure = Path(printed.strip().splitlines()[-1].partition(": ")[2])
    assert figure == (folder / "ltpll-runs" / "toy.png").resolve()
    assert figure.read_bytes()[:4] == b"\x89PNG"
    assert len(stamps(folder)) == 3


def test_a_second_call_trains_nothing_and_says_so(copied):
    before = stamps(copied)
    result = toy(cwd=copied)
    assert "3 of 3 runs were finished earlier" in result.stdout
    assert stamps(copied) == before


def test_fresh_trains_again(copied):
    before = stamps(copied)
    assert toy("--fresh", "--workers", "0", cwd=copied).returncode == 0
    assert stamps(copied).keys() == before.keys()
    assert all(stamp > before[key] for key, stamp in stamps(copied).items())


def test_a_damaged_result_is_named_and_trained_again(copied):
    damaged = next(copied.rglob("result.json"))
    before = json.loads(damaged.read_text())
    damaged.write_text("{")
    shown = research("compare", damaged.parent, "--out", "page.html", cwd=copied)
    assert shown.returncode == 2
    assert f"{damaged.parent} cannot be read (its file {damaged.name}" in shown.stderr
    result = toy("--workers", "0", cwd=copied)  # as that message says
    assert result.returncode == 0
    assert f"{damaged.parent.name} has lost or damaged files (result.json)" in result.stderr
    assert "2 of 3 runs were finished earlier" in result.stdout
    assert json.loads(damaged.read_text())["last"] == before["last"]
    assert research("compare", damaged.parent, "--out", "page.html", cwd=copied).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("toy", "--seeds", "0"), 2),
        (("toy", "--seeds", "many"), 2),
        (("demo", "--workers", "-1"), 2),
    ],
)
def test_bad_arguments_exit_with_2_and_no_traceback(arguments, status, tmp_path):
    result = research(*arguments, cwd=tmp_path)
    assert result.returncode == status
    assert "Traceback" not in result.stderr + result.stdout
    assert list(tmp_path.iterdir()) == []


def test_an_output_folder_that_is_a_file_is_one_sentence_and_exit_2_and_the_file_stays(tmp_path):
    path = tmp_path / "taken"
    path.write_text("precious")
    result = research("toy", "--seeds", "1", "--out", str(path))
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.strip().splitlines()) == 1
    assert path.read_text() == "precious"


def test_an_interrupted_study_says_so_and_resumes(tmp_path):
    server, log = shared_fork_server(), tmp_path / "log"
    arguments = ["toy", "--seeds", "1", "--workers", "1", "--out", str(tmp_path)]
    pid = server.start(
        "interrupted_runs.short_study", 20, *arguments, log=log, environment={"COLUMNS": "100"}
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.rglob("done")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(pid, signal.SIGINT)  # as a terminal does: to every process of the group
    status, printed = server.wait(pid)
    assert status == 130, printed
    assert "Interrupted" in printed
    assert "Traceback" not in printed
    kept = len(list(tmp_path.rglob("done")))
    assert 1 <= kept < 3
    again = research(
        "toy", "--seeds", "1", "--workers", "0", "--out", tmp_path, called=("short_study", 20)
    )
    assert f"{kept} of 3 runs {'was' if kept == 1 else 'were'} finished earlier" in again.stdout
    assert again.returncode == 0
