"""Launching: trains the runs of a grid that are missing, one after the other or several side by side, and goes on past failures."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ltpll.data.benchmarks.image_sets import ImageSet, load_image_set
from ltpll.errors import BusyError, InputError
from ltpll.experiments.benchmark import Experiment, experiment_run, train
from ltpll.processes import in_processes
from ltpll.runs.run import Record, Run


@dataclass(frozen=True)
class Outcome:
    """What became of one run; `reason` says why it failed."""

    experiment: Experiment
    run: Run
    reason: str = ""


# Called when a run starts, with its place in the grid; gives what to do with its epochs, and how to stop doing it.
Watch = Callable[[int, Experiment, Run], tuple[Callable[[Record], None] | None, Callable[[], None]]]


def quiet(number: int, experiment: Experiment, run: Run) -> tuple[None, Callable[[], None]]:
    return None, lambda: None


def launch(
    wanted: Sequence[Experiment], root: Path, *, data_root: Path | None, device: str, measure_every: int = 10, watch: Watch = quiet
) -> list[Outcome]:
    """Train every run that is not finished, except those that another process is training.

    A failed run is reported and leaves its reason in its folder; the others go on.
    """
    outcomes = []
    images: dict[str, ImageSet] = {}
    for number, experiment in enumerate(wanted):
        run = experiment_run(root, experiment)
        try:
            run.reopen_if_damaged()
        except BusyError:
            continue
        if run.done:
            continue
        on_epoch, close = watch(number, experiment, run)
        try:
            if experiment.data not in images:
                images = {experiment.data: load_image_set(experiment.data, data_root)}  # only one set in memory
            train(run, images[experiment.data], device=device, measure_every=measure_every, on_epoch=on_epoch)
            outcomes.append(Outcome(experiment, run))
        except BusyError:
            continue
        except Exception as error:  # whatever happens in one training must not end the grid
            reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            _leave_reason(run, reason)
            outcomes.append(Outcome(experiment, run, reason))
        finally:
            close()
    return outcomes


def launch_side_by_side(
    wanted: Sequence[Experiment],
    root: Path,
    *,
    workers: int,
    data_root: Path | None,
    device: str,
    measure_every: int = 10,
    on_wait: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """The same in several processes, one run at a time in each."""
    arguments = [(experiment, root, data_root, device, measure_every) for experiment in wanted]
    done = in_processes(launch_one, arguments, min(workers, len(wanted)), on_wait) if wanted else []
    return [outcome for outcomes in done for outcome in outcomes]


def launch_one(experiment: Experiment, root: Path, data_root: Path | None, device: str, measure_every: int) -> list[Outcome]:
    """What one process of several does; nothing comes back for a run that was finished, or is trained elsewhere."""
    return launch([experiment], root, data_root=data_root, device=device, measure_every=measure_every)


def _leave_reason(run: Run, reason: str) -> None:
    # Often it is the disk that is full: then the reason is printed, and that has to do.
    with suppress(OSError):
        (run.folder / "failed.txt").write_text(f"{reason}\n\n{traceback.format_exc()}", encoding="utf-8")
