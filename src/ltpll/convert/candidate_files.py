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
    made_of = any(getattr(reading, name) for name in MADE_OF_COLUMNS)
    if column is not None and (made_of or not is_table):
        raise InputError(
            f"The sets of {path} cannot be read from the column {shown(column)}: omit --candidates."
        )
    if is_table and column is None and not made_of:
        names = open_table(path, reading.sheet).names
        column = names[0] if len(names) == 1 else None
    reading = replace(reading, features=(), candidates=column or reading.candidates)
    if not (is_table and reading.annotators):  # in a table of annotations, they may be the tasks
        reading = replace(reading, id=None, path=None)
    found = read_label_table(path, reading)
    assert found.candidates is not None
    return LabelledSets(found.candidates, found.labels, found.notes)


def _read_array(path: Path, column: str | None, reading: Reading) -> LabelledSets:
    named = [name for name in reading.given() if name != "candidates"]
    if column is not None and path.suffix.lower() == ".npy":
        named = ["--candidates"]
    if named:
        raise InputError(f"{path} is an array and not a table: omit {named[0]}.")

    def choose(names: Sequence[str]) -> str:
        if column is not None or len(names) == 1:
            return column or names[0]
        raise InputError(
            f"{path} has the arrays {format_names(names)}: specify with --candidates which of them "
            "holds the sets."
        )

    return LabelledSets(Candidates.from_matrix(read_array(path, choose)), None)
