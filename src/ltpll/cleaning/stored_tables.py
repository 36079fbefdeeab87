"""Stored tables: the Parquet files of a run on a table, which are checked when they are read."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ltpll.cleaning.results import (
    FALSE_DISCOVERIES,
    STORED,
    CleanedLabels,
    CleanedTable,
    Columns,
    StoredVotes,
)
from ltpll.cleaning.shown_values import shown_values
from ltpll.errors import InputError, first_line
from ltpll.files import write_atomically
from ltpll.runs.checksums import checksums, read_checked, unreadable_run
from ltpll.runs.run import Run
from ltpll.runs.run_files import RunFile
from ltpll.runs.schema import Kind, is_whole_number
from ltpll.tables.memory_limits import check_expansion
from ltpll.tables.writers import write_table

if TYPE_CHECKING:
    from ltpll.tables.label_table import LabelTable

PICTURE_SIDE = 160
DOUBTFUL_PICTURES = 40
SHOWN = "shown."  # before the names of the user's columns
AFRESH = "train it again with --fresh"


# ---- writing -----------------------------------------------------------------------------------


def store_tables(folder: Path, table: LabelTable, cleaned: CleanedLabels) -> None:
    """Write all that cleaning and reports need, so that they read no other table and no network."""
    import pyarrow as pa  # type: ignore[import-untyped]

    assert table.candidates is not None
    sets, votes, empty = table.candidates, table.votes, [None] * len(table)
    flat = [pa.array(part.numpy().astype(np.int32)) for part in (sets.offsets, sets.labels)]
    labels = [] if table.labels is None else table.labels.tolist()
    columns: Columns = {
        "id": table.ids,
        "path": empty if table.paths is None else table.paths,
        "split": empty if table.splits is None else table.splits,
        "candidates": pa.ListArray.from_arrays(*flat),
        "true": [None if label < 0 else label for label in labels] or empty,
    }
    others = {"group": table.groups, "url": table.urls, "reviewed": table.reviewed}
    columns |= {name: values for name, values in others.items() if values is not None}
    columns |= {name: getattr(cleaned, name) for name in STORED}
    shown = shown_values(table, 1 - cleaned.confidence)
    columns |= {f"{SHOWN}{name}": values for name, values in shown.items()}
    write_table(folder / RunFile.EXAMPLES, columns)
    if votes is not None:
        names = np.asarray(votes.names, dtype=object)[votes.annotators]
        columns = {"row": votes.rows, "annotator": names, "label": votes.labels}
        write_table(folder / RunFile.VOTES, columns)


def store_probabilities(folder: Path, probabilities: npt.NDArray[np.float16] | None) -> None:
    """Write the probabilities of all classes, (rows, classes), unless they are too many."""
    if probabilities is not None:
        stream = io.BytesIO()
        np.save(stream, probabilities, allow_pickle=False)
        write_atomically(folder / RunFile.PROBABILITIES, stream.getvalue())


def store_pictures(folder: Path, images: Path, table: LabelTable, cleaned: CleanedLabels) -> None:
    """Write small copies of the pictures that a report shows."""
    from PIL import Image

    from ltpll.pictures.reading import read_pictures

    doubtful = np.argsort(cleaned.confidence, kind="stable")[:DOUBTFUL_PICTURES]  # to be reviewed
    rows = np.unique(np.concatenate([*cleaned.noteworthy().values(), doubtful]))
    paths = table.ids if table.paths is None else table.paths
    if not len(rows):
        return
    found = read_pictures(images, paths[rows].tolist(), PICTURE_SIDE, on_error="skip")
    content = []
    for picture in found.x:
        stream = io.BytesIO()
        Image.fromarray(picture).save(stream, "JPEG", quality=80)
        content.append(stream.getvalue())
    write_table(folder / RunFile.PICTURES, {"row": rows[found.kept], "jpeg": content})


# ---- reading -----------------------------------------------------------------------------------


def read_cleaned(folder: str | Path, false_discoveries: float | None = None) -> CleanedTable:
    """Read the cleaned labels and everything else that a finished run on a table has stored.

    Args:
        folder: The run folder, that is, the `--out` of `ltpll train TABLE`.
        false_discoveries: The expected share of flagged sets that hold their true label after all;
            0.3 by default.

    Returns:
        The table, for `cleaned_columns`, `class_columns` and `annotator_columns`.

    Raises:
        InputError: The run is not finished, is damaged, or is not a run on a table.

    Examples:
        >>> table = read_cleaned("ltpll-runs/birds")
        >>> doubtful = table.ids[table.labels.issue]  # their sets may lack the true label
        >>> len(table.ids)
        60
    """
    folder = Path(folder)
    target = FALSE_DISCOVERIES if false_discoveries is None else false_discoveries
    record, stored = Run.open(folder, Kind.TABLE).result(), checksums(folder)
    try:
        found = _read_parquet(folder / RunFile.EXAMPLES).combine_chunks()
        votes = pictures = None
        if RunFile.VOTES in stored:
            parts = _read_parquet(folder / RunFile.VOTES).select(["row", "annotator", "label"])
            votes = StoredVotes(*(part.to_numpy() for part in parts.columns))
        if RunFile.PICTURES in stored:
            pictures = _read_parquet(folder / RunFile.PICTURES).to_pydict()

        def column(name: str) -> Any:
            return found.column(name).to_numpy()

        def optional(name: str) -> Any:
            known = name in found.column_names and found.column(name).null_count < len(found)
            return column(name) if known else None

        lists = found.column("candidates").combine_chunks()
        table = CleanedTable(
            record=record,
            ids=column("id"),
            paths=optional("path"),
            splits=optional("split"),
            offsets=np.asarray(lists.offsets).astype(np.int64),
            candidates=lists.values.to_numpy().astype(np.int64),
            true=np.asarray(found.column("true").to_pylist(), dtype=object),
            labels=CleanedLabels(
                **{name: column(name) for name in STORED}, false_discoveries=target
            ),
            votes=votes,
            pictures=dict(zip(pictures["row"], pictures["jpeg"], strict=True)) if pictures else {},
            groups=optional("group"),
            urls=optional("url"),
            reviewed=optional("reviewed"),
            shown={
                name.removeprefix(SHOWN): column(name)
                for name in found.column_names
                if name.startswith(SHOWN)
            },
        )
        _check_table(table)
    except InputError:
        raise
    except Exception as error:  # pyarrow's, or those of columns with the wrong type
        raise unreadable_run(folder, f"it is damaged: {first_line(error)}", AFRESH) from None
    return table


def read_probabilities(folder: Path, table: CleanedTable) -> npt.NDArray[np.float32]:
    """Read the probabilities of all classes, by classifiers that were not trained on the row.

    Args:
        folder: The run folder.
        table: What `read_cleaned` returns for it.

    Returns:
        (rows, classes); each row sums to one, up to the rounding of the stored numbers.

    Raises:
        InputError: The run has not stored them, or the file is damaged.
    """
    if RunFile.PROBABILITIES not in checksums(folder):
        if (table.labels.judged_by == "own").any():
            own = f"Rows of {folder} were predicted by a classifier that was trained on them"
            raise InputError(f"{own}: train with --folds 5.")
        size = f"{len(table.ids):,} rows × {len(table.classes):,} classes"
        missing = f"{folder} holds no probabilities of all classes, because they are too many"
        raise InputError(f"{missing} ({size}): write the plain table instead.")
    content = read_checked(folder / RunFile.PROBABILITIES)
    try:
        found = np.load(io.BytesIO(content), allow_pickle=False)
        _require(found.shape == (len(table.ids), len(table.classes)), "it has another shape")
        _require(found.dtype.kind == "f", "it does not hold floats")
    except Exception as error:
        damaged = f"{RunFile.PROBABILITIES} is damaged: {first_line(error)}"
        raise unreadable_run(folder, damaged, AFRESH) from None
    return np.asarray(found, dtype=np.float32)


def _read_parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    content = read_checked(path)
    about = pq.ParquetFile(pa.BufferReader(content)).metadata
    check_expansion(path, len(content), 4 * about.num_rows * about.num_columns)
    return pq.read_table(pa.BufferReader(content))


# ---- checking ----------------------------------------------------------------------------------


def _check_table(table: CleanedTable) -> None:
    """Raise ValueError if columns have different lengths, wrong types, or values out of range."""
    n, n_classes, cleaned, votes = len(table.ids), len(table.classes), table.labels, table.votes
    texts = [table.ids, table.paths, table.splits, table.groups, table.urls, cleaned.judged_by]
    texts += table.shown.values()
    columns = [*texts, table.true, table.reviewed, *(getattr(cleaned, name) for name in STORED)]
    lengths = {len(column) for column in columns if column is not None}
    _require(n > 0 and lengths == {n}, "its columns have different lengths")
    fits = len(table.offsets) == n + 1 and table.offsets[0] == 0
    fits = fits and table.offsets[-1] == len(table.candidates) and bool((table.sizes > 0).all())
    _require(fits, "its candidate sets do not match its rows")
    _check_range(table.candidates, 0, n_classes, "candidates")
    for name in ("label", "runner_up", "inside", "outside"):
        _check_range(getattr(cleaned, name), -1 if name == "outside" else 0, n_classes, name)
    for name in ("confidence", "margin", "suspicion"):
        values = getattr(cleaned, name)
        finite = values.dtype.kind == "f" and bool(np.isfinite(values).all())
        _require(finite, f"its column {name} does not hold finite numbers")
    for name, values in (("judged", cleaned.judged), ("reviewed", table.reviewed)):
        truths = values is None or values.dtype.kind == "b"
        _require(truths, f"its column {name} does not hold truth values")
    known = [*table.ids.tolist(), *cleaned.judged_by.tolist()]
    _require(all(isinstance(text, str) for text in known), "some examples have no id")
    named = [text for column in texts if column is not None for text in column.tolist()]
    _require(all(isinstance(text, str | None) for text in named), "some of its names are not text")
    true = [label for label in table.true.tolist() if label is not None]
    classes = all(is_whole_number(label) and 0 <= label < n_classes for label in true)
    _require(classes, "its true labels are not classes")
    if votes is not None:
        _check_range(votes.rows, 0, n, "row")
        _check_range(votes.labels, 0, n_classes, "label")
        names = votes.annotators.tolist()
        named_all = bool(names) and all(isinstance(name, str) for name in names)
        _require(named_all, "its votes have no annotators")
    for row, picture in table.pictures.items():
        stored = is_whole_number(row) and isinstance(picture, bytes)
        _require(stored, "its pictures are not stored as bytes")


def _check_range(values: npt.NDArray[Any], least: int, end: int, name: str) -> None:
    whole = values.dtype.kind == "i"
    fits = whole and (not len(values) or least <= int(values.min()) <= int(values.max()) < end)
    range_of = f"whole numbers from {least} to {end - 1}"
    _require(fits, f"its column {name} holds values that are not {range_of}")


def _require(valid: bool, problem: str) -> None:
    if not valid:
        raise ValueError(problem)
