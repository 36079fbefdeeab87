"""MATLAB files: published data sets, with the arrays `data`, `partial_target` and `target`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.candidates.parsing import CLASS_LIMIT
from ltpll.errors import InputError
from ltpll.formatting import are, counted
from ltpll.number_types import blurred_by_float32
from ltpll.tables.guarded import read_mat_arrays
from ltpll.tables.memory_limits import expansion_problem
from ltpll.tables.streaming import require_file

NAMES = ("data", "partial_target", "target")


class MatFile(NamedTuple):
    """One row per example; candidates are a scipy CSR matrix (rows × classes)."""

    features: npt.NDArray[Any]  # float32 or, if that would blur them, float64
    candidates: Any
    labels: npt.NDArray[np.int64] | None


def read_mat(path: Path, *, needs_candidates: bool, exact: bool = False) -> MatFile:
    """Read the arrays of a file."""
    require_file(path)
    found = read_mat_arrays(path, NAMES)
    required = {"data": "the features", "partial_target": "the sets, as zeros and ones,"}
    for name, content in required.items() if needs_candidates else [("data", "the features")]:
        if name not in found:
            raise InputError(
                f"{path} has no array called {name!r}: save {content} under that name."
            )
    data, target = found["data"], found.get("target")
    if data.ndim != 2 or math.prod(data.shape) == 0:
        raise InputError(
            f"The array 'data' of {path} has shape {data.shape}: it needs one row per example, and "
            "one or more columns."
        )
    low, high = data.min(axis=0), data.max(axis=0)
    if hasattr(data, "toarray"):
        reason = expansion_problem(path.stat().st_size, 4 * math.prod(data.shape))
        if reason is not None:
            raise InputError(
                f"The sparse array 'data' of {path} has shape {data.shape}, which is too large for "
                f"a dense array ({reason}): choose fewer features."
            )
        low, high = low.toarray()[0], high.toarray()[0]
    data = data.astype(np.float64 if exact or blurred_by_float32(low, high) else np.float32)
    features = np.ascontiguousarray(data.toarray() if hasattr(data, "toarray") else data)
    for i in np.flatnonzero(~np.isfinite(features).all(1))[:1].tolist():
        raise InputError(
            f"Row {i + 1} of 'data' in {path} has a NaN or an infinite value: "
            "fill it in or drop the row."
        )
    candidates = labels = None
    if "partial_target" in found:
        sets = found["partial_target"]
        candidates = _rows_by_classes(path, "partial_target", sets, len(features), target)
    if target is not None:
        labels = _true_labels(path, target, len(features), candidates)
    return MatFile(features, candidates, labels)


def mat_candidates(
    path: Path, found: MatFile, classes: tuple[str, ...] | None = None
) -> Candidates:
    """The candidate sets of a file; classes are called 1, 2, … unless names are given."""
    n_classes = found.candidates.shape[1]
    classes = classes if classes is not None else tuple(str(c + 1) for c in range(n_classes))
    if len(classes) != n_classes:
        names = counted(len(classes), "class name")
        raise InputError(
            f"{path} has sets of {n_classes} classes, but there {are(len(classes))} {names}: "
            "give one per class."
        )
    sets = found.candidates
    arrays = sets.indptr, sets.indices, n_classes, classes
    return Candidates.from_flat(*arrays, lambda i: f"Row {i + 1} of 'partial_target' in {path}")


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


def _true_labels(path: Path, target: Any, n: int, candidates: Any) -> npt.NDArray[np.int64]:
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
        labels = numbers - 1 if numbers.min() > 0 else numbers
    else:
        matrix = _rows_by_classes(path, "target", target, n, target)
        counts = np.diff(matrix.indptr)
        for i in np.flatnonzero(counts > 1)[:1].tolist():
            raise InputError(
                f"Row {i + 1} of 'target' in {path} has several true labels: an example has one."
            )
        labels = np.full(n, -1, dtype=np.int64)
        labels[counts == 1] = matrix.indices
    if candidates is not None and labels.max() >= candidates.shape[1]:
        raise InputError(
            f"The array 'target' of {path} names class {labels.max() + 1}, but 'partial_target' "
            f"has {candidates.shape[1]}."
        )
    return labels
