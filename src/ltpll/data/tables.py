"""Tables: candidate sets read from a user's own file."""

from __future__ import annotations

import ast
import csv
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ltpll.candidates import Candidates
from ltpll.data.image_sets import IMAGE_SETS
from ltpll.errors import InputError
from ltpll.sets import read_series


def read_candidates(path: Path, column: str | None, separator: str) -> Candidates:
    """The sets in one column of a table, or in an array of zeros and ones."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".tsv", ".parquet", ".npz", ".npy"):
        known = ", ".join(IMAGE_SETS)
        raise InputError(f"{path} is no image set ({known}), no run's folder and no .csv, .tsv, .parquet, .npz or .npy file.")
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    if kind in (".npz", ".npy"):
        return Candidates.from_matrix(_read_array(path, column))
    try:
        header, columns = _read_parquet(path) if kind == ".parquet" else _read_text(path, "\t" if kind == ".tsv" else ",")
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a table of UTF-8 text ({error}).") from None
    chosen = _chosen(path, header, columns, column, separator)
    return Candidates.from_flat(*read_series(_lists(columns[chosen]), separator, None, None))


def _read_array(path: Path, name: str | None) -> Any:
    try:
        return _named_array(path, np.load(path, allow_pickle=False), name)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        # numpy's own sentence would tell the user how to run what a stranger has put into the file.
        raise InputError(
            f"{path} holds no plain arrays, or is cut off: write it with numpy.save or numpy.savez, without objects."
        ) from None


def _named_array(path: Path, content: Any, name: str | None) -> Any:
    if isinstance(content, np.ndarray):
        if name is not None:
            raise InputError(f"{path} holds one array without a name: leave --column out.")
        return content
    with content:
        if name is None and len(content.files) == 1:
            name = content.files[0]
        if name not in content.files:
            raise InputError(_which(path, "array", content.files, name))
        return content[name]


def _read_parquet(path: Path) -> tuple[list[str], list[list[Any]]]:
    try:
        import pandas as pd

        table = pd.read_parquet(path)
    except ImportError:
        raise InputError(f"{path} needs pandas and pyarrow, which are not both installed: pip install pandas pyarrow.") from None
    except (ValueError, OSError) as error:  # ArrowInvalid is a ValueError
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InputError(f"{path} cannot be read as Parquet ({reason}).") from None
    return [str(name) for name in table.columns], [table.iloc[:, i].tolist() for i in range(table.shape[1])]


def _read_text(path: Path, delimiter: str) -> tuple[list[str], list[list[Any]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.reader(file, delimiter=delimiter, strict=True) if row]
    if len(rows) < 2:
        raise InputError(f"{path} has no rows below a header that names the columns.")
    header = [name.strip() for name in rows[0]]
    uneven = next((i for i, row in enumerate(rows[1:]) if len(row) != len(header)), None)
    if uneven is not None:
        n = len(rows[1 + uneven])
        raise InputError(f"The header of {path} has {len(header)} columns, but row {uneven} has {n}: correct the file.")
    return header, [list(cells) for cells in zip(*rows[1:], strict=True)]


def _chosen(path: Path, header: Sequence[str], columns: Sequence[Sequence[Any]], name: str | None, separator: str) -> int:
    """The column asked for, or the only one that has sets in it."""
    if name is not None:
        found = [i for i, one in enumerate(header) if one == name]
    else:
        found = [i for i, cells in enumerate(columns) if any(_is_set(cell, separator) for cell in cells)]
        found = [0] if len(header) == 1 else found
    if len(found) != 1:
        raise InputError(_which(path, "column", header, name))
    return found[0]


def _which(path: Path, what: str, names: Sequence[str], asked: str | None) -> str:
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    if asked is not None:
        return f"{path} has {'several' if asked in names else 'no'} {what}s called {asked!r}: it has {shown}."
    return f"{path} has the {what}s {shown}: say with --column which of them holds the sets."


def _is_set(cell: Any, separator: str) -> bool:
    return bool(separator and separator in cell) or _is_list(cell) if isinstance(cell, str) else hasattr(cell, "__len__")


def _is_list(text: str) -> bool:
    return text.lstrip().startswith("[") and text.rstrip().endswith("]")


def _lists(cells: list[Any]) -> list[Any]:
    """Lists that a table has written as text, such as ['cat', 'dog'], as lists."""
    if not all(isinstance(cell, str) and _is_list(cell) for cell in cells):
        return cells
    found = []
    for i, cell in enumerate(cells):
        try:
            # Without commas, as numpy writes it, Python would glue the names together.
            if re.search(r"""['"]\s+['"]""", cell):
                raise ValueError("no commas")
            found.append(ast.literal_eval(cell.strip()))
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            raise InputError(f"Row {i} holds {cell[:80]!r}, which is no list: write it like ['cat', 'dog'], or cat|dog.") from None
    return found
