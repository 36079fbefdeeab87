"""Sets: what people write as candidate sets (matrices, lists, strings), read into one flat list of class numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ltpll.errors import InputError, shown

MOST_CLASSES = 1_000_000  # a number in a small file can ask for billions


class Flat(NamedTuple):
    """The labels of all rows one after the other, those of row i at `indptr[i]:indptr[i + 1]`."""

    indptr: npt.NDArray[Any]
    numbers: npt.NDArray[Any]
    n_classes: int
    names: tuple[Hashable, ...] | None


def read_matrix(matrix: Any, classes: Sequence[Hashable] | None, n_classes: int | None) -> Flat:
    """From an N × C matrix of zeros and ones."""
    if isinstance(matrix, Tensor):
        tensor = matrix.detach().cpu().to_dense()
        matrix = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    elif not hasattr(matrix, "tocsr"):
        matrix = np.asarray(matrix)
    if matrix.ndim != 2:
        raise InputError(f"A candidate matrix has two dimensions (rows × classes); this one has shape {matrix.shape}.")
    n_rows, n_columns = matrix.shape
    if n_classes is not None and n_classes != n_columns:
        raise InputError(f"n_classes is {n_classes}, but the candidate matrix has {n_columns} columns: give only one of the two.")
    names = None if classes is None else _checked_names(classes, n_columns)
    if hasattr(matrix, "tocsr"):
        csr = matrix.tocsr(copy=True)
        csr.sum_duplicates()
        _check_binary(csr.data, lambda k: row_of(k, csr.indptr))
        csr.eliminate_zeros()
        return Flat(csr.indptr, csr.indices, n_columns, names)
    if matrix.dtype.kind not in "biuf":
        held = "Python objects" if matrix.dtype == object else f"numpy's {matrix.dtype.name}"
        raise InputError(f"A candidate matrix holds zeros and ones; this one holds {held}: convert it to int first.")
    _check_binary(matrix.ravel(), lambda k: k // n_columns)
    rows, numbers = np.nonzero(matrix)
    return Flat(np.searchsorted(rows, np.arange(n_rows + 1)), numbers, n_columns, names)


def read_sets(sets: Iterable[Iterable[Hashable]], classes: Sequence[Hashable] | None, n_classes: int | None) -> Flat:
    """From one collection of names or numbers per row."""
    rows: list[Sequence[Any] | Set[Any]] = [_as_labels(row, i) for i, row in enumerate(sets)]
    sizes = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
    flat: list[Any] = list(chain.from_iterable(rows))
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    if n_classes is not None and int(n_classes) != n_classes:
        raise InputError(f"n_classes is {n_classes}: it must be a whole number.")
    if classes is None and not any(isinstance(label, str) for label in flat):
        numbers = _class_numbers(flat, indptr)
        if n_classes is None:
            n_classes = int(numbers.max()) + 1 if len(numbers) else 0
        return Flat(indptr, numbers, int(n_classes), None)

    nested = next((k for k, label in enumerate(flat) if isinstance(label, (list, dict, set, np.ndarray))), None)
    if nested is not None:
        raise InputError(f"Row {row_of(nested, indptr)} has the candidate {shown(flat[nested])}, which is no name: give flat lists.")
    names = _sorted_names(flat, indptr) if classes is None else _checked_names(classes)
    _check_number_of_names(names, n_classes)
    return Flat(indptr, _numbers_of_names(flat, names, indptr), len(names), names)


def read_series(values: Sequence[Any], separator: str, classes: Sequence[Hashable] | None, n_classes: int | None) -> Flat:
    """From lists, or strings such as `cat|dog`, one a row; blanks around names are dropped."""
    if not separator:
        raise InputError("The separator between candidate names is empty: give the character that separates them, such as '|'.")
    missing = next((i for i, value in enumerate(values) if value is None or (isinstance(value, float) and value != value)), None)
    if missing is not None:
        raise InputError(empty_row(missing))
    if values and len(separator) == 1 and all(isinstance(value, str) for value in values):
        return _read_strings(values, separator, classes, n_classes)

    def split(value: Any) -> Any:
        return [name for part in value.split(separator) if (name := part.strip())] if isinstance(value, str) else value

    return read_sets([split(value) for value in values], classes, n_classes)


def _read_strings(values: Sequence[str], separator: str, classes: Sequence[Hashable] | None, n_classes: int | None) -> Flat:
    """All strings at once: a million rows become one text, one split and one look-up per part, with no list for each row."""
    parts = separator.join(values).split(separator)
    distinct = {part: i for i, part in enumerate(dict.fromkeys(parts))}
    names_of = [part.strip() for part in distinct]
    codes = np.fromiter(map(distinct.__getitem__, parts), dtype=np.int64, count=len(parts))
    rows = np.repeat(np.arange(len(values)), [value.count(separator) + 1 for value in values])
    kept = np.asarray([bool(name) for name in names_of])[codes]
    rows, codes = rows[kept], codes[kept]
    names = tuple(sorted({name for name in names_of if name})) if classes is None else _checked_names(classes)
    _check_number_of_names(names, n_classes)
    number = {name: i for i, name in enumerate(names)}
    numbers = np.asarray([number.get(name, -1) for name in names_of], dtype=np.int64)[codes]
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        first = int(unknown[0])
        raise InputError(_unknown_name(int(rows[first]), names_of[codes[first]], names))
    return Flat(np.searchsorted(rows, np.arange(len(values) + 1)), numbers, len(names), names)


def _as_labels(row: Any, i: int) -> Sequence[Any] | Set[Any]:
    """One row as a collection of labels."""
    if isinstance(row, (str, bytes)):
        raise InputError(
            f"Row {i} is the string {shown(row)}, not a set of labels: pass lists of names, or a pandas Series to have strings split."
        )
    if isinstance(row, (Tensor, np.ndarray)):
        return row.ravel().tolist()
    if isinstance(row, (list, tuple, set, frozenset)):
        return row
    try:
        return list(row)
    except TypeError:
        raise InputError(f"Row {i} is {shown(row)}, not a set or list of labels: a known label is a list of one.") from None


def row_of(position: int, indptr: npt.NDArray[Any]) -> int:
    return int(np.searchsorted(indptr, position, side="right") - 1)


def empty_row(row: int, n: int = 1) -> str:
    more = f" ({n} such rows)" if n > 1 else ""
    return f"Row {row} has no candidate label{more}: drop the row, or list every class if nothing is known about it."


def _check_binary(values: npt.NDArray[Any], row_of_entry: Callable[[int], int]) -> None:
    wrong = np.flatnonzero(~((values == 0) | (values == 1)))
    if len(wrong):
        value = values[wrong[0]]
        raise InputError(
            f"Row {row_of_entry(int(wrong[0]))} of the candidate matrix holds {value}, but only 0 and 1 are allowed: "
            "turn scores into sets first, for example `scores > 0`."
        )


def _checked_names(classes: Sequence[Hashable], n_columns: int | None = None) -> tuple[Hashable, ...]:
    names = tuple(classes)
    if len(set(names)) != len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise InputError(f"The class name {shown(twice)} stands twice in the list of classes: names must be distinct.")
    if n_columns is not None and len(names) != n_columns:
        raise InputError(f"There are {len(names)} class names for {n_columns} columns of the candidate matrix: give one name a column.")
    return names


def _check_number_of_names(names: tuple[Hashable, ...], n_classes: int | None) -> None:
    if n_classes is not None and n_classes != len(names):
        raise InputError(f"n_classes is {n_classes}, but there are {len(names)} class names: give only one of the two.")


def _unknown_name(row: int, name: Any, names: tuple[Hashable, ...]) -> str:
    some = ", ".join(shown(one) for one in names[:5]) + (", …" if len(names) > 5 else "")
    which = f"which is not one of the {len(names)} classes ({some})"
    return f"Row {row} has the candidate {shown(name)}, {which}: correct the row or add the class."


def _sorted_names(flat: list[Any], indptr: npt.NDArray[Any]) -> tuple[Hashable, ...]:
    odd = next((k for k, label in enumerate(flat) if not isinstance(label, str)), None)
    if odd is not None:
        raise InputError(
            f"Row {row_of(odd, indptr)} has the candidate {shown(flat[odd])}, which is no string, while others are names: "
            "use names everywhere, or give the list of classes."
        )
    return tuple(sorted(set(flat)))


def _numbers_of_names(flat: list[Any], names: tuple[Hashable, ...], indptr: npt.NDArray[Any]) -> npt.NDArray[Any]:
    number = {name: i for i, name in enumerate(names)}
    numbers = np.fromiter((number.get(label, -1) for label in flat), dtype=np.int64, count=len(flat))
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        first = int(unknown[0])
        raise InputError(_unknown_name(row_of(first, indptr), flat[first], names))
    return numbers


def _class_numbers(flat: list[Any], indptr: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not flat:
        return np.zeros(0, dtype=np.int64)
    try:
        values = np.asarray(flat)
        with np.errstate(invalid="ignore"):
            numbers = values.astype(np.int64)
        if values.ndim != 1:
            raise ValueError("labels are lists")
        wrong = np.flatnonzero(numbers != values) if values.dtype.kind in "fiu" else np.arange(1)
    except (TypeError, ValueError, OverflowError):
        wrong = np.asarray([next(i for i, v in enumerate(flat) if not isinstance(v, (int, np.integer)) or abs(int(v)) >= 2**63)])
    if len(wrong):
        first = int(wrong[0])
        raise InputError(
            f"Row {row_of(first, indptr)} has the candidate {shown(flat[first])}, which is no class number: "
            "use whole numbers from 0, or give the list of classes."
        )
    return numbers
