"""The predict command: label the examples of a new table with a trained run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.console import print_line
from ltpll.cli.options import Device, OnError, OwnRun, TableOut, data_option, output_option
from ltpll.cli.outputs import check_outputs
from ltpll.errors import shown
from ltpll.formatting import counted


def predict(
    context: typer.Context,
    run: OwnRun,
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE", help="New examples, in the format of the table that was trained on."
        ),
    ],
    out: TableOut,
    probabilities: Annotated[
        bool,
        output_option("--probabilities", help="Add a column with the probability of each class."),
    ] = False,
    images: Annotated[Path | None, data_option(help="Folder of the new pictures.")] = None,
    features: Annotated[
        Path | None, data_option(help="File of the new features, as for train.")
    ] = None,
    on_error: OnError = "stop",
    goal: Annotated[
        str | None,
        output_option(
            help="What predictions are for: every class counts the same, or every example does.",
            metavar="balanced|accuracy",
            show_default="the goal of the run",
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """Predict the labels of new examples: label, confidence, runner-up and margin, in the order of
    the table.
    """
    from ltpll.cli.reading import read_source
    from ltpll.runs.run import Run
    from ltpll.runs.schema import Kind
    from ltpll.tables.reading import Reading
    from ltpll.tables.writers import write_table

    check_outputs(context, out)
    record = Run.open(run, Kind.TABLE).result()
    from ltpll.cleaning.prediction import prediction_columns, source_for_new_table

    source = source_for_new_table(run, record, table, images, features, on_error)
    examples = read_source(source, needs_candidates=False, device=device)
    missing = record["source"]["reading"].get("id")
    if source.reading.id is None and missing != Reading.id:
        ids = "row numbers" if examples.table.paths is None else "paths"
        print_line(f"{table} has no column {shown(missing)}, so ids are {ids}.")
    columns = prediction_columns(
        run, record, examples, probabilities=probabilities, device=device, goal=goal
    )
    write_table(out, columns)
    print_line(f"Wrote {counted(len(examples), 'prediction')} to {out}")
