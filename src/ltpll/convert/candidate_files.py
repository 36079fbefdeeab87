"""Candidate files: candidate sets and true labels alone, from any file that contains some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.convert.json_formats import is_tool_file
from ltpll.convert.open import read_label_table
from ltpll.errors import InputError, shown
from ltpll.formatting import format_names
from ltpll.tables.json_stream import JSON_SUFFIXES
from ltpll.tables.numpy_files import ARRAY_SUFFIXES, read_array
from ltpll.tables.opening import READABLE, is_pattern, open_table
from ltpll.tables.reading import DEFAULT_READING, Reading

MADE_OF_COLUMNS = ("class_columns", "probability_columns", "annotators")
OF_TABLES = ("group", "label", *MADE_OF_COLUMNS, "task", "worker", "annotation")


class LabelledSets(NamedTuple):
    """Candidate sets, and the true class number of each if it is known: otherwise −1."""

    candidates: Candidates
    labels: npt.NDArray[np.int64] | None
    notes: tuple[str, ...] = ()  # sentences about what was skipped


def read_candidates(
    path: Path, column: str | None = None, reading: Reading = DEFAULT_READING
) -> LabelledSets:
    """Read candidate sets in every way that training can, or from an array of zeros and ones.

    Args:
        path: A table, an .npz, .npy or .mat file, JSON of a labelling tool or detector, or a
            folder of pictures.
        column: The column or array that holds the sets; by default the only one, or else the column
            that `reading` names.
        reading: How to read a table; ids, paths and features are not read.

    Returns:
        The candidate sets, with their groups if there is a column of groups, and the true labels if
        there are some.

    Raises:
        InputError: The file cannot be read, or it is not clear which column holds the sets.

    Examples:
        >>> _ = Path("labels.csv").write_text("candidates,label\\ncat|dog,cat\\nfox,fox\\n")
        >>> found = read_candidates(Path("labels.csv"))
        >>> found.candidates.classes
        ('cat', 'dog', 'fox')
    """
    kind = path.suffix.lower()
    if kind in ARRAY_SUFFIXES:
        return _read_array(path, column, reading)
    if kind not in (*READABLE, ".mat", *JSON_SUFFIXES) and not (path.is_dir() or is_pattern(path)):
        raise InputError(
            f"{path} is not a run folder, or a .csv, .tsv, .parquet, .xlsx, .npz, .npy, .mat, "
            ".json or .jsonl file."
        )
    is_table = not (path.is_dir() or kind == ".mat" or is_tool_file(path))
    if column is not None and not is_table:
        raise InputError(
            f"{path} is not a table, so it has no column {shown(column)}: omit --candidates."
        )
    instead = next((name for name in MADE_OF_COLUMNS if getattr(reading, name)), None)
    if column is not None and instead is not None:
        raise InputError(
            f"Sets cannot be read from the column {shown(column)} and from {instead} at the same "
            "time: give one of them."
        )
    if is_table and column is None and instead is None:
        table = open_table(path, reading.sheet)
        column = table.names[0] if len(table.names) == 1 else None
    reading = replace(reading, features=(), candidates=column or reading.candidates)
    if not (is_table and reading.annotators):  # in a table of annotations, they may be the tasks
        reading = replace(reading, id=None, path=None)
    found = read_label_table(path, reading)
    assert found.candidates is not None
    return LabelledSets(found.candidates, found.labels, found.notes)


def _read_array(path: Path, column: str | None, reading: Reading) -> LabelledSets:
    named = [name for name in OF_TABLES if getattr(reading, name)] + reading.changed_set_rules()
    if named:
        raise InputError(f"{path} is not a table, so it has no column for {named[0]}: omit it.")
    if column is not None and path.suffix.lower() == ".npy" and path.is_file():
        raise InputError(f"{path} holds one array without a name: omit --candidates.")

    def choose(names: Sequence[str]) -> str:
        if column in names:
            return str(column)
        if column is None and len(names) == 1:
            return names[0]
        which = "which of them" if column is None else f"one of them, not {shown(column)},"
        raise InputError(
            f"{path} has the arrays {format_names(names)}: specify with --candidates {which} "
            "holds the "
            "sets."
        )

    return LabelledSets(Candidates.from_matrix(read_array(path, choose)), None)
