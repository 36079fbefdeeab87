"""Set files: the candidate sets alone, from any file that holds some, found without being told where they stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ltpll.candidates import Candidates
from ltpll.candidates.cells import list_cells
from ltpll.data.benchmarks.image_sets import IMAGE_SETS
from ltpll.data.readers.columns import texts
from ltpll.data.readers.matlab import mat_candidates, read_mat
from ltpll.data.readers.numpy_files import read_array
from ltpll.data.readers.set_columns import SetColumn
from ltpll.data.readers.streaming import TABLE_SUFFIXES, Table, TableBatch, listed, open_table
from ltpll.errors import InputError, shown


def read_candidates(path: Path, column: str | None, separator: str) -> Candidates:
    """The sets in one column of a table, or in an array of zeros and ones; None is the only column that has sets in it."""
    kind = path.suffix.lower()
    if kind not in (*TABLE_SUFFIXES, ".npz", ".npy", ".mat"):
        known = ", ".join(IMAGE_SETS)
        raise InputError(f"{path} is not an image set ({known}), a run folder or a .csv, .tsv, .parquet, .npz, .npy or .mat file.")
    if kind == ".mat":
        if column is not None:
            raise InputError(f"The sets of {path} are in its array 'partial_target': leave --column out.")
        return mat_candidates(path, read_mat(path, needs_candidates=True))
    if kind in (".npz", ".npy"):
        if kind == ".npy" and column is not None and path.is_file():
            raise InputError(f"{path} holds one array without a name: leave --column out.")
        return Candidates.from_matrix(read_array(path, _named(path, column)))
    table = open_table(path)
    reader = SetColumn(table, _chosen(table, column, separator), separator)
    for batch in table.batches([reader.index]):
        reader.add(batch)
    return reader.candidates(None)


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


def _which(path: Path, what: str, names: Sequence[str], asked: str | None) -> str:
    if asked is not None:
        return f"{path} has {'several' if asked in names else 'no'} {what}s called {shown(asked)}: it has {listed(names)}."
    return f"{path} has the {what}s {listed(names)}: say with --column which of them holds the sets."


def _named(path: Path, name: str | None) -> Callable[[Sequence[str]], str]:
    def choose(names: Sequence[str]) -> str:
        if name is None and len(names) == 1:
            return names[0]
        if name not in names:
            raise InputError(_which(path, "array", names, name))
        return str(name)

    return choose
