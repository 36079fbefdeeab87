"""Progress bars for reading and training, and TensorBoard events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn

from ltpll.cli.console import console
from ltpll.errors import required_by
from ltpll.runs.run import Record, Run

OnEpoch = Callable[[Record], None]


def epoch_progress(run: Run, epochs: int, *, tensorboard: bool = False, name: str = "") -> tuple[OnEpoch, Callable[[], None]]:
    """Start a progress bar for a training.

    Args:
        run: The run that is trained; if it resumes, the bar starts at the epochs that its log holds.
        epochs: The epochs of the whole training.
        tensorboard: Whether to write every record to TensorBoard too.
        name: What is trained, where one run has several trainings.

    Returns:
        A function to call with the record of every epoch, and one that closes the bar; closing it twice does no harm.
    """
    progress = Progress(
        *([TextColumn(name)] if name else []),
        TextColumn("epoch {task.completed:.0f}/{task.total:.0f}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[status]}"),
        console=console,
    )
    finished = min(run.epochs_logged(), epochs) if name in ("", "training") else 0
    task = progress.add_task("", total=epochs, completed=finished, status="resuming" if finished else "starting")
    write_events = _event_writer(run) if tensorboard else None
    first, started = 0, time.perf_counter()
    figures: dict[str, str] = {}
    progress.start()

    def on_epoch(record: Record) -> None:
        nonlocal first, started
        epoch = record["epoch"]
        if not first:
            first, started = epoch, time.perf_counter()  # the first epoch includes compilation
        test = record.get("test", {})
        if "balanced_accuracy" in test:
            figures["accuracy"] = f"accuracy {test['balanced_accuracy']:.1%}"
        elif "covering_rate" in test:
            figures["accuracy"] = f"inside sets {test['covering_rate']:.1%}"
        if "target_recovery" in record:
            figures["recovery"] = f"recovery {record['target_recovery']:.1%}"
        if epoch > first:
            seconds_per_epoch = (time.perf_counter() - started) / (epoch - first)
            figures["left"] = f"{(epochs - epoch) * seconds_per_epoch:.0f} s left"
        if "views_per_second" in record:
            figures["speed"] = f"{record['views_per_second']:,} views/s"
        progress.update(task, completed=epoch, status=" · ".join(figures.values()))
        if write_events:
            write_events(record)

    return on_epoch, progress.stop


def _event_writer(run: Run) -> OnEpoch:
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
    with Progress(
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
