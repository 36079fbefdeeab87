"""The console that every command prints to."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Literal

from rich.console import Console

from ltpll.errors import printable

COMMAND_BEGAN = time.monotonic()  # all commands import this module before they do anything
console = Console(highlight=False, emoji=False)  # a colon is a colon


def print_line(text: str) -> None:
    """Print one line as it is: square brackets are not markup, and long paths are not broken."""
    console.print(printable(text), markup=False, soft_wrap=True)


def print_note(text: str) -> None:
    """Print one line to standard error."""
    errors = Console(stderr=True, highlight=False, emoji=False)
    errors.print(printable(text), markup=False, soft_wrap=True)


def print_error(sentence: str) -> None:
    """Print what went wrong to standard error."""
    print_note(f"error: {sentence}")


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[int] = ()
) -> None:
    """Print a small table; the columns whose numbers are in `left` are aligned to the left."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, heading in enumerate(headings):
        side: Literal["left", "right"] = "left" if i in left else "right"
        table.add_column(heading, justify=side, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
