"""Reading a user's table for `train` and `predict`, with a progress bar and a list of skipped pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ltpll.cli.console import print_line
from ltpll.cli.progress import reading_progress

if TYPE_CHECKING:
    from ltpll.cleaning.dataset import Examples, Source

MOST_SHOWN = 8


def read_table_of(source: Source, *, needs_candidates: bool = True) -> Examples:
    """Read the examples of a source, and print which pictures were skipped."""
    from ltpll.cleaning.dataset import read_examples

    with reading_progress() as on_progress:
        examples = read_examples(source, needs_candidates=needs_candidates, on_progress=on_progress)
    if examples.problems:
        print_line(f"{len(examples.problems)} pictures were skipped:")
        for path, reason in examples.problems[:MOST_SHOWN]:
            print_line(f"  {path} {reason}")
        if len(examples.problems) > MOST_SHOWN:
            print_line(f"  and {len(examples.problems) - MOST_SHOWN} more")
    return examples
