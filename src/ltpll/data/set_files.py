"""Set files: the candidate sets alone, from any file that holds some, found without being told where they stand."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ltpll.candidates import Candidates
from ltpll.data.batches import SUFFIXES, Batch, Table, check_file, listed, open_table
from ltpll.data.cells import texts
from ltpll.data.image_sets import IMAGE_SETS
from ltpll.data.set_columns import SetColumn, as_candidates
from ltpll.errors import InputError, shown

UNPACKED_LIMIT = 4 << 30  # bytes of all arrays of an .npz file, which may be packed a thousandfold


def read_candidates(path: Path, column: str | None, separator: str) -> Candidates:
    """The sets in one column of a table, or in an array of zeros and ones; None is the only column that has sets in it."""
    kind = path.suffix.lower()
    if kind not in (*SUFFIXES, ".npz", ".npy"):
        known = ", ".join(IMAGE_SETS)
        raise InputError(f"{path} is no image set ({known}), no run's folder and no .csv, .tsv, .parquet, .npz or .npy file.")
    if kind in (".npz", ".npy"):
        if not path.is_file():
            check_file(path)
        return Candidates.from_matrix(_read_array(path, column))
    table = open_table(path)
    reader = SetColumn(table, _chosen(table, column, separator), separator)
    for batch in table.batches([reader.index]):
        reader.add(batch)
    return as_candidates(table, reader.sets(), None)


def _chosen(table: Table, name: str | None, separator: str) -> int:
    if name is not None and table.names.count(name) == 1:
        return table.names.index(name)
    if name is None and len(table.names) == 1:
        return 0
    if name is None:
        columns = range(len(table.names))
        found: set[int] = set()
        for batch in table.batches(columns):
            found |= {index for index in columns if index not in found and _has_sets(table, batch, index, separator)}
        if len(found) == 1:
            return found.pop()
    raise InputError(_which(table.path, "column", table.names, name))


def _has_sets(table: Table, batch: Batch, index: int, separator: str) -> bool:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    kind = batch.columns[index].type
    if pa.types.is_nested(kind):
        return not pa.types.is_struct(kind)
    if not any(is_kind(kind) for is_kind in (pa.types.is_binary, pa.types.is_string, pa.types.is_large_string, pa.types.is_dictionary)):
        return False
    cells = pc.utf8_trim_whitespace(texts(table, batch, index))
    lists = pc.and_(pc.starts_with(cells, "["), pc.ends_with(cells, "]"))
    return bool(pc.any(pc.or_(lists, pc.match_substring(cells, separator))).as_py())


def _which(path: Path, what: str, names: Sequence[str], asked: str | None) -> str:
    if asked is not None:
        return f"{path} has {'several' if asked in names else 'no'} {what}s called {shown(asked)}: it has {listed(names)}."
    return f"{path} has the {what}s {listed(names)}: say with --column which of them holds the sets."


def _read_array(path: Path, name: str | None) -> Any:
    try:
        if path.suffix.lower() == ".npz":
            _check_unpacked(path)
        # Mapped, an array that claims to be larger than its file is refused before there is any memory for it.
        with np.errstate(over="ignore"):
            return _named_array(path, np.load(path, allow_pickle=False, mmap_mode="r"), name)
    except InputError:
        raise
    # A damaged file makes numpy and zipfile fail in ways that nobody has listed; and numpy's own sentence about objects would tell the
    # user how to run what a stranger has put into the file.
    except Exception:
        raise InputError(
            f"{path} holds no plain arrays, or is cut off: write it with numpy.save or numpy.savez, without objects."
        ) from None


def _check_unpacked(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        if sum(member.file_size for member in archive.infolist()) > UNPACKED_LIMIT:
            raise InputError(f"{path} unpacks to more than {UNPACKED_LIMIT >> 30} GiB: write the one array of sets with numpy.save.")


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
        found = content[name]
        if not isinstance(found, np.ndarray):
            raise InputError(f"{path} holds {shown(name)}, but not as an array: write it with numpy.savez.")
        return found
