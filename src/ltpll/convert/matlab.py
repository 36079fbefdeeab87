"""MATLAB files: published partial-label data sets, with the arrays `data`, `partial_target` and `target`."""

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
from ltpll.tables.streaming import check_is_file

NAMES = ("data", "partial_target", "target")


class MatFile(NamedTuple):
    """The content of a file, one row per example; candidates are a scipy CSR matrix (rows × classes)."""

    features: npt.NDArray[Any]  # float32 or, if that would blur them, float64
    candidates: Any
    labels: npt.NDArray[np.int64] | None


def read_mat(path: Path, *, needs_candidates: bool, exact: bool = False) -> MatFile:
    check_is_file(path)
    found = read_mat_arrays(path, NAMES)
    if "data" not in found:
        raise InputError(
            f"{path} has no array called 'data': save the features under that name, one row per example."
        )
    data = found["data"]
    if hasattr(data, "toarray"):
        reason = expansion_problem(path.stat().st_size, 4 * math.prod(data.shape))
        if reason is not None:
            raise InputError(
                f"The sparse array 'data' of {path} has shape {data.shape}, which is too large for a dense array ({reason}): "
                "choose fewer features."
            )
    if data.ndim != 2 or math.prod(data.shape) == 0:
        raise InputError(
            f"The array 'data' of {path} has shape {data.shape}: it needs one row per example, and one or more columns."
        )
    low, high = (
        bound.toarray()[0] if hasattr(bound, "toarray") else bound
        for bound in (data.min(axis=0), data.max(axis=0))
    )
    data = data.astype(np.float64 if exact or blurred_by_float32(low, high) else np.float32)
    features = np.ascontiguousarray(data.toarray() if hasattr(data, "toarray") else data)
    wrong = np.flatnonzero(~np.isfinite(features).all(1))
    if len(wrong):
        raise InputError(
            f"Row {wrong[0] + 1} of 'data' in {path} has a NaN or an infinite value: fill it in or drop the row."
        )
    sets, target = found.get("partial_target"), found.get("target")
    if sets is None and needs_candidates:
        raise InputError(
            f"{path} has no array called 'partial_target': save the candidate sets under that name, as zeros and ones."
        )
    n = len(features)
    candidates = None if sets is None else _by_row(path, "partial_target", sets, n, target)
    return MatFile(
        features, candidates, None if target is None else _labels(path, target, n, candidates)
    )


def mat_candidates(
    path: Path, found: MatFile, classes: tuple[str, ...] | None = None
) -> Candidates:
    """The candidate sets of a file; classes are called 1, 2, … unless names are given."""
    n_classes = found.candidates.shape[1]
    classes = classes if classes is not None else tuple(str(c + 1) for c in range(n_classes))
    if len(classes) != n_classes:
        raise InputError(
            f"{path} has sets of {n_classes} classes, but there {are(len(classes))} {counted(len(classes), 'class name')}: "
            "give one per class."
        )
    sets = found.candidates
    return Candidates.from_flat(
        sets.indptr,
        sets.indices,
        n_classes,
        classes,
        lambda i: f"Row {i + 1} of 'partial_target' in {path}",
    )


def _by_row(path: Path, name: str, matrix: Any, n: int, other: Any = None) -> Any:
    """Convert a 0/1 matrix to rows × classes; published files have classes × rows."""
    from scipy.sparse import csr_matrix

    if n not in matrix.shape or matrix.ndim != 2:
        raise InputError(
            f"The array {name!r} of {path} has shape {matrix.shape}, but 'data' has {counted(n, 'row')}: one side must be {n}."
        )
    if max(matrix.shape) > max(n, CLASS_LIMIT):
        raise InputError(
            f"The array {name!r} of {path} has shape {matrix.shape}: that is more than {CLASS_LIMIT:,} classes."
        )
    rows_first = matrix.shape[1] != n
    if matrix.shape == (n, n) and other is not None and other.shape == (n, n):
        # As many classes as examples: only rows of the true labels have exactly one entry each.
        true = csr_matrix(other)
        rows_first = bool((np.diff(true.indptr) == 1).all()) and not bool(
            (true.getnnz(axis=0) == 1).all()
        )
    found = csr_matrix(matrix if rows_first else matrix.T)
    found.sum_duplicates()
    wrong = np.flatnonzero(~((found.data == 0) | (found.data == 1)))
    if len(wrong):
        row = int(np.searchsorted(found.indptr, wrong[0], side="right"))
        raise InputError(
            f"Row {row} of {name!r} in {path} holds {found.data[wrong[0]]}, but only 0 and 1 are allowed."
        )
    found.eliminate_zeros()
    return found


def _labels(path: Path, target: Any, n: int, candidates: Any) -> npt.NDArray[np.int64]:
    """True class numbers from a 0/1 matrix or from one number per example, which MATLAB counts from 1."""
    if target.ndim == 2 and 1 in target.shape and n in target.shape and n > 1:
        values = np.asarray(target.toarray() if hasattr(target, "toarray") else target).ravel()
        with np.errstate(invalid="ignore"):
            numbers = values.astype(np.int64)
        if not np.array_equal(numbers, values) or numbers.min() < 0:
            raise InputError(
                f"The array 'target' of {path} holds numbers that are not classes: give whole numbers from 1."
            )
        labels = numbers - 1 if numbers.min() > 0 else numbers
    else:
        matrix = _by_row(path, "target", target, n, target)
        several = np.flatnonzero(np.diff(matrix.indptr) > 1)
        if len(several):
            raise InputError(
                f"Row {several[0] + 1} of 'target' in {path} has several true labels: an example has one."
            )
        labels = np.full(n, -1, dtype=np.int64)
        labels[np.diff(matrix.indptr) == 1] = matrix.indices
    if candidates is not None and labels.max() >= candidates.shape[1]:
        raise InputError(
            f"The array 'target' of {path} names class {labels.max() + 1}, but 'partial_target' has {candidates.shape[1]}."
        )
    return labels
