import json
import os
from pathlib import Path

import pytest

from ltpll.errors import InputError
from ltpll.runs.run import Run
from ltpll_research.studies import run_missing


def train(run: Run) -> None:
    """A fake training that only writes files; seed 3 fails."""
    run.start()
    if run.config["seed"] == 3:
        raise InputError("Row 3 is wrong.")
    for epoch in range(run.config["epochs"]):
        run.log({"epoch": epoch, "pid": os.getpid(), "threads": os.environ.get("OMP_NUM_THREADS")})
    run.finish({"last": run.config["seed"]})


def runs(root: Path, seeds) -> list[Run]:
    return [Run(root, {"seed": seed, "epochs": 2}) for seed in seeds]


@pytest.mark.parametrize("workers", [0, 2])
def test_only_missing_runs_are_trained(tmp_path, workers):
    first = runs(tmp_path, [0, 1])
    run_missing(first, train, workers=0)
    stamps = [(run.folder / "done").stat().st_mtime_ns for run in first]
    everything = runs(tmp_path, [0, 1, 2])
    seen = []
    run_missing(everything, train, workers=workers, on_progress=seen.append)
    assert [run.result()["last"] for run in everything] == [0, 1, 2]
    assert [(run.folder / "done").stat().st_mtime_ns for run in first] == stamps
    assert seen[0] == 4
    assert seen[-1] == 6
    assert seen == sorted(seen)


def test_workers_are_separate_processes_with_one_thread_each_and_the_environment_is_restored(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    cells = runs(tmp_path, [0, 1])
    run_missing(cells, train, workers=2)
    lines = [
        json.loads(line)
        for run in cells
        for line in (run.folder / "metrics.jsonl").read_text().splitlines()
    ]
    assert os.getpid() not in {line["pid"] for line in lines}
    assert {line["threads"] for line in lines} == {"1"}
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "OMP_WAIT_POLICY" not in os.environ


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_one_run_reaches_the_caller_and_finished_runs_are_kept(tmp_path, workers):
    cells = runs(tmp_path, [0, 3])
    with pytest.raises(InputError, match="Row 3 is wrong"):
        run_missing(cells, train, workers=workers)
    assert cells[0].done
    assert not cells[1].done
    assert cells[0].result()["last"] == 0
