"""MATLAB files: published data sets, with the arrays `data`, `partial_target` and `target`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates.cells import SEPARATOR
from ltpll.convert.examples import Converted
from ltpll.errors import InputError
from ltpll.formatting import counted
from ltpll.tables.guarded import read_mat_arrays
from ltpll.tables.reading import Reading
from ltpll.tables.streaming import require_file

Matrix = npt.NDArray[np.float64]
CONTENT = {"data": "the features", "partial_target": "the sets, as zeros and ones,"}


def convert_mat(path: Path, reading: Reading, needs_candidates: bool) -> Converted:
    """Read a file; classes are called 1, 2, … unless names are given, and features data_1, ….

    Raises:
        InputError: The file cannot be read, lacks an array, or its arrays do not fit each other.
    """
    require_file(path)
    arrays = read_mat_arrays(path, (*CONTENT, "target"))
    for name in ("data", *(["partial_target"] if needs_candidates else [])):
        if name not in arrays:
            problem = f"{path} has no array called {name!r}"
            raise InputError(f"{problem}: save {CONTENT[name]} under that name.")
    data = arrays["data"]
    if data.ndim != 2 or data.size == 0:
        raise InputError(
            f"The array 'data' of {path} has shape {data.shape}: it needs one row per example, and "
            "one or more columns."
        )
    sets = labels = None
    n_classes = 0
    if "partial_target" in arrays:
        sets = _rows_by_classes(path, "partial_target", arrays["partial_target"], len(data))
        n_classes = sets.shape[1]
    if "target" in arrays:
        labels = _true_labels(path, arrays["target"], len(data))
        most = int(labels.max()) + 1
        if sets is not None and most > n_classes:
            raise InputError(
                f"The array 'target' of {path} names class {most}, but 'partial_target' has "
                f"{n_classes}."
            )
        n_classes = max(n_classes, most)
    classes = reading.classes or tuple(str(c + 1) for c in range(n_classes))
    if len(classes) < n_classes or (sets is not None and len(classes) > n_classes):
        raise InputError(
            f"{path} has {counted(n_classes, 'class', 'classes')}, but there are {len(classes)} "
            "class names: give one per class."
        )
    columns: dict[str, Any] = {}
    if sets is not None:
        names = [[classes[c] for c in np.flatnonzero(row).tolist()] for row in sets]
        columns["candidates"] = [json.dumps(row, ensure_ascii=False) for row in names]
    if labels is not None:
        columns["label"] = ["" if label < 0 else classes[label] for label in labels.tolist()]
    columns |= {f"data_{j + 1}": np.ascontiguousarray(one) for j, one in enumerate(data.T)}
    return Converted(columns, replace(reading, classes=classes, separator=SEPARATOR))


def _rows_by_classes(path: Path, name: str, matrix: Matrix, n: int) -> Matrix:
    """A 0/1 matrix as rows × classes; published files have classes × rows."""
    if matrix.ndim != 2 or matrix.shape.count(n) != 1:
        raise InputError(
            f"The array {name!r} of {path} has shape {matrix.shape}, but 'data' has "
            f"{counted(n, 'row')}: one side must be {n}, and the other the number of classes."
        )
    rows = matrix if len(matrix) == n else matrix.T
    wrong = np.argwhere((rows != 0) & (rows != 1))
    for i, c in wrong[:1].tolist():
        raise InputError(
            f"Row {i + 1} of {name!r} in {path} holds {rows[i, c]:g}, but only 0 and 1 are allowed."
        )
    return rows


def _true_labels(path: Path, target: Matrix, n: int) -> npt.NDArray[np.int64]:
    """True class numbers from a 0/1 matrix or from one number per example, counted from 1 or 0."""
    if target.size == n:
        numbers = target.ravel()
        if not np.isin(numbers, np.arange(np.iinfo(np.int16).max)).all():
            raise InputError(
                f"The array 'target' of {path} holds numbers that are not classes: give whole "
                "numbers from 1."
            )
        return np.asarray(numbers - min(numbers.min(), 1), dtype=np.int64)
    matrix = _rows_by_classes(path, "target", target, n)
    several = np.flatnonzero(matrix.sum(axis=1) > 1)
    if len(several):
        which = f"Row {several[0] + 1} of 'target' in {path}"
        raise InputError(f"{which} has several true labels: an example has one.")
    return np.where(matrix.any(axis=1), matrix.argmax(axis=1), -1)
