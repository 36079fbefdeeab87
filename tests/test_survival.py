"""Runs that are killed, told to end, or out of room: the same call again ends as if nothing had
happened, bit for bit."""

import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest

from ltpll.training.checkpoint import read_checkpoint
from ltpll_research.image_sets.prepared import write_image_set
from support.fork_server import shared_fork_server
from support.interrupted_runs import outcome
from support.pictures import coloured_images

KILLED, ENDED, INTERRUPTED = -signal.SIGKILL, 143, 130


@pytest.fixture(scope="module")
def forks():
    return shared_fork_server()


@pytest.fixture
def child(forks, tmp_path):
    """Call a function of support/interrupted_runs.py in a child; returns its exit status and
    everything that it printed."""
    return lambda function, *arguments, **options: forks.call(
        f"interrupted_runs.{function}",
        *map(str_of_path, arguments),
        log=tmp_path / "log",
        **options,
    )


def str_of_path(value):
    return str(value) if isinstance(value, Path) else value


def finished(done, *, status=0):
    """The child ended with this status and said nothing that a user should not read."""
    code, said = done
    assert code == status, said
    assert "Traceback" not in said
    return said


def sentences(said):
    """The lines that are errors; each has to be a sentence."""
    found = [line for line in said.splitlines() if line.startswith("error: ")]
    assert all(line.endswith(".") for line in found)
    return found


# ---- kill -9 -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def points(forks, tmp_path_factory):
    """A finished run that nothing has disturbed, and how many disk operations it took."""
    folder = tmp_path_factory.mktemp("points")
    count = folder / "count"
    finished(
        forks.call(
            "interrupted_runs.killed_at",
            0,
            "points_run",
            str(folder / "whole"),
            log=folder / "log",
            count=str(count),
        )
    )
    return folder / "whole", int(count.read_text())


def test_a_run_killed_before_any_of_its_disk_operations_ends_like_an_undisturbed_one(
    child, points, tmp_path
):
    """Between every two things that happen on the disk, and with the file that was being written
    cut in half."""
    whole, moments = points
    assert moments > 15
    epochs = []
    for moment in range(1, moments + 1):
        root = tmp_path / f"killed at {moment}"
        finished(child("killed_at", moment, "points_run", root, torn=True), status=KILLED)
        epochs.append(epochs_kept(root))
        finished(child("points_run", root))
        assert outcome(root) == outcome(whole), moment
        assert not list(root.rglob("*.tmp")), moment
    assert epochs == sorted(epochs)  # at no moment is there less than there was before
    assert set(epochs) == {0, 1, 2}


def epochs_kept(root):
    """How many epochs a killed run has in its newest checkpoint."""
    for name in ("checkpoint.safetensors", "checkpoint.previous.safetensors"):
        for path in root.rglob(name):
            return read_checkpoint(path)[1]["epoch"]
    return 0


def test_a_run_killed_while_it_is_forgotten_starts_anew_or_goes_on(child, points, tmp_path):
    whole, _ = points
    for moment in range(1, 9):  # the marker, the folder's name, and what was in it
        root = tmp_path / f"killed at {moment}"
        shutil.copytree(whole, root)
        finished(child("killed_at", moment, "points_run", root, fresh=True), status=KILLED)
        assert not list(root.rglob("done")) or moment == 1
        finished(child("points_run", root))
        assert outcome(root) == outcome(whole), moment


def kill_at_random_moments(forks, folder, kills, seed):
    """Small runs, each killed again and again until it is done; gives how often, and how many runs
    there were."""
    rng = random.Random(seed)
    whole = folder / "whole"
    finished(forks.call("interrupted_runs.images_run", str(whole), log=folder / "log"))
    expected, done, runs = outcome(whole), 0, 0
    # Seconds, about as long as a run: later after every kill, and as long as the last that was
    # faster.
    takes = 1.0
    while done < kills:
        runs += 1
        root = folder / f"run {runs}"
        while not list(root.glob("*/done")):
            pid = forks.start("interrupted_runs.images_run", str(root), log=folder / "log")
            started, moment = time.monotonic(), rng.uniform(0, takes)
            while (
                done < kills
                and time.monotonic() < started + moment
                and not list(root.glob("*/done"))
            ):
                time.sleep(0.002)
            if done < kills:
                takes = time.monotonic() - started if list(root.glob("*/done")) else 1.2 * takes
                os.kill(pid, signal.SIGKILL)
            status, said = forks.wait(pid)
            assert status in (0, KILLED), said
            done += status == KILLED
        finished(
            forks.call("interrupted_runs.images_run", str(root), log=folder / "log")
        )  # one that is done stays done
        assert outcome(root) == expected
    return done, runs


