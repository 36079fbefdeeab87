"""Progress bars for reading and training, and TensorBoard events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich import progress as rich_progress
from rich.progress import BarColumn, TextColumn

from ltpll.cli.console import console, print_line
from ltpll.errors import required_by
from ltpll.runs.run import Record, Run
from ltpll.training.callbacks import Progress


class ProgressBar(Progress):
    """The progress of a training as a bar on a terminal, or as lines in a log file.

    Args:
        run: The run that is trained.
        epochs: The epochs of the whole training.
        later_epochs: Epochs of other trainings of the same run that follow.
        tensorboard: Whether to write every record to TensorBoard too.
        name: What is trained, if one run has several trainings.
    """

    def __init__(self, run: Run, epochs: int, *, later_epochs: float = 0.0, tensorboard: bool = False, name: str = "") -> None:
        super().__init__(10.0, print_line, epochs=epochs, later_epochs=later_epochs, name=name)
        self._write_events = _event_writer(run) if tensorboard else None
        self._bar = rich_progress.Progress(
            *([TextColumn(name)] if name else []),
            TextColumn("epoch {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[status]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=epochs, status="starting")
        self._bar.start()

    def on_epoch_end(self, trainer: Any, record: Record) -> None:
        super().on_epoch_end(trainer, record)
        if self._write_events:
            self._write_events(record)

    def show(self, done: float) -> None:
        self._bar.update(self._task, completed=done, status=self.text)
        if not console.is_terminal:
            super().show(done)

    def close(self) -> None:
        self._bar.stop()


def _event_writer(run: Run) -> Callable[[Record], None]:
    with required_by("--tensorboard", install="tensorboard", otherwise=", or leave it out"):
        from torch.utils.tensorboard import SummaryWriter
    writer: Any = None

    def write(record: Record) -> None:
        nonlocal writer
        if writer is None:  # created at the first epoch, because starting a run clears its folder
            # purge_step hides what a killed process wrote about epochs that are trained again.
            writer = SummaryWriter(str(run.folder / "tensorboard"), purge_step=record["epoch"])
        scalars = {"loss": record["loss"], "lr": record["lr"], "target_recovery": record.get("target_recovery")}
        scalars |= {f"test/{name}": value for name, value in record.get("test", {}).items() if isinstance(value, float)}
        for name, value in scalars.items():
            if value is not None:
                writer.add_scalar(name, value, record["epoch"])
        writer.flush()

    return write


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
