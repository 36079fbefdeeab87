"""Open: the examples of any file, a table or one of the formats that are converted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ltpll.convert.examples import Converted
from ltpll.convert.json_formats import convert_json, is_tool_file
from ltpll.convert.matlab import convert_mat
from ltpll.errors import InputError, shown
from ltpll.pictures.files import list_pictures
from ltpll.tables.label_table import LabelTable
from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import DEFAULT_READING, HELD_OUT, TRAINING, Reading
from ltpll.tables.streaming import ArrowTable, ReadProgress


def read_label_table(
    path: Path | Any,
    reading: Reading = DEFAULT_READING,
    *,
    needs_candidates: bool = True,
    exact: bool = False,
    every_kind: bool = False,
    on_progress: ReadProgress | None = None,
) -> LabelTable:
    """Read a table, a .mat file, JSON of a labelling tool or detector, or a folder of pictures.

    The sets of a folder's pictures are the names of the folders in it, such as `cat|fox`; those of
    pictures that are in none of them are empty. If all of these folders are splits, such as `train`
    and `test`, the sets are the folders in them. Sets that are not needed are not read.

    The arguments, what is returned and the errors are those of `read_table`.
    """
    how: dict[str, Any] = {"exact": exact, "every_kind": every_kind}
    if isinstance(path, (str, Path)):
        path = Path(path)
        made = _converted(path, reading, needs_candidates, on_progress)
        if made is not None:
            return made.read(path, needs_candidates, **how)
        if path.is_dir():
            path = _table_of_folder(path, with_sets=needs_candidates)
    return read_table(
        path, reading, needs_candidates=needs_candidates, on_progress=on_progress, **how
    )


def _converted(
    path: Path, reading: Reading, needs_candidates: bool, on_progress: ReadProgress | None
) -> Converted | None:
    """The file of another program as a table; None for a table or a folder."""
    if path.is_dir():
        return None
    if is_tool_file(path):
        return convert_json(path, reading, needs_candidates, on_progress)
    if path.suffix.lower() == ".mat":
        return convert_mat(path, reading, needs_candidates)
    return None


def _table_of_folder(folder: Path, *, with_sets: bool) -> ArrowTable:
    """The pictures of a folder, whose sets are the names of the folders that they are in."""
    import pyarrow as pa  # type: ignore[import-untyped]

    pictures = list_pictures(folder)
    columns = {"path": pictures}
    parts = [path.split("/") for path in pictures]
    if {own[0].lower() for own in parts} <= {*TRAINING, *HELD_OUT}:
        columns["split"] = [own[0] for own in parts]
        parts = [own[1:] for own in parts]
    if with_sets:
        columns["candidates"] = [own[0] if len(own) > 1 else "" for own in parts]
    return ArrowTable(
        pa.table(columns), folder, lambda i: f"The picture {shown(pictures[i], 200)} in {folder}"
    )


class PlainTable(NamedTuple):
    """The columns of a table, and what to know about it."""

    columns: dict[str, Any]
    reading: Reading  # how training reads it
    notes: tuple[str, ...]


def read_as_plain_table(
    path: Path, reading: Reading, on_progress: ReadProgress | None = None
) -> PlainTable:
    """Read a file of another program as a table with the same examples, sets and labels.

    Where the file has scores, candidates are written with them, as in `fox:0.6|dog:0.3`. Where it
    has votes of annotators, the table has one row for each vote.

    Args:
        path: JSON of a labelling tool or detector, or a .mat file.
        reading: The options of its format.
        on_progress: Called with the number of bytes read so far and the total.

    Raises:
        InputError: The file cannot be read, or is a table already.
    """
    made = _converted(path, reading, True, on_progress)
    if made is None:
        raise InputError(
            f"{path} is not a file of a labelling tool, a detector or MATLAB (.json, .jsonl, "
            ".ndjson, .mat): tables are read by ltpll train as they are."
        )
    made.read(path, needs_candidates=True)  # refuses what training would refuse
    names = ("annotators", "annotation", "group")
    how = Reading(**{name: getattr(made.reading, name) for name in names})
    return PlainTable(dict(made.columns), how, made.notes)
