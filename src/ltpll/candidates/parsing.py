"""Parsing: matrices, lists of sets and lists of strings become one flat array of class numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.candidates.arrow import arrow_list, is_arrow, pandas_frame
from ltpll.candidates.cells import (
    PLAIN_ROW,
    Cell,
    FlatSets,
    TextSets,
    as_texts,
    names_to_numbers,
    no_candidates_error,
    parse_cell,
    row_at,
    scored_cell,
)
from ltpll.candidates.expressions import (
    PLAIN_RULES,
    SetRules,
    class_sets,
    empty_advice,
)
from ltpll.candidates.similar_names import warn_of_similar_names
from ltpll.errors import InputError, shown
from ltpll.formatting import are, counted

CLASS_LIMIT = 1_000_000  # a number in a small file can ask for billions
CELLS_AT_ONCE = 1 << 16


def as_matrix(
    matrix: Any, classes: Sequence[Hashable] | None
) -> tuple[Any, tuple[Hashable, ...] | None]:
    """A matrix as an array or in CSR, and the names of its columns if they are given."""
    if isinstance(matrix, Tensor):
        tensor = matrix.detach().cpu().to_dense()
        matrix = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    elif not hasattr(matrix, "tocsr"):
        matrix = np.asarray(matrix)
    if matrix.ndim != 2:
        which = "A candidate matrix has two dimensions (rows × classes)"
        raise InputError(f"{which}; this one has shape {matrix.shape}.")
    names = None if classes is None else check_class_names(classes)
    if names is not None and len(names) != matrix.shape[1]:
        columns = counted(matrix.shape[1], "column")
        which = f"There {are(len(names))} {counted(len(names), 'class name')} for {columns}"
        raise InputError(f"{which} of the candidate matrix: give one name per column.")
    if matrix.dtype.kind not in "biuf":
        which = "A candidate matrix holds numbers; this one holds"
        raise InputError(f"{which} {np.dtype(matrix.dtype).name}: convert it to numbers first.")
    return matrix.tocsr() if hasattr(matrix, "tocsr") else matrix, names


def read_matrix(matrix: Any, classes: Sequence[Hashable] | None) -> FlatSets:
    """Read an N × C matrix of zeros and ones."""
    matrix, names = as_matrix(matrix, classes)
    if hasattr(matrix, "tocsr"):
        csr = matrix.copy()
        csr.sum_duplicates()
        csr.eliminate_zeros()
        indptr, numbers, values = csr.indptr, csr.indices, csr.data
    else:
        rows, numbers = np.nonzero(matrix)
        indptr, values = np.searchsorted(rows, np.arange(len(matrix) + 1)), matrix[rows, numbers]
    wrong = np.flatnonzero(values != 1)
    if len(wrong):
        first = int(wrong[0])
        raise InputError(
            f"Row {row_at(first, indptr)} of the candidate matrix holds {values[first]}, but "
            "only 0 and 1 are allowed: turn scores into sets first, for example `scores > 0`."
        )
    return FlatSets(indptr, numbers, matrix.shape[1], names)


def read_source(
    source: Any,
    classes: Sequence[Hashable] | None,
    n_classes: int | None,
    separator: str,
    rules: SetRules,
) -> FlatSets:
    """Read any object that `Candidates.of` takes."""
    frame = pandas_frame(source)
    if frame is not None:
        source, classes = frame.to_numpy(), list(frame.columns) if classes is None else classes
    is_array = isinstance(source, np.ndarray) and source.ndim != 1
    if is_array or isinstance(source, Tensor) or hasattr(source, "tocsr"):
        if rules != PLAIN_RULES:
            which = "taxonomy and empty are for names, but the candidates are a matrix"
            raise InputError(f"{which}: omit them.")
        return read_matrix(source, classes)
    if is_arrow(source):
        rows = arrow_list(source)
    elif hasattr(source, "tolist"):
        rows = source.tolist()
    elif isinstance(source, Iterable) and not isinstance(source, (str, bytes, Mapping)):
        rows = list(source)
    else:
        which = f"Candidates cannot be read from {shown(source)}"
        raise InputError(f"{which}: give a 0/1 matrix, a list of sets or a list of strings.")
    is_cell = (isinstance(row, (str, Mapping)) or is_missing_value(row) for row in rows)
    if rules == PLAIN_RULES and not any(is_cell):
        return _read_sets(rows, classes, n_classes)
    return _read_cells(rows, separator, classes, n_classes, rules)


def _read_sets(
    sets: Sequence[Any], classes: Sequence[Hashable] | None, n_classes: int | None
) -> FlatSets:
    """Read one collection of names or numbers per row."""
    rows = [_as_collection(row, i) for i, row in enumerate(sets)]
    labels: list[Any] = list(chain.from_iterable(rows))
    indptr = np.cumsum([0, *map(len, rows)])
    if classes is None and not any(isinstance(label, str) for label in labels):
        numbers = _whole_numbers(labels, indptr)
        if n_classes is None:
            n_classes = int(numbers.max()) + 1 if len(numbers) else 0
        return FlatSets(indptr, numbers, int(n_classes), None)
    for k, label in enumerate(labels):
        # Without a list of classes, all labels must be names.
        if isinstance(label, (list, dict, set, np.ndarray)):
            problem = "is not a name: give flat lists"
        elif classes is None and not isinstance(label, str):
            problem = "is not a string, while others are names: use names everywhere"
        else:
            continue
        which = f"Row {row_at(k, indptr)} has the candidate {shown(label)}"
        raise InputError(f"{which}, which {problem}, or give the list of classes.")
    codes = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    names = tuple(sorted(codes)) if classes is None else check_class_names(classes)
    flat = np.fromiter(map(codes.__getitem__, labels), dtype=np.int64, count=len(labels))
    found = names_to_numbers(indptr, flat, list(codes), names, PLAIN_ROW)
    if classes is None:
        warn_of_similar_names(names, found.numbers)
    return found


def _read_cells(
    cells: Sequence[Any],
    separator: str,
    classes: Sequence[Hashable] | None,
    n_classes: int | None,
    rules: SetRules,
) -> FlatSets:
    """Read one string such as `cat|dog`, or a collection of names, per row."""
    missing = [i for i, cell in enumerate(cells) if is_missing_value(cell)]
    if missing and rules.empty == "stop":
        raise InputError(no_candidates_error(f"Row {missing[0]}", advice=empty_advice()))
    if missing:
        cells = ["" if is_missing_value(cell) else cell for cell in cells]
    names = None if classes is None else check_class_names(classes)
    sets = TextSets(separator, classes=names)
    if cells and all(isinstance(cell, str) for cell in cells):
        for first in range(0, len(cells), CELLS_AT_ONCE):
            part = cells[first : first + CELLS_AT_ONCE]
            sets.add_cells(as_texts(part, range(first, len(cells))), first)
    else:
        parsed = [_parse_one_cell(cell, separator, i) for i, cell in enumerate(cells)]
        if not parsed or not all(isinstance(name, str) for cell in parsed for name in cell.entries):
            if rules != PLAIN_RULES:
                which = "taxonomy and empty are for candidates that are all names"
                raise InputError(f"{which}: write them as text, or omit the two.")
            return _read_sets([cell.entries for cell in parsed], classes, n_classes)
        sets.add_parsed(parsed, 0)
    known = (*(names or ()), *(rules.taxonomy.names if rules.taxonomy else ()))
    return class_sets(sets.entries(known), names, rules)


def _parse_one_cell(cell: Any, separator: str, i: int) -> Cell:
    if isinstance(cell, Mapping):
        return scored_cell(cell, i)
    if isinstance(cell, str):
        return parse_cell(cell, separator, i)
    return Cell(list(_as_collection(cell, i)), literal=True)


def is_missing_value(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and cell != cell)


def _as_collection(row: Any, i: int) -> Collection[Any]:
    if isinstance(row, (Tensor, np.ndarray)):
        return row.ravel().tolist()
    if isinstance(row, (list, tuple, set, frozenset)):
        return row
    try:
        if isinstance(row, bytes):
            raise TypeError
        return list(row)
    except TypeError:
        which = f"Row {i} is {shown(row)}, not a set or list of labels"
        raise InputError(f"{which}: a known label is a list of one.") from None


def check_class_names(classes: Sequence[Any]) -> tuple[Any, ...]:
    """The class names as a tuple, refused if one occurs twice."""
    names = tuple(classes)
    if len(set(names)) != len(names):
        repeated = shown(Counter(names).most_common(1)[0][0])
        which = f"The class name {repeated} occurs twice in the list of classes"
        raise InputError(f"{which}: names must be distinct.")
    return names


def _whole_numbers(labels: list[Any], indptr: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not labels:
        return np.zeros(0, dtype=np.int64)
    try:
        values = np.asarray(labels)
        with np.errstate(invalid="ignore"):
            numbers = values.astype(np.int64)
        if values.ndim == 1 and values.dtype.kind in "fiu" and (numbers == values).all():
            return numbers
    except (TypeError, ValueError, OverflowError):
        pass
    number: Any = (int, float, np.number)
    wrong = (
        k
        for k, label in enumerate(labels)
        if isinstance(label, bool)
        or not (isinstance(label, number) and label % 1 == 0 and abs(label) < 2**63)
    )
    first = next(wrong, 0)
    which = f"Row {row_at(first, indptr)} has the candidate {shown(labels[first])}"
    raise InputError(
        f"{which}, which is not a class number: use whole numbers from 0, or give the list of "
        "classes."
    )
