"""`train --prune`: remove candidates that the nearest neighbours' sets vote against."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ltpll.cli.console import print_line
from ltpll.formatting import counted

if TYPE_CHECKING:
    from ltpll.cleaning.dataset import Examples
    from ltpll.cleaning.pruned_tables import PrunedExamples


def prune_read_examples(examples: Examples) -> PrunedExamples:
    """Prune the sets of a table, and print what was removed."""
    from ltpll.cleaning.pruned_tables import prune_examples
    from ltpll.cli.progress import reading_progress

    with reading_progress("comparing") as on_progress:
        found = prune_examples(
            examples, on_progress=lambda done, total: on_progress("rows", done, total)
        )
    pruned, before, after = found.of_training, found.of_training.given, found.of_training.candidates
    removed, n = len(before.labels) - len(after.labels), len(before)
    print_line(
        f"Neighbours voted against {removed:,} of {counted(len(before.labels), 'candidate')}, in {counted(len(pruned.changed()), 'set')}: "
        f"{len(before.labels) / n:.2f} → {len(after.labels) / n:.2f} candidates per set."
    )
    if found.lost is not None:
        lost = found.lost
        print_line(
            f"Lost true labels (for evaluation only): {lost.lost:,} of {lost.rows:,} ({lost.lost / lost.rows:.1%}), and in the rarest "
            f"third of the classes {lost.rare_lost:,} of {lost.rare_rows:,} ({lost.rare_lost / lost.rare_rows:.1%})."
        )
    return found
