"""The convert command: files of labelling tools, detectors and MATLAB, as plain tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ltpll.cleaning.settings import DataFiles, TrainJob
from ltpll.cli.console import print_line
from ltpll.cli.options import TableOut, takes_settings
from ltpll.cli.outputs import check_outputs
from ltpll.formatting import command, counted


@takes_settings("table.objects", "table.control", "table.path", "table.top_k", "table.mass")
def convert(
    job: TrainJob,
    context: typer.Context,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="Export of Label Studio, predictions of SpeciesNet, results of MegaDetector, "
            "annotations of COCO (.json, .jsonl), or a MATLAB file (.mat).",
        ),
    ],
    out: TableOut,
) -> None:
    """Write the file of a labelling tool, a detector or MATLAB as a table that `ltpll train` reads.

    Votes of several annotators become one row each; scores are written as JSON.
    """
    from ltpll.cli.reading import reading_progress
    from ltpll.convert.open import read_as_plain_table
    from ltpll.tables.writers import write_table

    source, out = source.expanduser(), out.expanduser()
    check_outputs(context, out)
    with reading_progress() as on_progress:
        table = read_as_plain_table(
            source, job.table, lambda done, total: on_progress("table", done, total)
        )
    write_table(out, table.columns)
    for note in table.notes:
        print_line(note)
    names = list(table.columns)
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    print_line(f"Wrote {counted(len(table.columns[names[0]]), 'row')} to {out}: {shown}")
    files = DataFiles(images="FOLDER" if "path" in names else None)
    words = TrainJob(data=files, table=table.reading).words()
    print_line(f"Next: {command('ltpll', 'train', out, *words, '--out', 'run')}")
