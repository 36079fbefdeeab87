"""Candidate files: candidate sets from any file that contains some, with the column found automatically."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ltpll.candidates import Candidates
from ltpll.candidates.cells import list_cells
from ltpll.data.benchmarks.image_sets import IMAGE_SETS
from ltpll.data.readers.columns import TextColumn, texts
from ltpll.data.readers.matlab import mat_candidates, read_mat
from ltpll.data.readers.numpy_files import read_array
from ltpll.data.readers.set_columns import SetColumn
from ltpll.data.readers.streaming import TABLE_SUFFIXES, Table, TableBatch, open_table
from ltpll.errors import InputError, shown
from ltpll.formatting import format_names


def read_candidates(path: Path, column: str | None, separator: str, group: str | None = None) -> Candidates:
    """Read candidate sets from a table or from an array of zeros and ones.

    Args:
        path: A .csv, .tsv, .parquet, .npz, .npy or .mat file.
        column: The column or array that holds the sets; None if there is only one such column.
        separator: What separates the names in a cell.
        group: The column of a table that names the picture or scene of each row.

    Returns:
        The candidate sets, with their groups if there is a column of groups.

    Raises:
        InputError: The file cannot be read, or it is not clear which column holds the sets.

    Example:
        >>> read_candidates(Path("labels.csv"), column=None, separator="|")
    """
    kind = path.suffix.lower()
    if kind not in (*TABLE_SUFFIXES, ".npz", ".npy", ".mat"):
        known = ", ".join(IMAGE_SETS)
        raise InputError(f"{path} is not an image set ({known}), a run folder, or a .csv, .tsv, .parquet, .npz, .npy or .mat file.")
    if group is not None and kind not in TABLE_SUFFIXES:
        raise InputError(f"{path} is not a table, so it has no column of groups: omit --group.")
    if kind == ".mat":
        if column is not None:
            raise InputError(f"The sets of {path} are in its array 'partial_target': omit --column.")
        return mat_candidates(path, read_mat(path, needs_candidates=True))
    if kind in (".npz", ".npy"):
        if kind == ".npy" and column is not None and path.is_file():
            raise InputError(f"{path} holds one array without a name: omit --column.")
        return Candidates.from_matrix(read_array(path, _array_chooser(path, column)))
    table = open_table(path)
    reader = SetColumn(table, _set_column(table, column, separator), separator)
    groups = None if group is None else TextColumn(table, table.column(group), repeated=True)
    for batch in table.batches(sorted({reader.index, *([groups.index] if groups else [])})):
        reader.add(batch)
        if groups is not None:
            groups.add(batch)
    candidates = reader.candidates(None)
    return candidates if groups is None else candidates.with_groups(groups.codes())


def _set_column(table: Table, name: str | None, separator: str) -> int:
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
    raise InputError(_unclear(table.path, "column", table.names, name))


def _has_sets(table: Table, batch: TableBatch, index: int, separator: str) -> bool:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    kind = batch.columns[index].type
    if pa.types.is_nested(kind):
        return not pa.types.is_struct(kind)
    if not any(is_kind(kind) for is_kind in (pa.types.is_binary, pa.types.is_string, pa.types.is_large_string, pa.types.is_dictionary)):
        return False
    cells = texts(table, batch, index)
    return bool(pc.any(pc.or_(list_cells(cells), pc.match_substring(cells, separator))).as_py())


def _unclear(path: Path, what: str, names: Sequence[str], requested: str | None) -> str:
    if requested is not None:
        return f"{path} has {'several' if requested in names else 'no'} {what}s called {shown(requested)}: it has {format_names(names)}."
    return f"{path} has the {what}s {format_names(names)}: specify with --column which of them holds the sets."


def _array_chooser(path: Path, name: str | None) -> Callable[[Sequence[str]], str]:
    def choose(names: Sequence[str]) -> str:
        if name is None and len(names) == 1:
            return names[0]
        if name not in names:
            raise InputError(_unclear(path, "array", names, name))
        return str(name)

    return choose
