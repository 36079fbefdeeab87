"""Candidate files: candidate sets and true labels from any file that contains some, with the column found automatically."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.candidates.cells import structured_cells
from ltpll.convert.json_stream import JSON_SUFFIXES
from ltpll.convert.open import read_label_table
from ltpll.errors import InputError, shown
from ltpll.formatting import format_names
from ltpll.tables.columns import texts
from ltpll.tables.numpy_files import read_array
from ltpll.tables.reading import DEFAULT_READING, Reading
from ltpll.tables.streaming import TABLE_SUFFIXES, Table, TableBatch, open_table

OF_TABLES = (
    "group",
    "label",
    "class_columns",
    "probability_columns",
    "annotators",
    "task",
    "worker",
    "annotation",
)


class LabelledSets(NamedTuple):
    """Candidate sets, and the true class number of each if there are true labels: −1 where it is unknown."""

    candidates: Candidates
    labels: npt.NDArray[np.int64] | None
    notes: tuple[str, ...] = ()  # sentences about what was skipped


def read_candidates(
    path: Path, column: str | None = None, reading: Reading = DEFAULT_READING
) -> LabelledSets:
    """Read candidate sets, in every way that `read_label_table` can, or from an array of zeros and ones.

    Args:
        path: A .csv, .tsv, .parquet, .npz, .npy or .mat file, or JSON of a labelling tool or detector.
        column: The column or array that holds the sets; by default the column `candidates`, or else the only one that holds sets.
        reading: How to read a table; ids, paths and features are not read.

    Returns:
        The candidate sets, with their groups if there is a column of groups, and the true labels if there are some.

    Raises:
        InputError: The file cannot be read, or it is not clear which column holds the sets.

    Examples:
        >>> _ = Path("labels.csv").write_text("candidates,label\\ncat|dog,cat\\nfox,fox\\n")
        >>> found = read_candidates(Path("labels.csv"))
        >>> found.candidates.classes
        ('cat', 'dog', 'fox')
    """
    kind = path.suffix.lower()
    if kind in (".npz", ".npy"):
        named = next(
            (name for name in OF_TABLES if getattr(reading, name)),
            next(iter(reading.changed_set_rules()), None),
        )
        if named is not None:
            raise InputError(f"{path} is not a table, so it has no column for {named}: omit it.")
        if kind == ".npy" and column is not None and path.is_file():
            raise InputError(f"{path} holds one array without a name: omit --column.")
        return LabelledSets(
            Candidates.from_matrix(read_array(path, _array_chooser(path, column))), None
        )
    if kind not in (*TABLE_SUFFIXES, ".mat", *JSON_SUFFIXES):
        raise InputError(
            f"{path} is not a run folder, or a .csv, .tsv, .parquet, .npz, .npy, .mat, .json or .jsonl file."
        )
    if kind == ".mat" and column is not None:
        raise InputError(f"The sets of {path} are in its array 'partial_target': omit --column.")
    if kind in JSON_SUFFIXES and column is not None:
        raise InputError(
            f"{path} is not a table, so it has no column {shown(column)}: omit --column."
        )
    reading = replace(reading, features=())
    instead = next(
        (
            name
            for name in ("class_columns", "probability_columns", "annotators")
            if getattr(reading, name)
        ),
        None,
    )
    if instead is not None and column is not None:
        raise InputError(
            f"Sets cannot be read from the column {shown(column)} and from {instead} at the same time: give one of them."
        )
    if kind in TABLE_SUFFIXES and instead is None:
        table = open_table(path)
        others = {reading.excluded or "excluded", reading.possible, reading.site}
        reading = replace(
            reading, candidates=table.names[_set_column(table, column, reading.separator, others)]
        )
    # Whether names are distinct does not matter here. In a table of annotations, they may be the tasks.
    found = read_label_table(
        path,
        reading
        if reading.annotators and kind not in JSON_SUFFIXES
        else replace(reading, id=None, path=None),
    )
    assert found.candidates is not None
    return LabelledSets(found.candidates, found.labels, found.notes)


def _set_column(
    table: Table, name: str | None, separator: str, others: Container[str | None]
) -> int:
    if name is not None and table.names.count(name) == 1:
        return table.names.index(name)
    if name is None and table.names.count(Reading.candidates) == 1:
        return table.names.index(Reading.candidates)
    if name is None and len(table.names) == 1:
        return table.column(Reading.candidates) if table.hint() else 0
    if name is None:
        columns = [index for index, found in enumerate(table.names) if found not in others]
        found: set[int] = set()
        for batch in table.batches(columns):
            found |= {
                index
                for index in columns
                if index not in found and _has_sets(table, batch, index, separator)
            }
        if len(found) == 1:
            return found.pop()
    raise InputError(_unclear(table.path, "column", table.names, name))


def _has_sets(table: Table, batch: TableBatch, index: int, separator: str) -> bool:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    kind = batch.columns[index].type
    if pa.types.is_nested(kind):
        return not pa.types.is_struct(kind)
    if not any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_binary,
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_dictionary,
        )
    ):
        return False
    cells = texts(table, batch, index)
    return bool(
        pc.any(
            pc.or_(
                structured_cells(cells),
                pc.or_(pc.match_substring(cells, separator), pc.starts_with(cells, "!")),
            )
        ).as_py()
    )


def _unclear(path: Path | str, what: str, names: Sequence[str], requested: str | None) -> str:
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
