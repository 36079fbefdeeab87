"""The clean command: write the cleaned labels of a trained run, with tables of classes and annotators."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ltpll.cli.console import console, print_line
from ltpll.cli.options import FalseDiscoveries, OwnRun, WrittenSeparator, output_option
from ltpll.cli.outputs import check_outputs
from ltpll.cli.tables import MOST_SHOWN
from ltpll.errors import InputError, printable, shown
from ltpll.formatting import counted


def clean(
    context: typer.Context,
    run: OwnRun,
    out: Annotated[
        Path,
        output_option(
            help="Table to write: .csv, .tsv or .parquet; .json for pre-annotations of Label Studio."
        ),
    ],
    separator: WrittenSeparator = None,
    false_discoveries: FalseDiscoveries = None,
    control: Annotated[
        str | None,
        output_option(
            help="Names in the labelling interface of Label Studio, for .json.",
            metavar="NAME:OBJECT",
            show_default="as imported, or choice:image",
        ),
    ] = None,
    tool: Annotated[
        str | None,
        output_option(
            "--for",
            help="Write what another tool reads: cleanlab (its columns, and pred_probs).",
            metavar="cleanlab",
        ),
    ] = None,
) -> None:
    """Write the cleaned label of every example, its confidence, and whether its candidate set seems to lack the true label.

    A table of classes and, for sets from annotators, a table of annotators are written next to it.
    """
    from ltpll.cleaning.results import annotator_columns, class_columns, cleaned_columns
    from ltpll.cleaning.stored_tables import read_cleaned
    from ltpll.tables.streaming import TABLE_SUFFIXES
    from ltpll.tables.writers import write_table

    if tool not in (None, "cleanlab"):
        raise InputError(f"There is no format for {shown(tool)}: --for takes cleanlab.")
    as_tasks = tool is None and out.suffix.lower() == ".json"
    suffix = ".csv" if as_tasks else out.suffix
    names = ("classes", "annotators") if tool is None else ("pred_probs",)
    beside = {name: out.with_name(f"{out.stem}.{name}{suffix}") for name in names}
    matrix, tasks = (
        ([], [".json"]) if tool is None else ([out.with_name(f"{out.stem}.pred_probs.npy")], [])
    )
    check_outputs(context, out, *beside.values(), *matrix, suffixes=(*TABLE_SUFFIXES, *tasks))
    if control is not None and not as_tasks:
        raise InputError(
            f"--control is for pre-annotations of Label Studio, but {out} is a table: leave it out, or write to a .json file."
        )
    cleaned = read_cleaned(run, false_discoveries)
    if tool is not None:
        _write_for_cleanlab(run, cleaned, out, separator, matrix[0], beside["pred_probs"])
        return
    classes = class_columns(cleaned)
    tables = {beside["classes"]: classes}
    if as_tasks:
        _write_tasks(out, run, cleaned, control)
        print_line(f"Wrote {counted(len(cleaned.ids), 'task')} for Label Studio to {out}")
    else:
        tables = {out: cleaned_columns(cleaned, separator), **tables}
    if cleaned.votes is not None:
        tables[beside["annotators"]] = annotator_columns(cleaned)
    for path, columns in tables.items():
        write_table(path, columns)
    _print_summary(cleaned)
    _print_classes(classes)
    for path in tables:
        print_line(f"Wrote {path}")


def _write_tasks(out: Path, run: Path, cleaned: Any, control: str | None) -> None:
    from ltpll import __version__
    from ltpll.cleaning.results import rounded_column, task_data
    from ltpll.convert.label_studio_tasks import control_names, write_pre_annotations

    stored = cleaned.record["source"]["reading"].get("control")
    names = control_names(control, stored if isinstance(stored, str) else None)
    labels, scores = (
        cleaned.classes[cleaned.labels.label].tolist(),
        rounded_column(cleaned.labels.confidence).tolist(),
    )
    model = f"ltpll {__version__} {run.resolve().name}"
    write_pre_annotations(
        out, task_data(cleaned), labels, scores, control=names, model_version=model
    )


def _write_for_cleanlab(
    run: Path, cleaned: Any, out: Path, separator: str | None, matrix: Path, names: Path
) -> None:
    import io

    import numpy as np

    from ltpll.cleaning.cleanlab_tables import (
        cleanlab_columns,
        datalab_classes,
        names_as_read,
        pred_probs,
    )
    from ltpll.cleaning.stored_tables import read_probabilities
    from ltpll.files import write_atomically
    from ltpll.tables.writers import write_table

    probabilities = read_probabilities(run, cleaned)
    classes = datalab_classes(cleaned)
    write_table(out, cleanlab_columns(cleaned, probabilities, separator))
    stream = io.BytesIO()
    np.save(stream, pred_probs(probabilities, classes), allow_pickle=False)
    write_atomically(matrix, stream.getvalue())
    write_table(names, {"class": names_as_read(cleaned)[classes]})
    left_out = len(cleaned.classes) - len(classes)
    if left_out:
        print_line(
            f"{counted(left_out, 'class is', 'classes are')} the label of no row, and left out of pred_probs, as Datalab expects."
        )
    print_line(f"Wrote {out}, {matrix} (columns: the classes in {names.name})")


def _print_summary(cleaned: Any) -> None:
    from ltpll.cleaning.results import summary

    for sentence in summary(cleaned):
        print_line(sentence)


def _print_classes(columns: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    names = (
        "class",
        "estimated_prior",
        "candidate_in",
        "label_of",
        "distractor_rate",
        "most_often_instead",
    )
    texts, shares = ("class", "most_often_instead"), ("estimated_prior", "distractor_rate")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in names:
        table.add_column(
            name.replace("_", " "),
            justify="left" if name in texts else "right",
            overflow="ellipsis",
        )
    order = sorted(range(len(columns["class"])), key=lambda c: -columns["label_of"][c])
    for c in order[:MOST_SHOWN]:
        row = {name: columns[name][c] for name in names}
        table.add_row(
            *(
                Text(printable(str(row[name] or "")))
                if name in texts
                else f"{row[name]:.1%}"
                if name in shares
                else f"{row[name]:,}"
                for name in names
            )
        )
    console.print(table)
    if len(order) > MOST_SHOWN:
        print_line(f"and {len(order) - MOST_SHOWN:,} smaller classes")
