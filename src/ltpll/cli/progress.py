"""What commands that take long share: progress bars, interrupts, TensorBoard events, and the
processes of torchrun.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich import progress as rich_progress
from rich.console import RenderableType
from rich.progress import BarColumn, TextColumn
from rich.text import Text

from ltpll.cli.console import console, print_line, print_note
from ltpll.cli.reading import interrupted
from ltpll.runs.run import Run
from ltpll.training.callbacks import Progress
from ltpll.training.distributed import World, world_of_torchrun
from ltpll.training.job import Part
from ltpll.validation import chosen_device


class _BarAboveFigures(rich_progress.Progress):
    """A bar with figures on a second line: most terminals are too narrow for both on one."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        for task in self.tasks:
            if task.fields["figures"]:
                yield Text(task.fields["figures"], no_wrap=True, overflow="ellipsis")


class ProgressBar(Progress):
    """The progress of a job as one bar on a terminal, or as lines in a log file.

    On Ctrl-C in its `with` block, it says that the command can be resumed, and exits with status
    130.
    """

    def __init__(self) -> None:
        super().__init__(write=print_line)
        self._bar = _BarAboveFigures(
            TextColumn("{task.fields[current]}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[status]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=1.0, current="starting", status="", figures="")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()  # before anything is printed below it
        if kind is KeyboardInterrupt:
            raise interrupted() from None

    def start_part(self, part: Part, *others: Part) -> ProgressBar:
        super().start_part(part, *others)
        self._bar.start()
        self._draw()
        return self

    def show_progress(self, important: bool) -> None:
        if console.is_terminal:
            self._draw()
        else:
            super().show_progress(important)

    def _draw(self) -> None:
        share = self.share_done
        status = " · ".join(filter(None, [f"{int(100 * share)}%", self.time_left]))
        self._bar.update(
            self._task, completed=share, current=self.current, status=status, figures=self.figures
        )


@contextmanager
def torchrun_processes(device: str) -> Iterator[tuple[World, str]]:
    """The processes of torchrun, or this one alone, and its device; only the first one prints."""

    def print_failure(sentence: str) -> None:
        console.show_cursor()  # a progress bar hides it
        print_note(f"error: {sentence}")

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
