"""MATLAB files: published data sets, with the arrays `data`, `partial_target` and `target`."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates.cells import SEPARATOR
from ltpll.candidates.parsing import CLASS_LIMIT
from ltpll.convert.examples import Converted, as_cells
from ltpll.errors import InputError
from ltpll.formatting import counted
from ltpll.tables.guarded import read_mat_arrays
from ltpll.tables.memory_limits import check_expansion
from ltpll.tables.reading import Reading
from ltpll.tables.streaming import require_file

NAMES = ("data", "partial_target", "target")


def convert_mat(path: Path, reading: Reading, needs_candidates: bool) -> Converted:
    """Read a file; classes are called 1, 2, … unless names are given, and features data_1, ….

    Raises:
        InputError: The file cannot be read, lacks an array, or its arrays do not fit each other.
    """
    require_file(path)
    found = read_mat_arrays(path, NAMES)
    required = {"data": "the features", "partial_target": "the sets, as zeros and ones,"}
    for name, content in required.items():
        if name not in found and (needs_candidates or name == "data"):
            raise InputError(
                f"{path} has no array called {name!r}: save {content} under that name."
            )
    data, target, sets = found["data"], found.get("target"), found.get("partial_target")
    if data.ndim != 2 or math.prod(data.shape) == 0:
        raise InputError(
            f"The array 'data' of {path} has shape {data.shape}: it needs one row per example, and "
            "one or more columns."
        )
    if hasattr(data, "toarray"):
        advice = "choose fewer features, since the sparse array 'data' becomes a dense one"
        check_expansion(path, path.stat().st_size, 8 * math.prod(data.shape), advice)
        data = data.toarray()
    n_classes, labels = 0, None
    if sets is not None:
        sets = _rows_by_classes(path, "partial_target", sets, len(data), target)
        n_classes = sets.shape[1]
    if target is not None:
        labels = _true_labels(path, target, len(data))
        if sets is not None and labels.max() >= n_classes:
            raise InputError(
                f"The array 'target' of {path} names class {labels.max() + 1}, but "
                f"'partial_target' has {n_classes}."
            )
        n_classes = max(n_classes, int(labels.max()) + 1)
    classes = reading.classes or tuple(str(c + 1) for c in range(n_classes))
    if len(classes) < n_classes or (sets is not None and len(classes) > n_classes):
        raise InputError(
            f"{path} has {counted(n_classes, 'class', 'classes')}, but there are {len(classes)} "
            "class names: give one per class."
        )
    columns: dict[str, Any] = {}
    if sets is not None:
        names = [classes[label] for label in sets.indices.tolist()]
        rows = [names[start:end] for start, end in pairwise(sets.indptr.tolist())]
        columns["candidates"] = as_cells(rows)
    if labels is not None:
        columns["label"] = ["" if label < 0 else classes[label] for label in labels.tolist()]
    columns |= {f"data_{j + 1}": np.ascontiguousarray(one) for j, one in enumerate(data.T)}
    return Converted(columns, replace(reading, classes=classes, separator=SEPARATOR))


def _rows_by_classes(path: Path, name: str, matrix: Any, n: int, other: Any = None) -> Any:
    """Convert a 0/1 matrix to rows × classes; published files have classes × rows."""
    from scipy.sparse import csr_matrix

    if n not in matrix.shape or matrix.ndim != 2 or max(matrix.shape) > max(n, CLASS_LIMIT):
        raise InputError(
            f"The array {name!r} of {path} has shape {matrix.shape}, but 'data' has "
            f"{counted(n, 'row')}: one side must be {n}, the other at most {CLASS_LIMIT:,} classes."
        )
    rows_first = matrix.shape[1] != n
    if matrix.shape == (n, n) and other is not None and other.shape == (n, n):
        # As many classes as examples: only rows of the true labels have exactly one entry each.
        true = csr_matrix(other)
        by_rows, by_columns = np.diff(true.indptr), true.getnnz(axis=0)
        rows_first = bool((by_rows == 1).all()) and not bool((by_columns == 1).all())
    found = csr_matrix(matrix if rows_first else matrix.T)
    found.sum_duplicates()
    wrong = np.flatnonzero(~((found.data == 0) | (found.data == 1)))
    if len(wrong):
        row = int(np.searchsorted(found.indptr, wrong[0], side="right"))
        raise InputError(
            f"Row {row} of {name!r} in {path} holds {found.data[wrong[0]]}, but only 0 and 1 are "
            "allowed."
        )
    found.eliminate_zeros()
    return found


def _true_labels(path: Path, target: Any, n: int) -> npt.NDArray[np.int64]:
    """True class numbers from a 0/1 matrix or from one number per example, counted from 1 or 0."""
    if target.ndim == 2 and 1 in target.shape and n in target.shape and n > 1:
        values = np.asarray(target.toarray() if hasattr(target, "toarray") else target).ravel()
        with np.errstate(invalid="ignore"):
            numbers = values.astype(np.int64)
        if not np.array_equal(numbers, values) or numbers.min() < 0:
            raise InputError(
                f"The array 'target' of {path} holds numbers that are not classes: "
                "give whole numbers from 1."
            )
        return np.asarray(numbers - min(numbers.min(), 1))
    matrix = _rows_by_classes(path, "target", target, n, target)
    counts = np.diff(matrix.indptr)
    for i in np.flatnonzero(counts > 1)[:1].tolist():
        raise InputError(
            f"Row {i + 1} of 'target' in {path} has several true labels: an example has one."
        )
    labels = np.full(n, -1, dtype=np.int64)
    labels[counts == 1] = matrix.indices
    return labels
