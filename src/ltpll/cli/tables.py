"""Reading the user's tables for train and predict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ltpll.cli.console import print_line
from ltpll.formatting import counted

if TYPE_CHECKING:
    from ltpll.cleaning.dataset import Examples, TableSource

MOST_SHOWN = 8


def read_source(
    source: TableSource, *, needs_candidates: bool = True, device: str = "auto"
) -> Examples:
    """Read the examples of a source, and print how they were read and which pictures were
    skipped.
    """
    from ltpll.cleaning.dataset import read_examples
    from ltpll.cli.progress import reading_progress

    with reading_progress() as on_progress:
        examples = read_examples(
            source, needs_candidates=needs_candidates, device=device, on_progress=on_progress
        )
    for note in examples.table.notes:
        print_line(note)
    print_skipped(examples.problems)
    return examples


def print_skipped(problems: Sequence[tuple[str, str]]) -> None:
    """Print which pictures were skipped, each with the reason."""
    if problems:
        print_line(
            f"{counted(len(problems), 'picture')} {'was' if len(problems) == 1 else 'were'} "
            "skipped:"
        )
    for path, reason in problems[:MOST_SHOWN]:
        print_line(f"  {path} {reason}")
    if len(problems) > MOST_SHOWN:
        print_line(f"  and {len(problems) - MOST_SHOWN} more")
