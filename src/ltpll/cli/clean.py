"""The clean command: write the cleaned labels of a trained run, and tables about them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ltpll.cli.console import print_line, print_table
from ltpll.cli.options import FalseDiscoveries, OwnRun, WrittenSeparator, output_option
from ltpll.cli.outputs import check_outputs
from ltpll.cli.tables import MOST_SHOWN
from ltpll.errors import InputError, printable, shown
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
    """Write the cleaned label of every example, its confidence, and whether its set lacks it.

    A table of classes and, for sets from annotators, a table of annotators are written next to it.
    """
    from ltpll.cleaning.results import annotator_columns, class_columns, cleaned_columns, summary
    from ltpll.cleaning.stored_tables import read_cleaned
    from ltpll.tables.streaming import TABLE_SUFFIXES
    from ltpll.tables.writers import write_table

    if tool not in (None, "cleanlab"):
        raise InputError(f"There is no format for {shown(tool)}: --for takes cleanlab.")
    if tool is not None:
        check_outputs(context, out, *_beside_for_cleanlab(out))
        _write_for_cleanlab(run, read_cleaned(run, false_discoveries), out, separator)
        return
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
    classes = class_columns(cleaned)
    tables = {of_classes: classes}
    if as_tasks:
        _write_tasks(out, run, cleaned, control)
        print_line(f"Wrote {counted(len(cleaned.ids), 'task')} for Label Studio to {out}")
    else:
        tables = {out: cleaned_columns(cleaned, separator), **tables}
    if cleaned.votes is not None:
        tables[of_annotators] = annotator_columns(cleaned)
    for path, columns in tables.items():
        write_table(path, columns)
    for sentence in summary(cleaned):
        print_line(sentence)
    _print_classes(classes)
    for path in tables:
        print_line(f"Wrote {path}")


def _write_tasks(out: Path, run: Path, cleaned: CleanedTable, control: str | None) -> None:
    from ltpll import __version__
    from ltpll.cleaning.results import rounded_column, task_data
    from ltpll.convert.label_studio import control_names, write_pre_annotations

    stored = cleaned.record["source"]["reading"].get("control")
    names = control_names(control, stored if isinstance(stored, str) else None)
    labels = cleaned.classes[cleaned.labels.label].tolist()
    scores = rounded_column(cleaned.labels.confidence).tolist()
    how: dict[str, Any] = {
        "control": names,
        "model_version": f"ltpll {__version__} {run.resolve().name}",
    }
    write_pre_annotations(out, task_data(cleaned), labels, scores, **how)


def _beside_for_cleanlab(out: Path) -> tuple[Path, Path]:
    """The matrix of probabilities, and the table of the classes that are its columns."""
    return tuple(  # type: ignore[return-value]
        out.with_name(f"{out.stem}.pred_probs{suffix}") for suffix in (".npy", out.suffix)
    )


def _write_for_cleanlab(run: Path, cleaned: CleanedTable, out: Path, separator: str | None) -> None:
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

    matrix, names = _beside_for_cleanlab(out)
    probabilities, classes = read_probabilities(run, cleaned), datalab_classes(cleaned)
    write_table(out, cleanlab_columns(cleaned, probabilities, separator))
    stream = io.BytesIO()
    np.save(stream, pred_probs(probabilities, classes), allow_pickle=False)
    write_atomically(matrix, stream.getvalue())
    write_table(names, {"class": names_as_read(cleaned)[classes]})
    left_out = counted(len(cleaned.classes) - len(classes), "class is", "classes are")
    if len(classes) < len(cleaned.classes):
        print_line(f"{left_out} the label of no row, and left out of pred_probs for Datalab.")
    print_line(f"Wrote {out}, {matrix} (columns: the classes in {names.name})")


def _print_classes(columns: dict[str, Any]) -> None:
    names = ["class", "estimated_prior", "candidate_in", "label_of", "distractor_rate"]
    names.append("most_often_instead")
    shares = ("estimated_prior", "distractor_rate")
    order = sorted(range(len(columns["class"])), key=lambda c: -columns["label_of"][c])
    rows = []
    for c in order[:MOST_SHOWN]:
        values = {name: columns[name][c] for name in names}
        figures = {
            name: f"{value:.1%}" if name in shares else f"{value:,}"
            for name, value in values.items()
            if name not in ("class", "most_often_instead")
        }
        instead = printable(str(values["most_often_instead"] or ""))
        rows.append((printable(str(values["class"])), *figures.values(), instead))
    print_table([name.replace("_", " ") for name in names], rows, left=[0, 5])
    if len(order) > MOST_SHOWN:
        print_line(f"and {len(order) - MOST_SHOWN:,} smaller classes")
