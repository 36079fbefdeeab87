"""Stored tables: the Parquet files of a run on a table, which are checked when they are read."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ltpll.cleaning.audit import stored_answers, with_answers_applied
from ltpll.cleaning.results import (
    FALSE_DISCOVERIES,
    STORED,
    CleanedLabels,
    CleanedTable,
    Columns,
    StoredVotes,
)
from ltpll.cleaning.review import audit_rows
from ltpll.errors import InputError, first_line
from ltpll.runs.run import Record, Run, checksums, read_checked, unreadable_run
from ltpll.runs.run_files import RunFile
from ltpll.runs.schema import Kind
from ltpll.tables.columns import MISSING
from ltpll.tables.memory_limits import check_expansion
from ltpll.tables.writers import write_table

if TYPE_CHECKING:
    from ltpll.tables.read_tables import LabelTable

PICTURE_SIDE = 160
MOST_PICTURES, DOUBTFUL_PICTURES = 150, 40  # that are stored for the report
SHOWN = "shown."  # before the names of the user's columns
AFRESH = "train it again with --fresh"
MOST_COLUMNS = 6
MOST_NUMBERS = 20  # columns of numbers; where there are more, as in embeddings, none says much
PROSE, LONG, SHORT = 40, 300, 60  # characters: on average, kept of one column, and of the others
MOST_ROWS, MOST_AUDITED = 20_000, 1000
# Line ends, characters that a terminal or a spreadsheet obeys, and those that reorder text.
CONTROLS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")
ShownValues = dict[str, npt.NDArray[np.object_]]


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
    if cleaned.contradiction is not None:
        columns["contradiction"] = cleaned.contradiction
    urgency = 1 - cleaned.confidence.astype(np.float64)
    urgency[audit_rows(table.ids, cleaned, table.reviewed)[:MOST_AUDITED]] += 1
    shown = shown_values(table, urgency)
    columns |= {f"{SHOWN}{name}": values for name, values in shown.items()}
    write_table(folder / RunFile.EXAMPLES, columns)
    if votes is not None:
        names = np.asarray(votes.names, dtype=object)[votes.annotators]
        columns = {"row": votes.rows, "annotator": names, "label": votes.labels}
        write_table(folder / RunFile.VOTES, columns)


def store_pictures(folder: Path, images: Path, table: LabelTable, cleaned: CleanedLabels) -> None:
    """Write small copies of the pictures that a report shows."""
    flagged = np.flatnonzero(cleaned.issue)
    flagged = flagged[np.argsort(-cleaned.suspicion[flagged], kind="stable")]
    uncertain = np.argsort(cleaned.margin, kind="stable")
    doubtful = np.argsort(cleaned.confidence, kind="stable")  # to be reviewed
    chosen = flagged[:MOST_PICTURES], uncertain[:MOST_PICTURES], doubtful[:DOUBTFUL_PICTURES]
    paths = table.ids if table.paths is None else table.paths
    found = small_pictures(images, paths, np.unique(np.concatenate(chosen)), PICTURE_SIDE)
    columns = {"row": np.asarray([*found], dtype=np.int64), "jpeg": [*found.values()]}
    write_table(folder / RunFile.PICTURES, columns)


def small_pictures(
    images: Path, paths: npt.NDArray[np.object_], rows: npt.NDArray[np.int64], side: int
) -> dict[int, bytes]:
    """The pictures of some rows as small JPEG files; those that cannot be read are left out."""
    from PIL import Image

    from ltpll.pictures.reading import read_pictures

    read, found = read_pictures(images, paths[rows].tolist(), side, on_error="skip"), {}
    for i, picture in zip(rows[np.asarray(read.kept)].tolist(), read.x, strict=True):
        stream = io.BytesIO()
        Image.fromarray(picture).save(stream, "JPEG", quality=80)
        found[i] = stream.getvalue()
    return found


# ---- reading -----------------------------------------------------------------------------------


def read_cleaned(
    folder: str | Path, false_discoveries: float | None = None, *, answered: bool = True
) -> CleanedTable:
    """Read the cleaned labels and everything else that a finished run on a table has stored.

    Args:
        folder: The run folder, that is, the `--out` of `ltpll train TABLE`.
        false_discoveries: The expected share of flagged sets that hold their true label after all;
            0.3 by default.
        answered: Whether the answers of people that the run has stored are applied.

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
        votes, pictures = (
            _read_parquet(folder / name) if name in stored else None
            for name in (RunFile.VOTES, RunFile.PICTURES)
        )
        table = _as_cleaned_table(record, found, votes, pictures, target)
        return with_answers_applied(table, stored_answers(folder, table)) if answered else table
    except InputError:
        raise
    except Exception as error:  # pyarrow's, or those of columns with the wrong type
        raise unreadable_run(folder, f"it is damaged: {first_line(error)}", AFRESH) from None