def test_runs_killed_at_six_random_moments_end_like_an_undisturbed_one(forks, tmp_path):
    done, _ = kill_at_random_moments(forks, tmp_path, kills=6, seed=0)
    assert done == 6


@pytest.mark.reliability
@pytest.mark.parametrize("seed", range(5))
def test_runs_killed_at_a_hundred_random_moments_end_like_undisturbed_ones(forks, tmp_path, seed):
    done, runs = kill_at_random_moments(forks, tmp_path, kills=20, seed=seed)
    print(f"\n{done} kills, {runs} runs, none lost, none different")
    assert done == 20


# ---- SIGTERM and interrupts ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_image_set(coloured_images(side=8), folder)
    return folder


def train(images, out):
    """A small `ltpll-research benchmark` whose runs lie in the given folder: two epochs of three steps."""
    options = (
        "--imbalance 4 --ambiguity 0.2 --set width=2 --set batch_size=16 --set lr=0.05 "
        "--device cpu --epochs 2 --measure-every 1"
    )
    return (
        "research_command",
        "benchmark",
        "cifar10",
        *options.split(),
        "--data-root",
        str(images),
        "--out",
        str(out),
    )


@pytest.fixture(scope="module")
def trained(forks, images, tmp_path_factory):
    """What such a command leaves that nothing has disturbed, and the size of its checkpoint."""
    folder = tmp_path_factory.mktemp("trained")
    function, *arguments = train(images, folder / "whole")
    finished(forks.call(f"interrupted_runs.{function}", *arguments, log=folder / "log"))
    (checkpoint,) = folder.rglob("checkpoint.safetensors")
    return outcome(folder / "whole"), checkpoint.stat().st_size


def last_checkpoint(root):
    (path,) = root.rglob("checkpoint.safetensors")
    return read_checkpoint(path)[1]


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, ENDED), (signal.SIGHUP, 128 + signal.SIGHUP), (signal.SIGINT, INTERRUPTED)],
    ids=["SIGTERM", "closed terminal", "interrupt"],
)
def test_a_command_that_is_told_to_end_finishes_its_step_writes_and_loses_nothing(
    child, images, trained, tmp_path, number, status
):
    """Told in the middle of the fifth step, it ends after the second step of the second epoch."""
    ended = tmp_path / "ended"
    said = finished(child("signalled_at", 5, number, *train(images, ended)), status=status)
    words = "Interrupted: rerun" if number == signal.SIGINT else f"Ended by {number.name}"
    assert words in said
    assert (last_checkpoint(ended)["epoch"], last_checkpoint(ended)["step"]) == (1, 2)
    finished(child(*train(images, ended)))
    assert outcome(ended) == trained[0]


def grid(data, out, *more):
    """A small `ltpll-research reproduce` of three runs of two epochs."""
    options = [
        "--set",
        "width=2",
        "--set",
        "batch_size=16",
        "--epochs",
        "2",
        "--device",
        "cpu",
        "--data-root",
    ]
    only = ("--only", "dataset=cifar10 rho=50 q=0.3 method=proden")
    return (
        "research_command",
        "reproduce",
        "main",
        *options,
        str(data),
        "--out",
        str(out),
        *only,
        *more,
    )


def outcomes(root):
    return {path.name: outcome(path) for path in root.iterdir() if path.is_dir()}


def test_a_grid_that_is_killed_or_told_to_end_goes_on_to_the_records_of_an_undisturbed_one(
    child, tmp_path
):
    write_image_set(coloured_images(10, 50, 1, side=8), tmp_path / "data")
    whole, ended = tmp_path / "whole", tmp_path / "ended"
    finished(child(*grid(tmp_path / "data", whole)))
    said = finished(
        child("signalled_at", 2, signal.SIGTERM, *grid(tmp_path / "data", ended)), status=ENDED
    )
    assert "failed" not in said
    assert (last_checkpoint(ended)["epoch"], last_checkpoint(ended)["step"]) == (0, 2)
    finished(
        child("signalled_at", 20, signal.SIGKILL, *grid(tmp_path / "data", ended)), status=KILLED
    )
    finished(child(*grid(tmp_path / "data", ended)))
    assert outcomes(ended) == outcomes(whole)
    assert len(outcomes(ended)) == 3
    # And a grid that is complete trains nothing, and shows the same table.
    shown = finished(child("signalled_at", 1, signal.SIGKILL, *grid(tmp_path / "data", ended)))
    assert "3 of 3 runs done" in shown
    assert "proden + records" in shown
    assert "72.15" not in shown  # imbalance 100
    assert "79.48" in shown
    assert "Deviates from the paper's protocol: width = 2, batch_size = 16, epochs = 2" in " ".join(
        shown.split()
    )


