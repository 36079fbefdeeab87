"""The `convert` command: files of labelling tools, detectors and MATLAB as plain tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.console import print_line
from ltpll.cli.options import data_option, output_option
from ltpll.cli.outputs import check_outputs
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
    out: Annotated[Path, output_option(help="Table to write: .csv, .tsv or .parquet.")],
    objects: Annotated[
        str,
        data_option(
            help="Examples of a COCO file: whole images, or one crop per annotation.",
            metavar="images|crops",
        ),
    ] = "images",
    control: Annotated[
        str | None,
        data_option(
            help="Question of a Label Studio project whose choices are read.",
            show_default="the only one",
        ),
    ] = None,
    picture: Annotated[
        str,
        data_option("--path", help="Member of a Label Studio task that holds the picture."),
    ] = "image",
    top_k: Annotated[
        int | None, data_option(help="Keep the k classes with the highest scores.", min=1)
    ] = None,
    mass: Annotated[
        float | None, data_option(help="Keep the fewest classes whose scores sum to this.")
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
    path = Reading.path if picture == "image" else picture
    reading = Reading(objects=objects, control=control, path=path, top_k=top_k, mass=mass)
    with reading_progress() as on_progress:
        table = read_as_plain_table(
            source, reading, lambda done, total: on_progress("table", done, total)
        )
    write_table(out, table.columns)
    for note in table.notes:
        print_line(note)
    names = list(table.columns)
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    print_line(f"Wrote {counted(len(table.columns[names[0]]), 'row')} to {out}: {shown}")
    how = {
        "--from-annotators": table.reading.annotators,
        "--annotation": table.reading.annotation,
        "--group": table.reading.group,
        "--images": "FOLDER" if "path" in names else None,
    }
    words = [word for name, value in how.items() if value is not None for word in (name, value)]
    print_line(f"Next: {command('ltpll', 'train', out, *words, '--out', 'run')}")
