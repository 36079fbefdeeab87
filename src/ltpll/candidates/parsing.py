"""Parsing: matrices, scores, lists of sets and of strings become flat arrays of class numbers."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt

from ltpll.candidates.arrow import arrow_list, is_arrow, pandas_frame
from ltpll.candidates.cells import (
    PLAIN_ROW,
    Cell,
    CollectedSets,
    FlatSets,
    TextSets,
    as_texts,
    names_to_numbers,
    no_candidates_error,
    parse_cell,
    row_at,
    scored_cell,
)
from ltpll.candidates.expressions import PLAIN_RULES, SetRules, class_sets, empty_advice
from ltpll.errors import InputError, shown
from ltpll.formatting import are, counted

if TYPE_CHECKING:  # cells of a table are read without torch, which takes seconds to import
    from torch import Tensor

CLASS_LIMIT = 1_000_000  # a number in a small file can ask for billions
CELLS_AT_ONCE = 1 << 16
DEFAULT_SCORES = "weights"  # what the scores of candidates are used for; or "none"
ROUNDING = 1e-6  # error of single precision in sums of probabilities
VALUES_PER_PASS = 1 << 20  # limits the memory of loops over all rows


def _is_tensor(value: Any) -> TypeGuard[Tensor]:
    """Whether a value is a tensor, which nothing is before torch is imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def as_matrix(
    matrix: Any, classes: Sequence[Hashable] | None
) -> tuple[Any, tuple[Hashable, ...] | None]:
    """A matrix as an array or in CSR, and the names of its columns if they are given."""
    if _is_tensor(matrix):
        import torch

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


def chosen_by_scores(
    scores: npt.NDArray[Any], top_k: int | None, mass: float | None
) -> npt.NDArray[np.bool_]:
    """Which classes become candidates, (N, C): the `top_k` highest scores, or the fewest that reach
    the share `mass` of all.

    A score of zero never makes a candidate, and of equal scores the first counts as higher.
    """
    order = np.argsort(-scores, axis=1, kind="stable")
    if top_k is not None:
        first = np.broadcast_to(np.arange(scores.shape[1]) < top_k, scores.shape)
    else:
        ranked = np.take_along_axis(scores, order, axis=1).astype(np.float64)
        total = ranked.sum(1, keepdims=True)
        first = np.cumsum(ranked, axis=1) - ranked < (float(mass or 0) - ROUNDING) * total
    chosen = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(chosen, order, first, axis=1)
    result: npt.NDArray[np.bool_] = chosen & (scores > 0)
    return result


