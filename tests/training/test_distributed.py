"""One run in several processes: the same targets, priors and weights as in one, to the last digits
that sums allow."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from ltpll.errors import NotFiniteError
from ltpll.evaluation.during_training import Evaluate
from ltpll.extras import EXTRAS
from ltpll.methods import METHODS
from ltpll.training.callbacks import Checkpoint
from ltpll.training.cuda_graphs import Runner
from ltpll.training.distributed import World, _comes_from_a_loss
from ltpll_research.image_sets.prepared import write_image_set
from support.distributed_worker import problem, state, trained_to_the_end, trainer
from support.fork_server import shared_fork_server
from support.pictures import coloured_images
from support.processes import environment_of_tests, typed
from support.refusals import refusal
from support.toy_training import OnResume

CASES = {
    2: [
        *(
            {"method": name, "rebalancer": "none" if METHODS[name].why_no_rebalancer else "records"}
            for name in sorted(METHODS)
        ),
        {"method": "lw", "rebalancer": "epoch-records", "epochs": 3},
        {"method": "corr", "rebalancer": "anchor", "epochs": 3},
        {"method": "lw", "rebalancer": "auto", "epochs": 3},
        {"method": "pico", "rebalancer": "records", "images": True, "epochs": 1},
        {"method": "proden", "rebalancer": "records", "on_nan": "skip", "poisoned": True},
        {"method": "purifying", "rebalancer": "records", "epochs": 4},
        {"method": "corr", "rebalancer": "anchor", "blocks": True, "streamed": True},
        {"method": "proden", "rebalancer": "none", "on_nan": "skip", "blocks": True},
    ],
    3: [
        *({"method": "corr", "rebalancer": "records", "extras": [name]} for name in sorted(EXTRAS)),
        {"method": "corr", "rebalancer": "oracle-la", "extras": sorted(EXTRAS)},
        {"method": "htc", "rebalancer": "none", "extras": ["mixup", "sfn"], "epochs": 4},
        {
            **{"method": "deacon", "rebalancer": "none", "epochs": 3},
            "chosen": {"contrast_from": (1, 2), "ramp_epochs": 2, "width": 16},
        },
        {"method": "cavl", "rebalancer": "oracle-la"},
        {"method": "corr", "rebalancer": "records", "blocks": True},
    ],
}


# The number of processes, their device, and how their steps run.
WORLDS = [
    pytest.param(
        (size, device, engine),
        id=f"{size} on {device} {engine}",
        marks=[pytest.mark.gpu] if device == "cuda" else [],
    )
    for device, engine in [("cpu", "eager"), ("cuda", "eager"), ("cuda", "captured")]
    for size in CASES
]


@pytest.fixture(scope="module", params=WORLDS)
def world(request, tmp_path_factory):
    """How many processes there were, on which device, and the folder in which they left what they
    trained: one case after the other."""
    (size, device, engine), folder = request.param, tmp_path_factory.mktemp("world")
    how, cases = json.dumps({"device": device, "engine": engine}), json.dumps(CASES[size])
    arguments = [[str(folder), str(rank), str(size), how, cases] for rank in range(size)]
    found = in_forks(arguments, folder) if device == "cpu" else in_processes(arguments)
    last = (
        -signal.SIGKILL if device == "cpu" else 0
    )  # the last thing that happens is that one is killed
    ends = [0] * (size - 1) + [last]
    assert [status for status, _ in found] == ends, "\n".join(said for _, said in found)
    return size, device, folder


def in_forks(arguments, folder):
    """Exit statuses and what was printed; the processes need not import torch."""
    forks = shared_fork_server()
    started = [
        forks.start("distributed_worker.main", *given, log=folder / f"log-{rank}")
        for rank, given in enumerate(arguments)
    ]
    return [forks.wait(pid) for pid in started]


def in_processes(arguments):
    """The same where a GPU is used, which a fork of another process cannot do."""
    environment = environment_of_tests(OMP_NUM_THREADS="1")
    how = {"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, "-W", "ignore", "-m", "support.distributed_worker"]
    processes = [subprocess.Popen([*command, *given], **how) for given in arguments]
    said = [process.communicate(timeout=120)[0] for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, said, strict=True)]


def test_a_world_of_one_does_nothing():
    world = World()
    x = torch.arange(6.0).view(3, 2)
    assert world.own_rows(3) == slice(0, 3)
    assert world.whole_views((x,), 3) == (x,)
    assert world.gather_rows(x, 3) is x
    assert world.sum_over_all(x) is x
    assert world.value_of_first_process("as is") == "as is"


def test_shares_are_gathered_in_order_and_every_row_counts_once(world):
    size, _, folder = world
    assert len(list(folder.glob("*.ok"))) == size  # each process has compared for itself


@pytest.mark.filterwarnings("ignore::ltpll.errors.InputWarning")
def test_every_method_and_extra_trains_as_in_one_process(world):
    """45 rows in batches of ten: shares of one to five rows, and a last batch of five; random
    views; all state to 1e-9."""
    size, device, folder = world
    for number, options in enumerate(CASES[size]):
        expected = trained_to_the_end(options | {"device": device, "engine": "eager"}, None)
        assert bool(expected["skipped"].any()) == options.get("poisoned", False)
        for rank in range(size):
            compare(
                torch.load(folder / f"{number}-{rank}.pt", weights_only=True), expected, options
            )


def compare(found, expected, what):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name],
            value,
            atol=1e-9,
            rtol=1e-9,
            msg=lambda text, name=name: f"{what}, {name}: {text}",
        )


@pytest.mark.filterwarnings("ignore::ltpll.errors.InputWarning")
def test_one_that_is_told_to_end_ends_all_after_the_same_step_and_any_number_of_processes_goes_on(
    world, tmp_path
):
    size, device, folder = world
    assert {(folder / f"{rank}.ended").read_text() for rank in range(size)} == {"143 1 1"}
    x, candidates, y = problem()
    truth = Evaluate(x, y, y)
    how = {"extras": ["mixup"], "device": device, "engine": "eager", "epochs": 3}
    whole = trainer("corr", "records", None, **how).fit(x, candidates, [truth])
    shutil.copy(folder / "left.safetensors", tmp_path)
    alone = trainer("corr", "records", None, **how)
    resumed = []
    alone.fit(
        x,
        candidates,
        [
            truth,
            OnResume(resumed),
            Checkpoint(tmp_path / "left.safetensors"),
        ],
    )
    assert resumed == [1]
    compare(state(alone), state(whole), "one process")
    for rank in range(size):
        compare(torch.load(folder / f"again-{rank}.pt", weights_only=True), state(whole), rank)


def test_those_that_lose_one_hear_of_it_at_once(world):
    size, device, folder = world
    if device != "cpu":
        pytest.skip("processes that wait for a GPU are ended by torchrun")
    heard = [json.loads((folder / f"{rank}.lost").read_text()) for rank in range(size - 1)]
    assert all(one["lost"] for one in heard)
    assert max(one["seconds"] for one in heard) < 30


@pytest.mark.parametrize(
    ("more", "words"),
    [({"engine": "captured"}, "'captured'"), ({"batch_size": 1}, "1 row is too small for 2")],
)
def test_what_several_processes_cannot_do_is_refused(more, words, monkeypatch):
    monkeypatch.setattr(World, "broadcast_weights", lambda self, model: None)
    monkeypatch.setattr(World, "value_of_first_process", lambda self, value: value)
    x, candidates, _ = problem()
    assert words in refusal(
        lambda: trainer("proden", "none", World(0, 2), **more).prepare(x, candidates)
    )


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (RuntimeError("[gloo/tcp/pair.cc] Connection closed by peer"), True),
        (NotFiniteError("a NaN"), False),
        (SystemExit(143), False),
    ],
)
def test_recordings_are_dropped_with_a_training_but_not_those_that_wait_for_a_lost_process(
    error, kept
):
    """Such a one would be waited for."""
    dropped = []
    runner = Runner(None, None, None, None, "eager", None, World(0, 2))
    runner.graphed_step = SimpleNamespace(clear=lambda: dropped.append(True))
    with pytest.raises(type(error)), runner.releasing_graphs():
        raise error
    assert bool(dropped) != kept


def test_a_signal_does_not_hide_that_a_process_was_lost():
    """torchrun tells the others to end when one has died; the signal is delivered on the way
    out."""

    def leave(error):
        try:
            raise error
        finally:
            raise SystemExit(143)

    for message, lost in (
        ("Connection closed by peer", True),
        ("NCCL error: invalid usage, Duplicate GPU", False),
        ("no room", False),
    ):
        with pytest.raises(SystemExit) as ended:
            leave(RuntimeError(message))
        assert _comes_from_a_loss(ended.value) == lost


# ---- through torchrun ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_image_set(coloured_images(10, 50, 4), folder)
    return folder


def torchrun(*command, processes=2):
    package = "ltpll_research" if command[0] == "benchmark" else "ltpll"
    start = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        str(processes),
        "--rdzv-backend",
        "c10d",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "150"}
    return typed(
        [*start, "--rdzv-endpoint", "localhost:0", "-m", package, *map(str, command)],
        env=environment,
    )


def small(root, out, epochs=6):
    options = [
        "--set",
        "width=2 batch_size=32",
        "--epochs",
        epochs,
        "--method",
        "proden",
        "--device",
        "cpu",
        "--imbalance",
        "10",
    ]
    return ["benchmark", "cifar10", "--data-root", root, "--out", out, *options]


def once_it_trains(process, out):
    """Wait until there is a checkpoint."""
    deadline = time.monotonic() + 100
    while (
        not list(out.glob("*/checkpoint.safetensors"))
        and time.monotonic() < deadline
        and process.poll() is None
    ):
        time.sleep(0.05)


def recorded(process, out):
    """The record that a process which is to end well leaves."""
    said, errors = process.communicate(timeout=200)
    assert process.returncode == 0, said + errors
    (run,) = [path.parent for path in out.glob("*/done")]
    return run, json.loads((run / "result.json").read_text()), said


def ranks_of(launcher):
    """The processes that it started, by their place in the world."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            words = dict(
                one.split(b"=", 1)
                for one in (entry / "environ").read_bytes().split(b"\0")
                if b"=" in one
            )
        except (OSError, ValueError, IndexError):  # gone meanwhile
            continue
        if parent == launcher and b"RANK" in words:
            found[int(words[b"RANK"])] = int(entry.name)
    return found


