"""The review command: write the rows of a trained run that a person should look at first."""

from __future__ import annotations

from typing import Annotated

import typer

from ltpll.cleaning.settings import TrainJob
from ltpll.cli.console import MOST_SHOWN, print_line
from ltpll.cli.options import OwnRun, TableOut, WrittenSeparator, output_option
from ltpll.cli.outputs import check_outputs
from ltpll.errors import InputError
from ltpll.formatting import command, counted


def review(
    context: typer.Context,
    run: OwnRun,
    out: TableOut,
    n: Annotated[int, output_option("--n", help="Number of rows.", min=1)] = 100,
    separator: WrittenSeparator = None,
) -> None:
    """Write a queue of rows whose labels are most doubtful, with an empty column for answers, which
    `ltpll train --reviewed` takes back.
    """
    from ltpll.cleaning.review import review_columns, review_rows
    from ltpll.cleaning.stored_tables import read_cleaned
    from ltpll.tables.writers import write_table

    check_outputs(context, out)
    table = read_cleaned(run)
    rows = review_rows(table, n)
    if not len(rows):
        raise InputError(
            "There is nothing to review: no row that was trained on has a doubtful label; "
            "train with --folds 5 to find some."
        )
    columns = review_columns(table, rows, separator)
    write_table(out, columns)
    print_line(
        f"About {table.doubts[rows].sum():.0f} of the {counted(len(rows), 'label')} in the queue "
        f"are expected to be wrong, and {table.doubts.sum():.0f} in the whole table."
    )
    for name, why in list(zip(columns["id"], columns["why"], strict=True))[:MOST_SHOWN]:
        print_line(f"  {name}: {why}")
    if len(rows) > MOST_SHOWN:
        print_line(f"  … and {len(rows) - MOST_SHOWN:,} more in {out}")
    print_line(f"Wrote {out}")
    several = table.separator.join("ab")
    print_line(
        f"Next: fill in the column answer with a class, with several as in {several}, or with "
        "? if no class fits; then"
    )
    earlier = [] if table.reviewed is None else ["--reviewed", "EARLIER_ANSWERS"]
    words = TrainJob.of_record(table.record).words()
    words = [*earlier, "--reviewed", str(out), "--out", "NEW_RUN", *words]
    print_line(command("ltpll", "train", table.record["source"]["table"], *words))
