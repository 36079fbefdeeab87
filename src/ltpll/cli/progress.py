"""Live progress of one training: epoch, speed, time left, accuracy and target recovery; TensorBoard on request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.progress import BarColumn, Progress, TextColumn

from ltpll.cli.console import console
from ltpll.errors import required_by
from ltpll.runs.run import Record, Run


def watch_epochs(run: Run, epochs: int, tensorboard: bool, name: str = "") -> tuple[Callable[[Record], None], Callable[[], None]]:
    """What to do with every epoch's record, and how to stop doing it."""
    progress = Progress(
        *([TextColumn(name)] if name else []),
        TextColumn("epoch {task.completed:.0f}/{task.total:.0f}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[said]}"),
        console=console,
    )
    behind = run.epochs_logged() if name in ("", "training") else 0  # of a run that goes on
    task = progress.add_task("", total=epochs, completed=min(behind, epochs), said="going on" if behind else "starting")
    writer = _event_writer(run) if tensorboard else None
    started, first = time.perf_counter(), 0
    figures: dict[str, str] = {}
    progress.start()

    def watch(record: Record) -> None:
        nonlocal first, started
        epoch = record["epoch"]
        if not first:
            first, started = epoch, time.perf_counter()  # the first epoch compiles and says nothing of the speed
        test = record.get("test", {})
        if "balanced_accuracy" in test:
            figures["accuracy"] = f"accuracy {test['balanced_accuracy']:.1%}"
        elif "covering_rate" in test:
            figures["accuracy"] = f"covered {test['covering_rate']:.1%}"
        if "target_recovery" in record:
            figures["recovery"] = f"recovery {record['target_recovery']:.1%}"
        if epoch > first:
            pace = (time.perf_counter() - started) / (epoch - first)
            figures["left"] = f"{(epochs - epoch) * pace:.0f} s left"
        if "views_per_second" in record:
            figures["speed"] = f"{record['views_per_second']:,} views/s"
        progress.update(task, completed=epoch, said=" · ".join(figures.values()))
        if writer:
            writer(record)

    def close() -> None:
        progress.stop()

    return watch, close


@contextmanager
def interruptible(run: Run, close: Callable[[], None]) -> Iterator[None]:
    """Around a training that is watched: closes what watches it, and says of an interrupt how the run goes on."""
    try:
        yield
    except KeyboardInterrupt:
        close()  # before anything is printed below it; closing twice does nothing
        console.print(f"Interrupted after {run.epochs_logged()} epochs: the same command goes on from the last checkpoint.")
        raise typer.Exit(130) from None
    finally:
        close()


def _event_writer(run: Run) -> Callable[[Record], None]:
    with required_by("--tensorboard", install="tensorboard", otherwise=", or leave it out"):
        from torch.utils.tensorboard import SummaryWriter
    opened: list[Any] = []

    def write(record: Record) -> None:
        if not opened:  # at the first epoch, since starting a run clears its folder
            # What a killed process wrote about epochs that are trained again is not shown.
            opened.append(SummaryWriter(str(run.folder / "tensorboard"), purge_step=record["epoch"]))
        events = opened[0]
        flat = {"loss": record["loss"], "lr": record["lr"], "target_recovery": record.get("target_recovery")}
        flat |= {f"test/{name}": value for name, value in record.get("test", {}).items() if isinstance(value, float)}
        for name, value in flat.items():
            if value is not None:
                events.add_scalar(name, value, record["epoch"])
        events.flush()

    return write