@pytest.mark.reliability
def test_a_run_of_two_processes_is_recorded_once_and_goes_on_after_one_was_killed(root, tmp_path):
    process = torchrun(*small(root, tmp_path, epochs=20))
    once_it_trains(process, tmp_path)
    ranks = ranks_of(process.pid)
    assert ranks.keys() == {0, 1}
    os.kill(ranks[1], signal.SIGKILL)
    killed = time.monotonic()
    out, errors = process.communicate(timeout=60)
    assert time.monotonic() - killed < 30
    assert process.returncode != 0
    assert not Path(f"/proc/{ranks[0]}").exists()
    assert "has lost another process" in errors or "Ended by SIGTERM" in errors, out + errors
    run, record, out = recorded(torchrun(*small(root, tmp_path, epochs=20)), tmp_path)
    assert record["processes"] == 2
    epochs = [
        json.loads(line)["epoch"] for line in (run / "metrics.jsonl").read_text().splitlines()
    ]
    assert epochs == list(range(1, 21))
    assert record["last"]["test"]["balanced_accuracy"] > 0.15  # chance is 0.1
    assert out.count("mean-target: balanced accuracy") == 1  # only the first process prints
    assert out.count("at the last epoch") == 2  # of this rule and of RECORDS' own


@pytest.mark.reliability
def test_two_processes_that_are_told_to_end_keep_their_state_and_one_goes_on(root, tmp_path):
    process = torchrun(*small(root, tmp_path / "left", epochs=20))
    once_it_trains(process, tmp_path / "left")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "Ended by SIGTERM" in errors
    assert not list(tmp_path.glob("left/*/done"))
    _, went_on, _ = recorded(
        torchrun(*small(root, tmp_path / "left", epochs=20), processes=1), tmp_path / "left"
    )
    _, whole, _ = recorded(
        torchrun(*small(root, tmp_path / "whole", epochs=20), processes=1), tmp_path / "whole"
    )
    assert went_on["curves"]["epoch"] == whole["curves"]["epoch"]
    # Batch norm sees shares of 16 rows where there are two processes.
    assert abs(went_on["last"]["loss"] - whole["last"]["loss"]) < 0.3 * whole["last"]["loss"]


