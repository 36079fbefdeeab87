"""What `train` and `benchmark` share: the processes of torchrun, the folder of a run, and
Ctrl-C.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from ltpll.cli.console import console, print_error, print_line
from ltpll.formatting import counted
from ltpll.runs.run import Run

if TYPE_CHECKING:
    from ltpll.cli.progress import ProgressBar
    from ltpll.training.distributed import World


@contextmanager
def exit_on_interrupt(run: Run, progress: ProgressBar) -> Iterator[None]:
    """Finish and close the progress bar at the end; on Ctrl-C, say how to resume and exit with
    status 130.
    """
    try:
        yield
        progress.finish()
    except KeyboardInterrupt:
        progress.close()  # before anything is printed below it
        epochs = run.epochs_logged()
        after = f" after {counted(epochs, 'epoch')}" if epochs else ""
        print_line(f"Interrupted{after}: rerun the command to resume from the last checkpoint.")
        raise typer.Exit(130) from None
    finally:
        progress.close()


@contextmanager
def torchrun_processes(device: str) -> Iterator[tuple[World, str]]:
    """The processes started by torchrun, or this one alone, and the device of this process; only
    the first process prints.
    """
    from ltpll.training.distributed import world_of_torchrun
    from ltpll.validation import chosen_device

    def print_failure(sentence: str) -> None:
        console.show_cursor()  # a progress bar hides it
        print_error(sentence)

    with world_of_torchrun(str(chosen_device(device)), print_failure) as (world, own_device):
        console.quiet = not world.first
        if not world.first:
            warnings.simplefilter("ignore")
        yield world, own_device


def prepare_run(run: Run, world: World, *, fresh: bool) -> bool:
    """Prepare the folder of a run for training; returns whether the run is already finished."""
    if world.first:
        if fresh:
            run.delete_run()
        run.reopen_if_damaged()
    world.wait_for_all()
    return bool(world.value_of_first_process(run.done))
