"""Launches the missing runs of a grid, one after the other or in parallel processes; a failed run does not stop the others."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ltpll.errors import BusyError, InputError
from ltpll.processes import in_processes
from ltpll.runs.run import Run
from ltpll.runs.run_files import RunFile
from ltpll.training.callbacks import Progress
from ltpll_research.benchmark import Experiment, experiment_run, train
from ltpll_research.image_sets.prepared import ImageSet, load_image_set


@dataclass(frozen=True)
class Outcome:
    """How one run ended; `reason` is empty, or says why it failed."""

    experiment: Experiment
    run: Run
    reason: str = ""


RunStart = Callable[[int, Experiment, Run], Progress]
"""Called with a run's place in the grid when it starts; returns what reports its progress."""


def launch(
    wanted: Sequence[Experiment],
    root: Path,
    *,
    data_root: Path | None,
    device: str,
    measure_every: int = 1,
    on_start: RunStart | None = None,
) -> list[Outcome]:
    """Train every experiment that is neither finished nor being trained by another process.

    If a run fails, the reason is returned and written to its folder, and the next run starts.
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
        progress = on_start(number, experiment, run) if on_start else None
        try:
            if experiment.data not in images:
                images = {
                    experiment.data: load_image_set(experiment.data, data_root)
                }  # keep only one set in memory
            train(
                run,
                images[experiment.data],
                device=device,
                measure_every=measure_every,
                callbacks=[progress] if progress else [],
            )
            outcomes.append(Outcome(experiment, run))
        except BusyError:
            continue
        except Exception as error:  # no failure of one run may stop the others
            reason = (
                str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            )
            _write_reason(run, reason)
            outcomes.append(Outcome(experiment, run, reason))
    return outcomes


def launch_in_processes(
    wanted: Sequence[Experiment],
    root: Path,
    *,
    workers: int,
    data_root: Path | None,
    device: str,
    measure_every: int = 1,
    on_wait: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Do the same in `workers` processes, each of which trains one run at a time."""
    arguments = [(experiment, root, data_root, device, measure_every) for experiment in wanted]
    done = in_processes(launch_one, arguments, min(workers, len(wanted)), on_wait) if wanted else []
    return [outcome for outcomes in done for outcome in outcomes]


def launch_one(
    experiment: Experiment, root: Path, data_root: Path | None, device: str, measure_every: int
) -> list[Outcome]:
    """Train one experiment; the list is empty if it is finished or being trained elsewhere."""
    return launch(
        [experiment], root, data_root=data_root, device=device, measure_every=measure_every
    )


def _write_reason(run: Run, reason: str) -> None:
    # If the disk is full, which is a common reason, the message on the screen has to do.
    with suppress(OSError):
        (run.folder / RunFile.FAILED).write_text(
            f"{reason}\n\n{traceback.format_exc()}", encoding="utf-8"
        )