def _as_cleaned_table(
    record: Record, found: Any, votes: Any, pictures: Any, false_discoveries: float
) -> CleanedTable:
    """The tables of a run as arrays; ValueError if a column holds something else."""
    n, n_classes = len(found), len(record["classes"])

    def column(name: str, kind: str = "text") -> Any:
        return _values(name, found.column(name), kind, n_classes, -1 if name == "outside" else 0)

    def optional(name: str, kind: str = "text or null") -> Any:
        known = name in found.column_names and found.column(name).null_count < n
        return column(name, kind) if known else None

    kinds = {"judged": "truth", "judged_by": "text"}
    kinds |= dict.fromkeys(("confidence", "margin", "suspicion"), "share")
    lists, true = found.column("candidates").combine_chunks(), found.column("true")
    offsets = np.asarray(lists.offsets).astype(np.int64)
    if not n or lists.null_count or offsets[0] or not (np.diff(offsets) > 0).all():
        raise ValueError("its candidate sets do not match its rows")
    _values("true", true.drop_null(), "number", n_classes)
    shown = [name for name in found.column_names if name.startswith(SHOWN)]
    jpegs: dict[int, bytes] = {}
    if pictures is not None:
        rows = _values("row", pictures.column("row"), "number", n)
        jpeg = _values("jpeg", pictures.column("jpeg"), "bytes")
        jpegs = dict(zip(rows.tolist(), jpeg.tolist(), strict=True))
    return CleanedTable(
        record=record,
        ids=column("id"),
        paths=optional("path"),
        splits=optional("split"),
        offsets=offsets,
        candidates=_values("candidates", lists.values, "number", n_classes).astype(np.int64),
        true=np.asarray(true.to_pylist(), dtype=object),
        labels=CleanedLabels(
            **{name: column(name, kinds.get(name, "number")) for name in STORED},
            contradiction=optional("contradiction", "share"),
            false_discoveries=false_discoveries,
        ),
        votes=None
        if votes is None
        else StoredVotes(
            _values("row", votes.column("row"), "number", n),
            _values("annotator", votes.column("annotator"), "text"),
            _values("label", votes.column("label"), "number", n_classes),
        ),
        pictures=jpegs,
        groups=optional("group"),
        urls=optional("url"),
        reviewed=optional("reviewed", "truth"),
        shown={name.removeprefix(SHOWN): column(name, "text or null") for name in shown},
    )


def _values(name: str, column: Any, kind: str, end: int = 0, least: int = 0) -> npt.NDArray[Any]:
    """A column as an array of this kind; numbers are whole, and from `least` to below `end`."""
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if kind == "number":
        within = not len(values) or least <= values.min() <= values.max() < end
        valid = within and (values.dtype.kind == "i" or not len(values))
    elif kind == "share":
        valid = values.dtype.kind == "f" and bool(np.isfinite(values).all())
    elif kind == "truth":
        valid = values.dtype.kind == "b"
    else:
        types = {"text": str, "text or null": str | None, "bytes": bytes}[kind]
        valid = all(isinstance(one, types) for one in values.tolist())
    if not valid:
        raise ValueError(f"its column {name} does not hold a {kind} of the run in every row")
    return values


def _read_parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    content = read_checked(path)
    about = pq.ParquetFile(pa.BufferReader(content)).metadata
    check_expansion(path, len(content), 4 * about.num_rows * about.num_columns)
    return pq.read_table(pa.BufferReader(content))


# ---- what people see ---------------------------------------------------------------------------


def shown_values(table: LabelTable, doubt: npt.NDArray[Any]) -> ShownValues:
    """What people see of each row: its longest text, then a few other values, as short texts.

    Texts are None where there is none. Of a large table, the rows with the most doubt are shown.
    """
    import pandas as pd

    frame = table.frame
    if frame is None:
        if table.features is None or len(table.feature_names) > MOST_NUMBERS:
            return {}
        frame = pd.DataFrame(table.features, columns=list(table.feature_names))
    rows = np.argsort(-doubt, kind="stable")[:MOST_ROWS]
    some = frame.iloc[rows]
    numeric = {name for name, kind in some.dtypes.items() if pd.api.types.is_numeric_dtype(kind)}
    columns = [one for one in some if len(numeric) <= MOST_NUMBERS or one not in numeric]
    cells = {one: [_text(cell) for cell in some[one].tolist()] for one in columns}
    lengths = {one: float(np.mean([len(text or "") for text in cells[one]])) for one in columns}
    longest = max(lengths, key=lambda one: lengths[one], default=None)
    order = sorted(columns, key=lambda one: one != longest or lengths[one] < PROSE)
    found: ShownValues = {}
    for one in order:
        if len(found) == MOST_COLUMNS or len(set(cells[one])) == 1 < len(rows):
            continue
        most = LONG if one == longest else SHORT
        texts = np.full(len(table), None, dtype=object)
        texts[rows] = [_cut(text, most) for text in cells[one]]
        found[_cut(CONTROLS.sub(" ", str(one)).strip(), SHORT) or "-"] = texts
    return found


def _text(cell: Any) -> str | None:
    """A cell on one line; None if it is missing."""
    if isinstance(cell, float):
        return f"{cell:.6g}" if np.isfinite(cell) else None
    text = CONTROLS.sub(" ", str(cell)[: 2 * LONG]).strip()
    return None if text.lower() in MISSING or text in ("NaT", "<NA>") else text


def _cut(text: str | None, most: int) -> Any:
    return text if text is None or len(text) <= most else f"{text[: most - 1]}…"
