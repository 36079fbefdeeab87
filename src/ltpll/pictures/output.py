"""Output: embeddings in an .npy file, and the table beside it that names their pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError
from ltpll.files import check_output, check_writable, remove_leftovers, write_when_complete
from ltpll.formatting import counted, format_names
from ltpll.pictures.cache import EmbeddingCache
from ltpll.tables.columns import TextColumn, read_rows
from ltpll.tables.opening import open_table, whole_table
from ltpll.tables.streaming import Table
from ltpll.tables.writers import write_table

ROW = "row"  # the column of the table beside the file that numbers its rows, from 0
ID, PATH = "id", "path"
BLOCK = 256  # rows that are copied from the cache at once


def rows_file(out: Path) -> Path:
    """The table beside a file of embeddings that names the picture of every row."""
    return out.with_suffix(".rows.csv")


def check_features_file(out: Path) -> None:
    """Refuse a file of features that cannot be written, before hours of work are spent on it."""
    check_output(out, [".npy"], makes_folder=True)
    check_writable(out.parent)


def write_features(
    out: Path,
    stored: EmbeddingCache,
    digests: Mapping[int, bytes],
    names: Mapping[str, Sequence[str]],
    problems: Mapping[int, str] | None = None,
) -> npt.NDArray[np.float32]:
    """Copy features from a cache to an .npy file, write the table beside it, and map the file.

    `digests` says by row what is cached, `problems` why other rows are left out; the columns of
    `names` name all rows.
    """

    def write(file: Any) -> None:
        shape = (len(digests), stored.n_features)
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        left = iter(digests.values())
        while block := list(islice(left, BLOCK)):
            file.write(stored.stored_features(block).data)

    remove_leftovers(out.parent, out.name)
    write_when_complete(out, write)
    number = {row: i for i, row in enumerate(digests)}
    problems = problems or {}
    rows = range(len(digests) + len(problems))
    columns: dict[str, Any] = {ROW: [number.get(row) for row in rows], **names}
    write_table(rows_file(out), columns | {"problem": [problems.get(row, "") for row in rows]})
    found: npt.NDArray[np.float32] = np.load(out, mmap_mode="r")
    return found


def read_picture_names(out: Path, n: int) -> dict[str, list[str]]:
    """The paths and ids of the n rows of an .npy file, as far as `ltpll embed` wrote them."""
    path = rows_file(out)
    if out.suffix.lower() != ".npy" or not path.is_file():
        return {}
    table = open_table(path)
    if ROW not in table.names or not {PATH, ID} & set(table.names):
        return {}  # not ours
    columns = texts_of_columns(table, [name for name in (ROW, ID, PATH) if name in table.names])
    numbers = columns.pop(ROW)
    place = {int(row) if row.isdecimal() else -1: i for i, row in enumerate(numbers) if row}
    if sorted(place) != list(range(n)):
        raise InputError(
            f"{path} does not name the {counted(n, 'row')} of {out.name}, so the two do not belong "
            "together: run `ltpll embed` again, or move one of them elsewhere."
        )
    return {name: [texts[place[row]] for row in range(n)] for name, texts in columns.items()}


# ---- tables that name pictures -------------------------------------------------------------------


def paths_in_table(path: Path, name: str | None = None) -> tuple[str, list[str]]:
    """The column of a table that names pictures, and the different paths in it, in order.

    By default it is path, or else id.
    """
    table = open_table(path)
    found = name or next((one for one in (PATH, ID) if one in table.names), None)
    if found is None:
        raise InputError(
            f"{path} has neither a column {PATH} nor a column {ID} that names pictures: choose one "
            f"of {format_names(table.names)} with --path."
        )
    return found, list(dict.fromkeys(texts_of_columns(table, [found])[found]))


def write_readable_rows(path: Path, column: str, unreadable: Sequence[str], out: Path) -> None:
    """Write the rows of a table that name none of these paths, with all columns."""
    left_out = set(unreadable)
    names = texts_of_columns(open_table(path), [column])[column]
    write_table(out, whole_table(path).filter([name not in left_out for name in names]))


def texts_of_columns(table: Table, names: Sequence[str]) -> dict[str, list[str]]:
    """The cells of some columns of a table."""
    columns = {name: TextColumn(table, table.column(name)) for name in names}
    read_rows(table, columns.values())
    return {name: column.values().tolist() for name, column in columns.items()}
