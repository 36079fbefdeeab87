"""The one console that commands print to, and what they say beside it."""

from __future__ import annotations

from rich.console import Console

from ltpll.errors import printable

console = Console(highlight=False)


def say_aside(sentence: str) -> None:
    """A line on standard error."""
    # markup=False: a file name in square brackets is a file name.
    Console(stderr=True, highlight=False).print(sentence, markup=False, soft_wrap=True)


def say_error(sentence: str) -> None:
    """What went wrong, in one sentence, on standard error."""
    say_aside(f"error: {printable(sentence)}")
