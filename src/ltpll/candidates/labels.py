"""Labels: whatever a user passes as `y`, as candidates and class names."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.candidates.arrow import arrow_list, is_arrow, pandas_frame
from ltpll.candidates.cells import (
    PLAIN_ROW,
    SEPARATOR,
    Entries,
    TextSets,
    cell_holds_set,
    check_separator,
    names_to_numbers,
    parse_cell,
)
from ltpll.candidates.expressions import names_in
from ltpll.candidates.similar_names import warn_of_similar_names
from ltpll.errors import InputError

COLLECTIONS = (list, tuple, set, frozenset, np.ndarray)


class Labels(NamedTuple):
    """Candidates with the names of their classes; `certain` if each row had one plain label."""

    candidates: Candidates
    classes: npt.NDArray[Any]
    certain: bool


def read_labels(y: Any, classes: Sequence[Hashable] | None = None, *, more: bool = False) -> Labels:
    """Read candidate sets or plain labels.

    Args:
        y: Anything that `Candidates.of` accepts, or one label per row. Strings are plain labels
            unless one of them is written as a set, such as `"cat|dog"`. Rows that are collections
            are sets; a two-dimensional array is a 0/1 matrix.
        classes: The names of the classes in order. A string that is one of them is a plain label
            even if it contains `|`.
        more: Whether sets and labels may name other classes too, which are then added behind
            `classes`; otherwise they are refused.

    Raises:
        InputError: `y` cannot be read, or a label is not one of `classes`.
    """
    frame = pandas_frame(y)
    if frame is not None and frame.shape[1] == 1:
        y = frame.iloc[:, 0]
    elif frame is not None or isinstance(y, Candidates) or hasattr(y, "tocsr"):
        return _labels_of_sets(y, classes)
    elif is_arrow(y):
        y = arrow_list(y)
    elif hasattr(y, "detach"):
        y = y.detach().cpu().numpy()
    if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1:
        from sklearn.utils import column_or_1d

        y = column_or_1d(y, warn=True)
    if hasattr(y, "iloc"):  # a column of pandas
        y = y.tolist()
    is_column = isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind in "OU"
    rows: Sequence[Any] = y.tolist() if is_column else y if isinstance(y, (list, tuple)) else ()
    known = set(classes or ())
    if any(_is_set(row, known) for row in rows):
        if more and classes is not None:
            classes = [*classes, *_other_names(rows, known)]
        return _labels_of_sets(rows, classes)
    array = np.asarray(y)
    if array.ndim == 2:
        return _labels_of_sets(array, classes)
    if array.ndim != 1:
        which = "Labels have one dimension and candidate matrices two"
        raise InputError(f"{which}; these have shape {array.shape}.")
    return _plain_labels(array, classes, more)


def _is_set(row: Any, known: set[Hashable]) -> bool:
    if isinstance(row, str):
        return row not in known and cell_holds_set(row)
    return isinstance(row, COLLECTIONS)


def _other_names(rows: Sequence[Any], known: set[Hashable]) -> list[Hashable]:
    """The names in sets that are not known; what is not a set is refused later."""
    cells = [parse_cell(row, SEPARATOR, i) for i, row in enumerate(rows) if isinstance(row, str)]
    texts = TextSets(SEPARATOR)
    texts.add_parsed(cells, 0)
    found: dict[Hashable, None] = dict.fromkeys(names_in(texts.entries(known)))
    for row in rows:
        if isinstance(row, COLLECTIONS):
            labels = row.ravel().tolist() if isinstance(row, np.ndarray) else row
            found |= dict.fromkeys(label for label in labels if isinstance(label, Hashable))
    return [name for name in found if name not in known]


def _labels_of_sets(y: Any, classes: Sequence[Hashable] | None) -> Labels:
    candidates = Candidates.of(y, classes=classes)
    if classes is not None and len(classes) != candidates.n_classes:
        which = f"The candidates have {candidates.n_classes} classes"
        raise InputError(f"{which}, but {len(classes)} were trained.")
    names = list(candidates.classes if classes is None else classes)
    return Labels(candidates, np.asarray(names), certain=False)


def _plain_labels(
    array: npt.NDArray[Any], classes: Sequence[Hashable] | None, more: bool
) -> Labels:
    from sklearn.utils.multiclass import check_classification_targets

    try:
        check_classification_targets(array)
        names, numbers = np.unique(array, return_inverse=True)
    except TypeError:
        which = "Some labels are text and others are numbers or missing"
        raise InputError(f"{which}: use one type throughout, and fill in missing labels.") from None
    except ValueError as error:
        raise InputError(str(error)) from None
    indptr, given = np.arange(len(array) + 1), names.tolist()
    if all(isinstance(name, str) for name in given):
        entries = Entries(indptr, numbers, [name.strip() for name in given])
        do = "pass Candidates.of(y, separator={!r})".format
        check_separator(entries, "", map(str, classes or ()), advice=do)
    if classes is None:
        warn_of_similar_names(given, numbers)
        known = given
    else:
        known = list(dict.fromkeys([*classes, *given]) if more else classes)
        names = np.asarray(known)
    found = Candidates.from_sets(names_to_numbers(indptr, numbers, given, known, PLAIN_ROW))
    return Labels(found, names, certain=True)
