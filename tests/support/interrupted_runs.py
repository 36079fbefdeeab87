"""Small trainings for child processes, and ways to interrupt them at a chosen moment."""

import json
import multiprocessing
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import torch

from ltpll.evaluation.during_training import Evaluate
from ltpll.extras import EXTRAS
from ltpll.methods import METHODS
from ltpll.models import build_model
from ltpll.rebalancers import REBALANCERS
from ltpll.runs.run import Run
from ltpll.synthetic import four_squares, uniform_candidates
from ltpll.training.checkpoint import read_checkpoint
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.views import Jitter, Views
from ltpll_research import benchmark as experiment
from ltpll_research.benchmark import Experiment, experiment_run
from ltpll_research.recording import record_training
from ltpll_research.studies import digits, toy
from support.pictures import coloured_images

# The calls that create, rename, delete or flush files.
OPERATIONS = ("replace", "rename", "unlink", "rmdir", "mkdir", "fsync")
TIMES = (
    "seconds",
    "evaluation_seconds",
    "views_per_second",
)  # entries of a log that differ between equal trainings


def points_run(root, *, epochs=2, fresh=False, **options):
    """A recorded training of points on the plane: it writes every file of a run and a checkpoint
    per epoch in a hundredth of a second.
    """
    torch.set_num_threads(1)
    x, y = four_squares([10, 20, 40, 80], seed=0)
    model = build_model("mlp", 0, n_inputs=2, n_classes=4, hidden=(8,))
    trainer = PartialLabelTrainer(
        model,
        METHODS["corr"](),
        REBALANCERS["records"](),
        [EXTRAS["mixup"]()],
        views=Views(strong=(Jitter(0.1),)),
        epochs=epochs,
        batch_size=32,
        lr=0.1,
        device="cpu",
        chunk=64,
    )
    run = Run(Path(root), {"seed": 0})
    with run.locked():
        if fresh:
            run.delete_run()
        if not run.done:
            record_training(
                run,
                trainer,
                x,
                uniform_candidates(y, 4, 0.5, seed=0),
                Evaluate(x, y, y),
                checkpoint_every=1,
                **options,
            )


def images_run(root, epochs=4, device="cpu", double=False, **options):
    """A recorded image experiment: a ResNet with batch norm, image views, RECORDS and mixup."""
    torch.set_num_threads(1)
    experiment.CHECKPOINT_SECONDS = 0.0
    settings = {
        "data": "cifar10",
        "imbalance": 2,
        "ambiguity": 0.2,
        "width": 2,
        "epochs": epochs,
        "batch_size": 16,
        "lr": 0.05,
    }
    settings |= {"extras": ["mixup"]}
    if double:
        build_model = experiment.build_model
        experiment.build_model = lambda *arguments, **more: build_model(*arguments, **more).double()
    run = experiment_run(Path(root), Experiment.from_mapping(settings))
    images = coloured_images(per_class=16, per_test_class=3, side=8)
    experiment.train(run, images, device=device, measure_every=2, **options)


def command(*arguments):
    """Run `ltpll` with these arguments."""
    from ltpll.cli import main

    torch.set_num_threads(1)
    sys.argv = ["ltpll", *arguments]
    main()


def research_command(*arguments):
    """Run `ltpll-research` with these arguments."""
    from ltpll_research.cli import main

    torch.set_num_threads(1)
    sys.argv = ["ltpll-research", *arguments]
    main()


def execute(code, *arguments):
    """Run a script, given as text."""
    sys.argv = ["-c", *arguments]
    exec(code, {"__name__": "__main__"})


def short_study(epochs, *arguments):
    """Run `ltpll-research` in a process group of its own as a shell does, with fewer epochs in each
    run of a study.
    """
    os.setsid()
    for study in (toy, digits):
        study.configs = shortened(study.configs, epochs)
    forking("research_command", *arguments)


def shortened(configs, epochs):
    """The function `configs` of a study, with another number of epochs."""
    return lambda *given, **options: [
        config | {"epochs": epochs} for config in configs(*given, **options)
    ]


def forking(function, *arguments):
    """Call a function of this module whose workers are forked from this process rather than from a
    server that imports torch first.
    """
    get_context = multiprocessing.get_context
    multiprocessing.get_context = lambda method: get_context("fork")
    os.register_at_fork(
        after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL)
    )  # as in a process from that server
    globals()[function](*arguments)


# ---- interruptions -------------------------------------------------------------------------------


def killed_at(moment, function, *arguments, torn=False, count=None, **options):
    """Call a function of this module, and kill this process just before its `moment`-th disk
    operation (0: never).

    With `torn`, a file that was about to be flushed loses its second half. The file `count`
    receives the number of operations.
    """
    seen = 0

    def watched(name, operation):
        def call(*given, **more):
            nonlocal seen
            seen += _changes_something(name, *given, **more)
            if seen == moment:
                if torn and name == "fsync":
                    os.truncate(given[0], os.fstat(given[0]).st_size // 2)
                os.kill(os.getpid(), signal.SIGKILL)
            return operation(*given, **more)

        return call

    for name in OPERATIONS:
        setattr(os, name, watched(name, getattr(os, name)))
    globals()[function](*arguments, **options)
    if count:
        Path(count).write_text(str(seen))


def _changes_something(name, what, *_, dir_fd=None):
    if name == "fsync":
        return not stat.S_ISDIR(
            os.fstat(what).st_mode
        )  # flushing a folder counts with the rename before it
    if name in ("mkdir", "unlink") and dir_fd is None:
        return Path(what).exists() == (name == "unlink")
    return True


def signalled_at(step, number, function, *arguments, **options):
    """Call a function of this module, and send this process a signal in the middle of its `step`-th
    training step.
    """
    seen, original = 0, PartialLabelTrainer.step

    def watched(self, *given):
        nonlocal seen
        seen += 1
        if seen == step:
            os.kill(os.getpid(), number)
        return original(self, *given)

    PartialLabelTrainer.step = watched
    globals()[function](*arguments, **options)


def short_of_room(size, function, *arguments, **options):
    """Call a function of this module with files limited to `size` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    globals()[function](*arguments, **options)


def on_small_disk(folder, size, copy, function, *arguments, **options):
    """Call a function of this module with a file system of `size` bytes mounted at `folder`, and
    copy the folder afterwards.

    Exits with 77 if mounting is not allowed.
    """
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        raise SystemExit(77)
    try:
        globals()[function](*arguments, **options)
    finally:
        shutil.copytree(folder, copy)
        subprocess.run(["umount", folder], check=True)


def without_privileges(function, *arguments, **options):
    """Call a function of this module as a user without root's privileges."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    globals()[function](*arguments, **options)


# ---- comparison ----------------------------------------------------------------------------------


def outcome(root):
    """What a finished run leaves, times excluded: its result, its log and every bit of its last
    checkpoint.
    """
    (marker,) = Path(root).rglob("done")
    folder = marker.parent
    result = json.loads((folder / "result.json").read_text())
    tensors, values = read_checkpoint(folder / "checkpoint.safetensors")
    log = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "result": {
            name: result[name]
            for name in ("config", "last", "best", "curves", "snapshots", "skipped")
        },
        "log": [{key: value for key, value in one.items() if key not in TIMES} for one in log],
        "history": values["history"],
        "tensors": {
            name: tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            for name, tensor in tensors.items()
        },
    }
