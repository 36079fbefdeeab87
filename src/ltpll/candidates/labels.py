"""Labels: whatever a user gives for `y` (candidate sets in any form, or plain labels) as candidates and class names."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.errors import InputError, shown

COLLECTIONS = (list, tuple, set, frozenset, np.ndarray)


class Labels(NamedTuple):
    """`classes` are the class names in order, sorted; `certain` says that plain labels were given, one a row."""

    candidates: Candidates
    classes: npt.NDArray[Any]
    certain: bool


def read_labels(y: Any, classes: Sequence[Hashable] | None = None) -> Labels:
    """Candidates from any form that `Candidates.of` takes, or from one label a row; `classes` fixes the names and their order.

    Rows that are collections are sets, whatever holds them; a two-dimensional array is a 0/1 matrix.
    """
    if isinstance(y, Candidates):
        return _of_candidates(y, classes)
    kind = type(y).__module__.split(".")[0]
    if kind == "scipy":
        return _of_candidates(Candidates.from_matrix(y, classes=classes), classes)
    if kind == "pandas" and hasattr(y, "columns"):
        if y.shape[1] == 1:
            return read_labels(y.iloc[:, 0], classes)
        return _of_candidates(Candidates.from_matrix(y.to_numpy(), classes=list(y.columns) if classes is None else classes), classes)
    rows = y.tolist() if kind == "pandas" else y if isinstance(y, (list, tuple)) else None
    if kind == "pandas" and any(isinstance(row, str) and "|" in row for row in rows or ()):
        return _of_candidates(Candidates.from_series(y, classes=classes), classes)
    array = _array(y if rows is None else rows)
    if array.dtype == object and array.ndim == 1 and any(isinstance(row, COLLECTIONS) for row in array):
        return _of_candidates(Candidates.from_sets(array.tolist(), classes=classes), classes)
    if array.ndim == 2 and array.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn("A column-vector y was passed when a 1d array was expected.", DataConversionWarning, stacklevel=3)
        array = array.ravel()
    if array.ndim == 2:
        return _of_candidates(Candidates.from_matrix(array, classes=classes), classes)
    if array.ndim != 1:
        raise InputError(f"Labels have one dimension and candidate matrices two; these have shape {array.shape}.")
    return _of_plain(array, classes)


def _array(y: Any) -> npt.NDArray[Any]:
    if hasattr(y, "detach"):
        y = y.detach().cpu().numpy()
    if isinstance(y, (list, tuple)) and any(isinstance(row, COLLECTIONS) for row in y):
        rows = np.empty(len(y), dtype=object)  # not np.array, which would make a matrix of lists of equal length
        rows[:] = list(y)
        return rows
    return np.asarray(y)


def _of_candidates(candidates: Candidates, classes: Sequence[Hashable] | None, certain: bool = False) -> Labels:
    if classes is not None and len(classes) != candidates.n_classes:
        raise InputError(f"The candidates have {candidates.n_classes} classes, but {len(classes)} were trained.")
    names = np.asarray(list(candidates.classes if classes is None else classes))
    return Labels(candidates, names, certain)


def _of_plain(array: npt.NDArray[Any], classes: Sequence[Hashable] | None) -> Labels:
    """One label a row: sets of one."""
    from sklearn.utils.multiclass import check_classification_targets

    try:
        check_classification_targets(array)
        names, numbers = np.unique(array, return_inverse=True)
    except TypeError:
        raise InputError(
            "Some labels are text and others are numbers or nothing: use one kind throughout, and fill in what is missing."
        ) from None
    except ValueError as error:
        raise InputError(str(error)) from None
    if classes is not None:
        number = {name: i for i, name in enumerate(classes)}
        unknown = [name for name in names.tolist() if name not in number]
        if unknown:
            raise InputError(f"There is no class {shown(unknown[0])}; the classes are {', '.join(map(str, list(classes)[:10]))}.")
        numbers = np.asarray([number[name] for name in names.tolist()])[numbers]
        names = np.asarray(list(classes))
    indptr = np.arange(len(array) + 1)
    return Labels(Candidates.from_flat(indptr, numbers, len(names), tuple(names.tolist())), names, certain=True)
