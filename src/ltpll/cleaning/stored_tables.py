"""Stored tables: the Parquet files in the folder of a run on a table, written by training and checked when they are read back."""

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


# ---- writing ----------------------------------------------------------------------------------------------------------


def store_tables(folder: Path, table: LabelTable, cleaned: CleanedLabels) -> None:
    """Write everything that cleaning and reports need, so that neither the user's table nor the network has to be read again."""
    import pyarrow as pa  # type: ignore[import-untyped]

    assert table.candidates is not None
    n = len(table)
    offsets, labels = (
        pa.array(part.numpy().astype(np.int32))
        for part in (table.candidates.offsets, table.candidates.labels)
    )
    columns: Columns = {
        "id": table.ids,
        "path": [None] * n if table.paths is None else table.paths,
        "split": [None] * n if table.splits is None else table.splits,
        "candidates": pa.ListArray.from_arrays(offsets, labels),
        "true": [None] * n
        if table.labels is None
        else [None if label < 0 else int(label) for label in table.labels.tolist()],
        **({} if table.groups is None else {"group": table.groups}),
        **({} if table.urls is None else {"url": table.urls}),
        **({} if table.reviewed is None else {"reviewed": table.reviewed}),
        **{name: getattr(cleaned, name) for name in STORED},
    }
    write_table(folder / RunFile.EXAMPLES, columns)
    if table.votes is not None:
        votes = table.votes
        names = np.asarray(votes.names, dtype=object)
        write_table(
            folder / RunFile.VOTES,
            {"row": votes.rows, "annotator": names[votes.annotators], "label": votes.labels},
        )


def store_probabilities(folder: Path, probabilities: npt.NDArray[np.float16] | None) -> None:
    """Write the probability of every class for every row, (rows, classes), unless they are too many."""
    if probabilities is not None:
        stream = io.BytesIO()
        np.save(stream, probabilities, allow_pickle=False)
        write_atomically(folder / RunFile.PROBABILITIES, stream.getvalue())


def store_pictures(folder: Path, images: Path, table: LabelTable, cleaned: CleanedLabels) -> None:
    """Write small copies of the pictures that a report shows; the originals may be gone by then."""
    from PIL import Image

    from ltpll.pictures.files import read_pictures

    doubtful = np.argsort(cleaned.confidence, kind="stable")[
        :DOUBTFUL_PICTURES
    ]  # for the rows to review
    rows = np.unique(np.concatenate([*cleaned.noteworthy().values(), doubtful]))
    paths = table.ids if table.paths is None else table.paths
    if not len(rows):
        return
    found = read_pictures(images, paths[rows].tolist(), PICTURE_SIDE, on_error="skip")
    content = []
    for picture in found.images:
        stream = io.BytesIO()
        Image.fromarray(picture).save(stream, "JPEG", quality=80)
        content.append(stream.getvalue())
    write_table(folder / RunFile.PICTURES, {"row": rows[found.kept], "jpeg": content})


# ---- reading ----------------------------------------------------------------------------------------------------------


def read_cleaned(folder: str | Path, false_discoveries: float | None = None) -> CleanedTable:
    """Read the cleaned labels and everything else that a finished run on a table has stored.

    Args:
        folder: The run folder, that is, the `--out` of `ltpll train TABLE`.
        false_discoveries: The expected share of flagged sets that hold their true label after all; 0.3 by default.

    Returns:
        The table, from which `cleaned_columns`, `class_columns` and `annotator_columns` compute tables.

    Raises:
        InputError: The run is not finished, is damaged, or is not a run on a table.

    Examples:
        >>> table = read_cleaned("ltpll-runs/birds")
        >>> doubtful = table.ids[table.labels.issue]  # their sets may lack the true label
        >>> len(table.ids)
        60
    """
    folder, target = (
        Path(folder),
        FALSE_DISCOVERIES if false_discoveries is None else false_discoveries,
    )
    record = Run.open(folder, Kind.TABLE).result()
    try:
        stored = checksums(folder)
        found = _read_parquet(folder / RunFile.EXAMPLES).combine_chunks()
        votes = _read_parquet(folder / RunFile.VOTES) if RunFile.VOTES in stored else None
        pictures = (
            _read_parquet(folder / RunFile.PICTURES).to_pydict()
            if RunFile.PICTURES in stored
            else {"row": [], "jpeg": []}
        )

        if "suspicion" not in found.column_names:
            raise unreadable_run(
                folder, "it was written by an older version", "train it again with --fresh"
            )

        def column(name: str) -> Any:
            return found.column(name).to_numpy()

        lists = found.column("candidates").combine_chunks()
        table = CleanedTable(
            record=record,
            ids=column("id"),
            paths=None if found.column("path").null_count == len(found) else column("path"),
            splits=None if found.column("split").null_count == len(found) else column("split"),
            offsets=np.asarray(lists.offsets).astype(np.int64),
            candidates=lists.values.to_numpy().astype(np.int64),
            true=np.asarray(found.column("true").to_pylist(), dtype=object),
            labels=CleanedLabels(
                **{name: column(name) for name in STORED},
                false_discoveries=target,
            ),
            votes=None
            if votes is None
            else StoredVotes(
                *(votes.column(name).to_numpy() for name in ("row", "annotator", "label"))
            ),
            pictures=dict(zip(pictures["row"], pictures["jpeg"], strict=True)),
            groups=column("group") if "group" in found.column_names else None,
            urls=column("url") if "url" in found.column_names else None,
            reviewed=found.column("reviewed").to_numpy(zero_copy_only=False)
            if "reviewed" in found.column_names
            else None,
        )
        _check(table)
    except InputError:
        raise
    except (
        Exception
    ) as error:  # pyarrow's about a damaged file, or those of columns with the wrong type
        raise unreadable_run(
            folder, f"it is damaged: {first_line(error)}", "train it again with --fresh"
        ) from None
    return table


