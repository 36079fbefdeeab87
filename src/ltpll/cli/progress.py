"""Progress bars for reading, embedding and training, and TensorBoard events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich import progress as rich_progress
from rich.console import RenderableType
from rich.progress import BarColumn, TextColumn
from rich.text import Text

from ltpll.cli.console import COMMAND_BEGAN, console, print_line
from ltpll.errors import required_by
from ltpll.formatting import format_duration
from ltpll.runs.run import Record, Run
from ltpll.training.callbacks import UPDATE_SECONDS, Callback, Progress
from ltpll.training.job import Part, Stage


class _BarAboveFigures(rich_progress.Progress):
    """A bar with figures on a second line, because one line is too narrow for both on most
    terminals.
    """

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        for task in self.tasks:
            if task.fields["figures"]:
                yield Text(task.fields["figures"], no_wrap=True, overflow="ellipsis")


class ProgressBar(Progress):
    """The progress of a job as one bar on a terminal, or as lines in a log file."""

    def __init__(self) -> None:
        super().__init__(write=print_line)
        self._finished = False
        self._bar = _BarAboveFigures(
            TextColumn("{task.fields[current]}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[status]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=1.0, current="starting", status="", figures="")

    def start_part(self, part: Part) -> ProgressBar:
        super().start_part(part)
        self._bar.start()
        self._draw()
        return self

    def show_progress(self, important: bool) -> None:
        if console.is_terminal:
            self._draw()
        elif self._finished or self.share_done < 1:  # after the last epoch, results are stored
            super().show_progress(important)

    def finish(self) -> None:
        """Show that everything is done and stored, and how long the command took."""
        self._finished = True
        if self.part is not None and self.share_done >= 1:
            self.show_progress(important=True)

    @property
    def time_left(self) -> str:
        """The time left; at the end, the time that the whole command took."""
        if self.share_done < 1:
            return super().time_left
        return (
            f"finished in {format_duration(time.monotonic() - COMMAND_BEGAN)}"
            if self._finished
            else "finishing"
        )

    def _draw(self) -> None:
        share = self.share_done
        status = " · ".join(filter(None, [f"{int(100 * share)}%", self.time_left]))
        self._bar.update(
            self._task, completed=share, current=self.current, status=status, figures=self.figures
        )

    def close(self) -> None:
        self._bar.stop()


class PictureProgress(ProgressBar):
    """The progress of embedding: how many pictures, or `what`, are done, how many per second, and
    the time left.
    """

    def __init__(self, what: str = "pictures") -> None:
        super().__init__()
        self._what = what

    def __call__(self, done: int, total: int) -> None:
        """Report what is finished; what the first call reports was done before."""
        if self.part is None:
            part = Part(self._what, total, done=done)
            self.plan_stages([Stage([part])])
            self.start_part(part)
        elif done == total or time.monotonic() - self._updated >= UPDATE_SECONDS:
            self.report_epochs(done)

    @property
    def current(self) -> str:
        """How many are done."""
        assert self.part is not None
        return f"{int(self.part.done):,} of {self.part.epochs:,} {self._what}"

    @property
    def figures(self) -> str:
        """The speed."""
        speed = self.stage.speed()
        return f"{speed:,.0f} {self._what}/s" if speed else ""


class TensorBoardEvents(Callback):
    """Writes the record of every epoch to TensorBoard.

    Args:
        run: The run that is trained; the events are in its folder.
    """

    def __init__(self, run: Run) -> None:
        with required_by(
            "The setting run.tensorboard", install="tensorboard", otherwise=", or leave it out"
        ):
            from torch.utils.tensorboard import SummaryWriter
        self.run, self._new_writer = run, SummaryWriter
        self._writer: Any = None

    def on_epoch_end(self, trainer: Any, record: Record) -> None:
        if (
            self._writer is None
        ):  # created at the first epoch, because starting a run clears its folder
            # purge_step hides what a killed process wrote about epochs that are trained again.
            self._writer = self._new_writer(
                str(self.run.folder / "tensorboard"), purge_step=record["epoch"]
            )
        scalars = {
            "loss": record["loss"],
            "lr": record["lr"],
            "target_recovery": record.get("target_recovery"),
        }
        scalars |= {
            f"test/{name}": value
            for name, value in record.get("test", {}).items()
            if isinstance(value, float)
        }
        for name, value in scalars.items():
            if value is not None:
                self._writer.add_scalar(name, value, record["epoch"])
        self._writer.flush()


@contextmanager
def reading_progress() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for reading files, which is shown on terminals only."""
    with rich_progress.Progress(
        TextColumn("reading {task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:.0f} %"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        tasks: dict[str, Any] = {}

        def on_progress(file: str, done: int, total: int) -> None:
            if file not in tasks:
                tasks[file] = progress.add_task(file, total=total)
            progress.update(tasks[file], completed=done, total=total)

        yield on_progress
