"""The console that every command prints to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ltpll.errors import printable
from ltpll.formatting import are, counted

MOST_SHOWN = 8  # of names, classes or rows
console = Console(highlight=False, emoji=False)  # a colon is a colon


def print_line(text: str) -> None:
    """Print one line as it is: square brackets are not markup, and long paths are not broken."""
    console.print(printable(text), markup=False, soft_wrap=True)


def print_note(text: str) -> None:
    """Print one line to standard error."""
    errors = Console(stderr=True, highlight=False, emoji=False)
    errors.print(printable(text), markup=False, soft_wrap=True)


def print_skipped(problems: Sequence[tuple[str, str]]) -> None:
    """Print which pictures were skipped, each with the reason."""
    if problems:
        print_line(f"{counted(len(problems), 'picture')} {are(len(problems))} skipped:")
    for path, reason in problems[:MOST_SHOWN]:
        print_line(f"  {path} {reason}")
    if len(problems) > MOST_SHOWN:
        print_line(f"  and {len(problems) - MOST_SHOWN} more")


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[int] = ()
) -> None:
    """Print a small table; the columns whose numbers are in `left` are aligned to the left."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(
            heading, justify="left" if i in left else "right", no_wrap=True, overflow="ellipsis"
        )
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
