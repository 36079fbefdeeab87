"""Grids on a real local Ray: the same records as the local launcher, also if processes die or runs fail."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from ltpll_research.benchmark import Experiment, experiment_run
from ltpll_research.image_sets.prepared import write_image_set
from ltpll_research.paper.launch import launch_in_processes
from ltpll_research.paper.on_ray import launch_on_ray
from support.pictures import coloured_images
from support.refusals import refusal

TINY = {
    "data": "cifar10",
    "imbalance": 50,
    "ambiguity": 0.3,
    "method": "proden",
    "width": 2,
    "batch_size": 32,
    "epochs": 12,
}


def grid(**more):
    return [
        Experiment.from_mapping({**TINY, "rebalancer": rebalancer, **more})
        for rebalancer in ("none", "records")
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_image_set(coloured_images(10, 50, 4), folder)
    return folder


def results(root, wanted):
    records = [experiment_run(root, experiment).result() for experiment in wanted]
    return [
        {key: record[key] for key in ("config", "last", "best", "curves", "seeds")}
        for record in records
    ]


def test_without_ray_the_launcher_says_what_to_install(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'ltpll-research[ray]'" in refusal(
        lambda: launch_on_ray(grid(), tmp_path, data_root=None, device="cpu")
    )


def test_the_records_are_those_of_the_local_launcher_even_if_a_process_is_killed(data, tmp_path):
    pytest.importorskip("ray")
    wanted = grid()
    launch_in_processes(wanted, tmp_path / "local", workers=2, data_root=data, device="cpu")
    killed = []

    def kill_once():
        """Kill the process that trains the first run as soon as it has a checkpoint."""
        run = experiment_run(tmp_path / "ray", wanted[0])
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and not (run.folder / "checkpoint.safetensors").exists():
            time.sleep(0.01)
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                name = (entry / "cmdline").read_bytes()
            except OSError:  # the process has ended
                continue
            if name.startswith(b"ray::_launch_with_one_thread"):
                os.kill(int(entry.name), signal.SIGKILL)
                killed.append(entry.name)

    killer = threading.Thread(target=kill_once)
    killer.start()
    outcomes = launch_on_ray(wanted, tmp_path / "ray", data_root=data, device="cpu")
    killer.join()
    assert killed
    assert [outcome.reason for outcome in outcomes] == ["", ""]
    assert results(tmp_path / "ray", wanted) == results(tmp_path / "local", wanted)
    # Finished runs are not trained again.
    assert launch_on_ray(wanted, tmp_path / "ray", data_root=data, device="cpu") == []


def test_a_failed_run_is_reported_and_the_others_are_trained(data, tmp_path):
    pytest.importorskip("ray")
    good, bad = (
        grid(epochs=1)[0],
        Experiment.from_mapping({**TINY, "epochs": 1, "method": "proden", "superclass": True}),
    )
    outcomes = launch_on_ray([bad, good], tmp_path, data_root=data, device="cpu")
    reasons = {outcome.run.key: outcome.reason for outcome in outcomes}
    assert "no superclasses" in reasons[experiment_run(tmp_path, bad).key]
    assert reasons[experiment_run(tmp_path, good).key] == ""
    assert experiment_run(tmp_path, good).done
