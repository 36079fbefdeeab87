"""What commands that take long share: progress bars, interrupts, TensorBoard events, and the
processes of torchrun.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import typer
from rich import progress as rich_progress
from rich.console import RenderableType
from rich.progress import BarColumn, TextColumn
from rich.text import Text

from ltpll.cli.console import console, print_line, print_note, print_skipped
from ltpll.errors import required_by
from ltpll.runs.run import Record, Run
from ltpll.training.callbacks import UPDATE_SECONDS, Callback, Progress
from ltpll.training.distributed import World, world_of_torchrun
from ltpll.training.job import Part, Stage
from ltpll.validation import chosen_device

if TYPE_CHECKING:
    from ltpll.cleaning.dataset import Examples, TableSource


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
            print_line("Interrupted: rerun the command to resume.")
            raise typer.Exit(130) from None

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


class PictureProgress(ProgressBar):
    """The progress of embedding: how many pictures, or `what`, are done, and the time left."""

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
        return f"{self.speed:,.0f} {self._what}/s" if self.speed else ""


class TensorBoardEvents(Callback):
    """Writes the record of every epoch to TensorBoard, in the folder of the run."""

    def __init__(self, run: Run) -> None:
        with required_by(
            "The setting run.tensorboard", install="tensorboard", otherwise=", or leave it out"
        ):
            from torch.utils.tensorboard import SummaryWriter
        self.run, self._new_writer = run, SummaryWriter
        self._writer: Any = None

    def on_epoch_end(self, trainer: Any, record: Record) -> None:
        epoch = record["epoch"]
        if self._writer is None:  # not before, because starting a run clears its folder
            # purge_step hides what a killed process wrote about epochs that are trained again.
            folder = str(self.run.folder / "tensorboard")
            self._writer = self._new_writer(folder, purge_step=epoch)
        figures = {name: record.get(name) for name in ("loss", "lr", "target_recovery")}
        figures |= {f"test/{name}": value for name, value in record.get("test", {}).items()}
        for name, value in figures.items():
            if isinstance(value, float):
                self._writer.add_scalar(name, value, epoch)
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


def read_source(
    source: TableSource, *, needs_candidates: bool = True, device: str = "auto"
) -> Examples:
    """Read the examples of a source, and print how, and which pictures were skipped."""
    from ltpll.cleaning.dataset import read_examples

    with reading_progress() as on_progress:
        examples = read_examples(
            source, needs_candidates=needs_candidates, device=device, on_progress=on_progress
        )
    for note in examples.table.notes:
        print_line(note)
    print_skipped(examples.problems)
    return examples


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
