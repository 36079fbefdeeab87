"""The console that every command prints to."""

from __future__ import annotations

import time

from rich.console import Console

from ltpll.errors import printable

COMMAND_BEGAN = time.monotonic()  # all commands import this module before they do anything
console = Console(highlight=False, emoji=False)  # a colon is a colon


def print_line(text: str) -> None:
    """Print one line as it is: square brackets are not markup, and long paths are not broken."""
    console.print(printable(text), markup=False, soft_wrap=True)


def print_note(text: str) -> None:
    """Print one line to standard error."""
    Console(stderr=True, highlight=False, emoji=False).print(
        printable(text), markup=False, soft_wrap=True
    )


def print_error(sentence: str) -> None:
    """Print what went wrong to standard error."""
    print_note(f"error: {sentence}")