def read_probabilities(folder: Path, table: CleanedTable) -> npt.NDArray[np.float32]:
    """Read the probability of every class, by classifiers that were not trained on the row, for a tool that needs all of them.

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
            raise InputError(
                f"Rows of {folder} were predicted by a classifier that was trained on them: train with --folds 5."
            )
        size = f"{len(table.ids):,} rows × {len(table.classes):,} classes"
        raise InputError(
            f"{folder} holds no probabilities of all classes, because it is of an older version or they are too many ({size}): "
            "train it again with --fresh, or write the plain table instead."
        )
    content = read_checked(folder / RunFile.PROBABILITIES)
    try:
        found = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception as error:
        raise unreadable_run(
            folder,
            f"{RunFile.PROBABILITIES} is damaged: {first_line(error)}",
            "train it again with --fresh",
        ) from None
    if found.shape != (len(table.ids), len(table.classes)) or found.dtype.kind != "f":
        raise unreadable_run(
            folder,
            f"{RunFile.PROBABILITIES} does not match its examples",
            "train it again with --fresh",
        )
    return np.asarray(found, dtype=np.float32)


def _read_parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    content = read_checked(path)
    about = pq.ParquetFile(pa.BufferReader(content)).metadata
    check_expansion(path, len(content), 4 * about.num_rows * about.num_columns)
    return pq.read_table(pa.BufferReader(content))


# ---- checking ---------------------------------------------------------------------------------------------------------


def _check(table: CleanedTable) -> None:
    """Raise ValueError if columns have different lengths, or hold numbers of classes or rows that do not exist."""
    n, n_classes, cleaned = len(table.ids), len(table.record["classes"]), table.labels
    columns = [table.true, *(getattr(cleaned, name) for name in STORED)]
    optional = [
        column
        for column in (table.paths, table.splits, table.groups, table.urls)
        if column is not None
    ]
    columns += [] if table.reviewed is None else [table.reviewed]
    if (
        n == 0
        or any(column.shape != (n,) for column in columns)
        or any(len(column) != n for column in optional)
    ):
        raise ValueError("its columns have different lengths")
    offsets = table.offsets
    if (
        len(offsets) != n + 1
        or offsets[0] != 0
        or (np.diff(offsets) < 1).any()
        or offsets[-1] != len(table.candidates)
    ):
        raise ValueError("its candidate sets do not match its rows")
    _check_range(table.candidates, 0, n_classes, "candidates")
    for name in ("label", "runner_up", "inside", "outside"):
        _check_range(getattr(cleaned, name), -1 if name == "outside" else 0, n_classes, name)
    for name in ("confidence", "margin", "suspicion"):
        shares = getattr(cleaned, name)
        if shares.dtype.kind != "f" or not np.isfinite(shares).all():
            raise ValueError(f"its column {name} does not hold finite numbers")
    for name, column in (("judged", cleaned.judged), ("reviewed", table.reviewed)):
        if column is not None and column.dtype.kind != "b":
            raise ValueError(f"its column {name} does not hold truth values")
    if not all(
        isinstance(text, str)
        for column in (table.ids, cleaned.judged_by)
        for text in column.tolist()
    ):
        raise ValueError("some examples have no id")
    if not all(
        text is None or isinstance(text, str) for column in optional for text in column.tolist()
    ):
        raise ValueError("its paths, splits or groups are not text")
    if not all(
        label is None or (is_whole_number(label) and 0 <= label < n_classes)
        for label in table.true.tolist()
    ):
        raise ValueError("its true labels are not classes")
    if table.votes is not None:
        _check_range(table.votes.rows, 0, n, "row")
        _check_range(table.votes.labels, 0, n_classes, "label")
        if not len(table.votes.rows) or not all(
            isinstance(name, str) for name in table.votes.annotators.tolist()
        ):
            raise ValueError("its votes have no annotators")
    if not all(
        is_whole_number(row) and isinstance(picture, bytes)
        for row, picture in table.pictures.items()
    ):
        raise ValueError("its pictures are not stored as bytes")


def _check_range(values: npt.NDArray[Any], least: int, end: int, name: str) -> None:
    if values.dtype.kind != "i" or (
        len(values) and not least <= int(values.min()) <= int(values.max()) < end
    ):
        raise ValueError(
            f"its column {name} holds values that are not whole numbers from {least} to {end - 1}"
        )
