"""Reading with a progress bar; without torch, so that errors in a table are told at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich import progress as rich_progress
from rich.progress import BarColumn, TextColumn

from ltpll.cli.console import console, print_line, print_skipped
from ltpll.formatting import format_duration

if TYPE_CHECKING:
    from ltpll.cleaning.dataset import Examples, TableSource

READING_SECONDS = 10.0  # between two lines of a log file


def interrupted() -> typer.Exit:
    """The end of a command that can be resumed."""
    print_line("Interrupted: rerun the command to resume.")
    return typer.Exit(130)


@contextmanager
def reading_progress() -> Iterator[Callable[[str, int, int], None]]:
    """The progress of reading and embedding files: a bar on a terminal, or lines in a log file."""
    with rich_progress.Progress(
        TextColumn("reading {task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:.0f} %"),
        rich_progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        tasks: dict[str, Any] = {}
        began: dict[str, float] = {}
        next_line = time.monotonic() + READING_SECONDS

        def on_progress(file: str, done: int, total: int) -> None:
            nonlocal next_line
            now = time.monotonic()
            if file not in tasks:
                tasks[file], began[file] = progress.add_task(file, total=total), now
            progress.update(tasks[file], completed=done, total=total)
            if not console.is_terminal and now >= next_line and 0 < done < total:
                left = format_duration((now - began[file]) * (total - done) / done)
                print_line(f"reading {file}: {done / total:.0%} · {left} left")
                next_line = now + READING_SECONDS

        try:
            yield on_progress
        except KeyboardInterrupt:
            raise interrupted() from None


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
