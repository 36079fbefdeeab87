"""Formatting: durations, sizes, counts, names and command lines as text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ltpll.errors import printable


def format_duration(seconds: float | None) -> str:
    """A duration in a fitting unit: 40 s, 12 min, 3.5 h; a question mark if it is unknown."""
    if seconds is None:
        return "?"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def format_bytes(n_bytes: int) -> str:
    """A size in a fitting unit: 512 bytes, 1.5 MiB."""
    value, units = float(n_bytes), iter(("bytes", "KiB", "MiB", "GiB"))
    unit = next(units)
    for larger in units:
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value >= 10 or unit == "bytes" else f"{value:.1f} {unit}"


def format_names(names: Sequence[str], most: int = 20) -> str:
    """Names on one line, shortened if there are many."""
    some = ", ".join(printable(" ".join(name.split())[:60]) for name in names[:most])
    return some + (f" and {len(names) - most} more" if len(names) > most else "")


def command(*words: object) -> str:
    """A command line to be copied: words that a shell would take apart are quoted."""
    return shlex.join(map(str, words))


def counted(n: int, one: str, many: str = "") -> str:
    """A number and what it counts: 1 row, 2,000 rows, 3 classes."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def are(n: int) -> str:
    """The verb that goes with a number: 1 class is, 2 classes are, and also 1 of 3 classes is."""
    return "is" if n == 1 else "are"