def read_scores(
    matrix: Any, top_k: int | None, mass: float | None, classes: Sequence[Hashable] | None
) -> FlatSets:
    """Read an N × C matrix of scores, which may be sparse."""
    from ltpll.validation import in_range, whole_number

    if (top_k is None) == (mass is None):
        rules = "by top_k (the k highest) or by mass (the fewest that reach it)"
        raise InputError(f"Scores become sets {rules}: give one of the two.")
    frame = pandas_frame(matrix)
    if frame is not None:
        matrix, classes = frame.to_numpy(), list(frame.columns) if classes is None else classes
    matrix, names = as_matrix(matrix, classes)
    if mass is not None:
        in_range(mass, "mass", 0, 1, above=True)
    elif whole_number(top_k, 1, "top_k") > matrix.shape[1]:
        which = f"top_k is {top_k}, but there are scores of only {matrix.shape[1]} classes"
        raise InputError(f"{which}: lower it.")
    sets = CollectedSets(PLAIN_ROW)
    step = max(1, VALUES_PER_PASS // max(matrix.shape[1], 1))
    for first in range(0, max(matrix.shape[0], 1), step):
        block = matrix[first : first + step]
        block = np.asarray(block.toarray() if hasattr(block, "toarray") else block)
        wrong = np.argwhere(~(np.isfinite(block) & (block >= 0)))
        if len(wrong):
            i, label = wrong[0].tolist()
            name = shown(label if names is None else names[label])
            raise InputError(
                f"Row {first + i} has the score {block[i, label]} for {name}: scores must be "
                "finite and not negative; turn logits into probabilities first, for example with a "
                "softmax."
            )
        rows, numbers = np.nonzero(chosen_by_scores(block, top_k, mass))
        sets.add_codes(rows, numbers, len(block), block[rows, numbers].astype(np.float64))
    found = sets.joined(())
    return FlatSets(found.indptr, found.codes, matrix.shape[1], names, found.scores)


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
    if is_array or _is_tensor(source) or hasattr(source, "tocsr"):
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
    return _read_rows(rows, separator, classes, n_classes, rules)


def _read_rows(
    rows: Sequence[Any],
    separator: str,
    classes: Sequence[Hashable] | None,
    n_classes: int | None,
    rules: SetRules,
) -> FlatSets:
    """Read one string such as `cat|dog`, or a collection of names or of numbers, per row."""
    missing = [i for i, row in enumerate(rows) if is_missing_value(row)]
    if missing and rules.empty == "stop":
        raise InputError(no_candidates_error(f"Row {missing[0]}", advice=empty_advice()))
    if missing:
        rows = ["" if is_missing_value(row) else row for row in rows]
    names = None if classes is None else check_class_names(classes)
    sets = TextSets(separator)
    if rows and all(isinstance(row, str) for row in rows):
        for first in range(0, len(rows), CELLS_AT_ONCE):
            part = rows[first : first + CELLS_AT_ONCE]
            sets.add_cells(as_texts(part, range(first, len(rows))), first)
    elif any(isinstance(row, (str, Mapping)) for row in rows):
        sets.add_parsed([_parse_row(row, separator, i) for i, row in enumerate(rows)], 0)
    else:
        collections = [_as_collection(row, i) for i, row in enumerate(rows)]
        sizes = np.fromiter(map(len, collections), dtype=np.int64, count=len(rows))
        labels = list(chain.from_iterable(collections))
        if not rows or not all(isinstance(label, str) for label in labels):
            if rules != PLAIN_RULES:
                which = "taxonomy and empty are for candidates that are all names"
                raise InputError(f"{which}: write them as text, or omit the two.")
            return _read_labels(labels, np.append(0, np.cumsum(sizes)), names, n_classes)
        of_label = np.repeat(np.arange(len(rows)), sizes)
        sets.add_lists(as_texts(labels, of_label), sizes)
    known = (*(names or ()), *(rules.taxonomy.names if rules.taxonomy else ()))
    return class_sets(sets.entries(known), names, rules)


def _read_labels(
    labels: list[Any],
    indptr: npt.NDArray[Any],
    names: tuple[Hashable, ...] | None,
    n_classes: int | None,
) -> FlatSets:
    """Read labels that are not all text: class numbers, or any names that are given."""
    if names is None:
        numbers = _whole_numbers(labels, indptr)
        largest = int(numbers.max()) + 1 if len(numbers) else 0
        return FlatSets(indptr, numbers, largest if n_classes is None else int(n_classes), None)
    for k, label in enumerate(labels):
        if not isinstance(label, Hashable):
            which = f"Row {row_at(k, indptr)} has the candidate {shown(label)}"
            raise InputError(f"{which}, which is not a name: give flat lists.")
    return names_to_numbers(indptr, np.arange(len(labels)), labels, names, PLAIN_ROW)


def is_missing_value(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and cell != cell)


def _parse_row(row: Any, separator: str, i: int) -> Cell:
    if isinstance(row, Mapping):
        return scored_cell(row, i)
    if isinstance(row, str):
        return parse_cell(row, separator, i)
    labels = list(_as_collection(row, i))
    for label in labels:
        if not isinstance(label, str):
            which = f"Row {i} has the candidate {shown(label)}, which is not text as others are"
            raise InputError(f"{which}: candidates are all names, or all whole numbers from 0.")
    return Cell(labels, literal=True)


def _as_collection(row: Any, i: int) -> Collection[Any]:
    if _is_tensor(row) or isinstance(row, np.ndarray):
        return row.ravel().tolist()
    if isinstance(row, Iterable) and not isinstance(row, bytes):
        return row if isinstance(row, Collection) else list(row)
    which = f"Row {i} is {shown(row)}, not a set or list of labels"
    raise InputError(f"{which}: a known label is a list of one.")


def check_class_names(classes: Sequence[Any]) -> tuple[Any, ...]:
    """The class names as a tuple, refused if one occurs twice."""
    names = tuple(classes)
    if len(set(names)) != len(names):
        repeated = shown(Counter(names).most_common(1)[0][0])
        which = f"The class name {repeated} occurs twice in the list of classes"
        raise InputError(f"{which}: names must be distinct.")
    return names


def _whole_numbers(labels: list[Any], indptr: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The labels as integers."""

    def is_whole(label: Any) -> bool:
        number = isinstance(label, (int, float, np.number)) and not isinstance(label, bool)
        return number and label % 1 == 0 and abs(label) < 2**63

    with contextlib.suppress(TypeError, ValueError, OverflowError):
        values = np.asarray(labels or np.zeros(0, dtype=np.int64))
        with np.errstate(invalid="ignore"):
            numbers = values.astype(np.int64)
        if values.ndim == 1 and values.dtype.kind in "fiu" and (numbers == values).all():
            return numbers
    first = next((k for k, label in enumerate(labels) if not is_whole(label)), 0)
    which = f"Row {row_at(first, indptr)} has the candidate {shown(labels[first])}"
    raise InputError(
        f"{which}: candidates are all names, or all whole numbers from 0, unless the list of "
        "classes is given."
    )