@pytest.mark.reliability
def test_a_table_of_ones_own_is_cleaned_by_two_processes_as_by_one(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 300)
    x = rng.normal(size=(300, 3)) + 3 * np.eye(4, 3)[y]
    sets = (rng.random((300, 4)) < 0.3) | (np.arange(4) == y[:, None])
    table = tmp_path / "table.csv"
    rows = [
        ",".join(
            [*map("{:.4f}".format, x[i]), "|".join("abcd"[c] for c in np.flatnonzero(sets[i]))]
        )
        for i in range(300)
    ]
    table.write_text("\n".join(["p,q,r,candidates", *rows]) + "\n")
    labels = {}
    for processes in (1, 2):
        out = tmp_path / f"by {processes}"
        command = ["train", table, "--epochs", "8", "--folds", "2", "--device", "cpu", "--out", out]
        run, record, said = recorded(torchrun(*command, processes=processes), tmp_path)
        assert record["processes"] == processes
        assert said.count("Next:") == 1
        labels[processes] = pq.read_table(run / "examples.parquet").to_pandas()
        (run / "done").unlink()  # so that the next one is alone to be found
    assert list(labels[1].columns) == list(labels[2].columns)
    assert (labels[1]["label"] == labels[2]["label"]).mean() > 0.99
    assert np.abs(labels[1]["confidence"] - labels[2]["confidence"]).max() < 0.02