# ---- damage and numbers that are not finite --------------------------------------------------------------------------


def test_a_damaged_checkpoint_is_warned_of_in_a_sentence_and_the_one_before_it_gets_to_the_same_end(
    child, images, trained, tmp_path
):
    finished(child("signalled_at", 5, signal.SIGTERM, *train(images, tmp_path)), status=ENDED)
    (newest,) = tmp_path.rglob("checkpoint.safetensors")
    newest.write_bytes(newest.read_bytes()[:1000])
    (sentence,) = [
        line
        for line in finished(child(*train(images, tmp_path))).splitlines()
        if line.startswith("warning: ")
    ]
    assert f"The checkpoint {newest} is damaged" in sentence
    assert sentence.endswith(
        "it was renamed to checkpoint.refused.safetensors, and the previous checkpoint is used."
    )
    assert outcome(tmp_path) == trained[0]


def test_a_command_that_meets_what_is_not_finite_says_where_and_exits_2_or_drops_it_as_asked(
    child, images, trained, tmp_path
):
    arguments = train(images, tmp_path)
    explodes = [*arguments, "--set", "lr=1e30"]
    (sentence,) = sentences(finished(child(*explodes), status=2))
    assert "not finite in epoch 1, step 2, for rows" in sentence
    (sentence,) = sentences(finished(child(*explodes, "--on-nan", "skip"), status=2))
    assert (
        "predictions of test examples are not finite in epoch 1: "
        "lower the learning rate (now 1e+30)" in sentence
    )
    (sentence,) = sentences(finished(child(*arguments, "--on-nan", "ignore"), status=2))
    assert "on_nan is 'ignore': choose 'stop' or 'skip'." in sentence
    assert not list(tmp_path.rglob("checkpoint*"))
    finished(child(*arguments, "--on-nan", "skip"))
    assert (
        next(tmp_path.rglob("result.json")).read_text().count('"skipped": 0') == 4
    )  # of the last epoch, of the best one by either prediction rule, and of the whole


# ---- no room, no permission ----------------------------------------------------------------------


def test_a_command_without_room_for_its_checkpoint_says_so_keeps_the_last_one_and_goes_on_later(
    child, images, trained, tmp_path
):
    short = tmp_path / "short"
    finished(child("signalled_at", 2, signal.SIGTERM, *train(images, short)), status=ENDED)
    (kept,) = short.rglob("checkpoint.safetensors")
    content = kept.read_bytes()
    said = finished(child("short_of_room", len(content) // 2, *train(images, short)), status=2)
    (sentence,) = sentences(said)
    assert "checkpoint.safetensors cannot be written (File too large): free some space" in sentence
    assert kept.read_bytes() == content
    assert not list(short.rglob("*.tmp"))
    finished(child(*train(images, short)))
    assert outcome(short) == trained[0]


def test_a_full_disk_is_one_sentence_and_the_same_command_goes_on_when_there_is_room(
    child, images, trained, tmp_path
):
    """On a file system of its own, which has no room for a second checkpoint."""
    disk = tmp_path / "disk"
    disk.mkdir()
    code, said = child(
        "on_small_disk", disk, 2 * trained[1], tmp_path / "rescued", *train(images, disk / "out")
    )
    if code == 77:
        pytest.skip("mounting a file system is not allowed here")
    (sentence,) = sentences(finished((code, said), status=2))
    assert "cannot be written (No space left on device): free some space" in sentence
    rescued = tmp_path / "rescued" / "out"
    assert last_checkpoint(rescued)["epoch"] == 1
    finished(child(*train(images, rescued)))
    assert outcome(rescued) == trained[0]


@pytest.mark.parametrize("begun", [False, True], ids=["new", "begun"])
def test_a_read_only_folder_is_one_sentence_before_training_begins(child, images, begun):
    # Outside of pytest's folders, which only their owner may enter.
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name), Path(name) / "out"
        shutil.copytree(images, folder / "data")
        out.mkdir()
        arguments = train(folder / "data", out)
        if begun:
            finished(child("signalled_at", 2, signal.SIGTERM, *arguments), status=ENDED)
        for path in (folder, *folder.rglob("*")):
            path.chmod((0o555 if path.is_relative_to(out) else 0o755) if path.is_dir() else 0o444)
        try:
            said = finished(
                child("without_privileges", "signalled_at", 1, signal.SIGKILL, *arguments), status=2
            )
        finally:
            for path in (folder, *folder.rglob("*")):
                path.chmod(0o755)
        (sentence,) = sentences(said)
        assert "cannot be written (Permission denied): choose another output folder" in sentence
