"""The clean command: write the cleaned labels of a trained run, and tables about them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ltpll.cli.console import print_line
from ltpll.cli.options import FalseDiscoveries, OwnRun, WrittenSeparator, output_option
from ltpll.cli.outputs import check_outputs
from ltpll.errors import InputError
from ltpll.formatting import counted

if TYPE_CHECKING:
    from ltpll.cleaning.results import CleanedTable


def clean(
    context: typer.Context,
    run: OwnRun,
    out: Annotated[
        Path,
        output_option(
            help="Table to write: .csv, .tsv or .parquet; .json for pre-annotations of Label "
            "Studio."
        ),
    ],
    separator: WrittenSeparator = None,
    false_discoveries: FalseDiscoveries = None,
    for_review: Annotated[
        int | None,
        output_option(
            help="Mark this many of the most suspicious sets in a column `for_review`.",
            min=0,
            show_default=False,
        ),
    ] = None,
    control: Annotated[
        str | None,
        output_option(
            help="Names in the labelling interface of Label Studio, for .json.",
            metavar="NAME:OBJECT",
            show_default="as imported, or choice:image",
        ),
    ] = None,
) -> None:
    """Write the cleaned label of every example, its confidence, and whether its set lacks it.

    A table of classes and, for sets from annotators, a table of annotators are written next to it.
    """
    from ltpll.cleaning.results import annotator_columns, class_columns, cleaned_columns, summary
    from ltpll.cleaning.stored_tables import read_cleaned
    from ltpll.tables.streaming import TABLE_SUFFIXES
    from ltpll.tables.writers import write_table

    as_tasks = out.suffix.lower() == ".json"
    suffix = ".csv" if as_tasks else out.suffix
    of_classes, of_annotators = (
        out.with_name(f"{out.stem}.{name}{suffix}") for name in ("classes", "annotators")
    )
    check_outputs(context, out, of_classes, of_annotators, suffixes=(*TABLE_SUFFIXES, ".json"))
    if control is not None and not as_tasks:
        problem = f"--control is for pre-annotations of Label Studio, but {out} is a table"
        raise InputError(f"{problem}: leave it out, or write to a .json file.")
    cleaned = read_cleaned(run, false_discoveries)
    if as_tasks:
        _write_tasks(out, run, cleaned, control)
    else:
        write_table(out, cleaned_columns(cleaned, separator, for_review))
    tables = {of_classes: class_columns(cleaned)}
    if cleaned.votes is not None:
        tables[of_annotators] = annotator_columns(cleaned)
    for path, columns in tables.items():
        write_table(path, columns)
    for sentence in summary(cleaned):
        print_line(sentence)
    for path in (out, *tables):
        print_line(f"Wrote {path}")


def _write_tasks(out: Path, run: Path, cleaned: CleanedTable, control: str | None) -> None:
    from ltpll import __version__
    from ltpll.cleaning.results import rounded_column
    from ltpll.convert.label_studio import control_names, write_pre_annotations

    source, reading = cleaned.record["source"], cleaned.record["source"]["reading"]
    stored = reading.get("control")
    # Tasks show pictures as the labelling tool called them, or paths, or ids.
    name, texts = "id", cleaned.ids
    if cleaned.urls is not None:
        name, texts = str(reading.get("path")), cleaned.urls
    elif source["images"] is not None:
        name, texts = "image", cleaned.ids if cleaned.paths is None else cleaned.paths
    write_pre_annotations(
        out,
        [{name: text} for text in texts.tolist()],
        cleaned.classes[cleaned.labels.label].tolist(),
        rounded_column(cleaned.labels.confidence).tolist(),
        control=control_names(control, stored if isinstance(stored, str) else None),
        model_version=f"ltpll {__version__} {run.resolve().name}",
    )
    print_line(f"Wrote {counted(len(cleaned.ids), 'task')} for Label Studio")
