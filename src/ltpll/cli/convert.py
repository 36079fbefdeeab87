"""The `convert` command: files of labelling tools, detectors and MATLAB as plain tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import ltpll.cli.options as opt
from ltpll.cli.console import print_line
from ltpll.cli.outputs import check_outputs
from ltpll.cli.training import given
from ltpll.formatting import command, counted


def convert(
    context: typer.Context,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="Export of Label Studio, predictions of SpeciesNet, results of MegaDetector, "
            "annotations of COCO (.json, .jsonl), or a MATLAB file (.mat).",
        ),
    ],
    out: Annotated[Path, opt.output_option(help="Table to write: .csv, .tsv or .parquet.")],
    objects: opt.Objects = None,
    control: opt.Control = None,
    path_member: Annotated[
        str | None,
        opt.column_option(
            "--path",
            help="Member of a Label Studio task that holds the picture.",
            show_default="image, or the only one that looks like a picture",
        ),
    ] = None,
    top_k: Annotated[
        int | None, opt.column_option(help="Keep the k classes with the highest scores.", min=1)
    ] = None,
    mass: Annotated[
        float | None, opt.column_option(help="Keep the fewest classes whose scores sum to this.")
    ] = None,
) -> None:
    """Write the file of a labelling tool, a detector or MATLAB as a table that `ltpll train` reads.

    Votes of several annotators become one row each; scores are written behind the names.
    """
    from ltpll.cli.progress import reading_progress
    from ltpll.convert.plain_table import read_as_plain_table
    from ltpll.tables.reading import Reading
    from ltpll.tables.writers import write_table

    source, out = source.expanduser(), out.expanduser()
    check_outputs(context, out)
    options = given(objects=objects, control=control, path=path_member, top_k=top_k, mass=mass)
    with reading_progress("reading") as on_progress:
        table = read_as_plain_table(
            source, Reading.of(options), lambda done, total: on_progress("table", done, total)
        )
    write_table(out, table.columns)
    for note in table.notes:
        print_line(note)
    n = len(next(iter(table.columns.values())))
    print_line(f"Wrote {counted(n, 'row')} to {out}: {', '.join(list(table.columns)[:8])}")
    words: list[object] = ["ltpll", "train", out]
    if table.reading.annotators is not None:
        words += ["--from-annotators", table.reading.annotators]
    for name in ("annotation", "group"):
        if getattr(table.reading, name) is not None:
            words += [f"--{name}", getattr(table.reading, name)]
    if "path" in table.columns:
        words += ["--images", "FOLDER"]
    print_line(f"Next: {command(*words, '--out', 'run')}")
