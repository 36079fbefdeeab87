"""Set columns: candidate sets as tables write them (names in a cell, one 0/1 column a class, one probability a class), as class numbers."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.candidates.parsing import row_of
from ltpll.data.readers.columns import Names, NotNumbersError, no_number, numbers, strings, texts
from ltpll.data.readers.streaming import Batch, Table
from ltpll.errors import InputError, InputWarning, shown

SEPARATORS = ("|", ";", ",", "/", "\t")
ROUNDING = 1e-6  # of single precision, in sums of probabilities


class Sets(NamedTuple):
    """The labels of all rows one after the other as positions in `names`, those of row i at `indptr[i]:indptr[i + 1]`."""

    indptr: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int32]
    names: list[str]
    split_at: str | None = None  # the separator, where names were split off a text
    ordered: bool = False  # the names are the classes, in this order


class _Collected:
    """Sets that come batch by batch."""

    def __init__(self) -> None:
        self._sizes: list[npt.NDArray[Any]] = []
        self._codes: list[npt.NDArray[Any]] = []

    def _add(self, rows: npt.NDArray[Any], codes: npt.NDArray[Any], n_rows: int) -> None:
        self._sizes.append(np.bincount(rows, minlength=n_rows).astype(np.int32))
        self._codes.append(codes.astype(np.int32, copy=False))

    def _sets(self, names: list[str], split_at: str | None = None, *, ordered: bool = False) -> Sets:
        indptr = np.concatenate([[0], np.cumsum(np.concatenate(self._sizes), dtype=np.int64)])
        return Sets(indptr, np.concatenate(self._codes), names, split_at, ordered)


class SetColumn(_Collected):
    """Cells such as `cat|dog`, or JSON lists, or lists of a Parquet file; blanks around names are dropped."""

    def __init__(self, table: Table, index: int, separator: str) -> None:
        super().__init__()
        if not separator:
            raise InputError("The separator between candidate names is empty: give the character that separates them, such as '|'.")
        self.table, self.index, self.separator = table, index, separator
        self.names = Names()
        self._lists = False

    def add(self, batch: Batch) -> None:
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        column = batch.columns[self.index]
        if pa.types.is_fixed_size_list(column.type):
            column = column.cast(pa.list_(column.type.value_type))
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            self._lists = True
            if pa.types.is_nested(column.type.value_type):
                raise InputError(
                    f"The column {shown(self.table.names[self.index])} of {self.table.path} holds lists of lists: give flat lists."
                )
            sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
            try:
                flat = strings(column.flatten())
            except pa.ArrowException:
                raise InputError(
                    f"The column {shown(self.table.names[self.index])} of {self.table.path} holds lists of {column.type.value_type}, "
                    "some of which are no text: write the names as text in UTF-8."
                ) from None
            self._add_names(pc.utf8_trim_whitespace(flat), sizes)
            return
        cells = pc.utf8_trim_whitespace(texts(self.table, batch, self.index))
        lists = pc.and_(pc.starts_with(cells, "["), pc.ends_with(cells, "]"))
        if not pc.any(lists).as_py():
            parts = pc.split_pattern(cells, self.separator)
            self._add_names(pc.utf8_trim_whitespace(parts.flatten()), pc.list_value_length(parts).to_numpy())
            return
        self._lists = True
        found = _json_lists(cells.to_pylist()) or [
            self._parsed(cell, batch.first + i) if is_list else [part.strip() for part in cell.split(self.separator)]
            for i, (cell, is_list) in enumerate(zip(cells.to_pylist(), lists.to_pylist(), strict=True))
        ]
        flat = pa.array([name for row in found for name in row], type=pa.string())
        self._add_names(pc.utf8_trim_whitespace(flat), np.asarray([len(row) for row in found]))

    def _add_names(self, flat: Any, sizes: npt.NDArray[Any]) -> None:
        codes = self.names.encode(flat)
        rows = np.repeat(np.arange(len(sizes)), sizes)
        nothing = self.names.number.get("", -1)
        if nothing >= 0:
            kept = codes != nothing
            rows, codes = rows[kept], codes[kept]
        self._add(rows, codes, len(sizes))

    def _parsed(self, cell: str, row: int) -> list[str]:
        try:
            labels = _list(cell)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            raise InputError(
                f'{self.table.row(row)} holds {shown(cell)}, which is no list: write it like ["cat", "dog"], or cat|dog.'
            ) from None
        for label in labels:
            if not isinstance(label, (str, int, float)) or isinstance(label, bool):
                raise InputError(
                    f"{self.table.row(row)} has the candidate {shown(str(label))}, which is no name: give a flat list of names."
                )
        return [label.strip() if isinstance(label, str) else str(int(label) if label == label // 1 else label) for label in labels]

    def sets(self) -> Sets:
        return self._sets(self.names.names, None if self._lists else self.separator)


def _json_lists(cells: list[str]) -> list[list[str]] | None:
    """All cells as one JSON text, which is much faster than one by one, or None where that cannot be done."""
    try:
        found: list[list[str]] = json.loads(f"[{','.join(cells)}]")
    except (ValueError, RecursionError):
        return None
    plain = len(found) == len(cells) and all(type(row) is list for row in found)
    return found if plain and {type(label) for row in found for label in row} == {str} else None


def _list(cell: str) -> list[Any]:
    """From JSON, or as Python prints a list."""
    try:
        found = json.loads(cell)
    except ValueError:
        # Without commas, as numpy prints lists, Python would glue the names together.
        if re.search(r"""['"]\s+['"]""", cell):
            raise
        found = ast.literal_eval(cell)
    return list(found)


class ClassColumns(_Collected):
    """One column of zeros and ones for each class."""

    def __init__(self, table: Table, indices: Sequence[int], names: list[str]) -> None:
        super().__init__()
        self.table, self.indices, self.names = table, list(indices), names

    def add(self, batch: Batch) -> None:
        matrix = np.stack([self._column(batch, index) for index in self.indices], axis=1)
        rows, codes = np.nonzero(self._chosen(matrix, batch))
        self._add(rows, codes, batch.n_rows)

    def _column(self, batch: Batch, index: int) -> npt.NDArray[np.float32]:
        try:
            values = numbers(self.table, batch, index)
        except NotNumbersError:
            words = [word.strip().lower() for word in texts(self.table, batch, index).to_pylist()]
            values = np.asarray([{"0": 0, "1": 1, "false": 0, "true": 1}.get(word, np.nan) for word in words], dtype=np.float32)
        wrong = np.flatnonzero((values != 0) & (values != 1))
        if len(wrong):
            cell = texts(self.table, batch, index)[int(wrong[0])].as_py()
            raise InputError(
                f"{self.table.row(batch.first + int(wrong[0]))} holds {shown(cell)} in the class column {shown(self.table.names[index])}, "
                "where only 0 and 1 are allowed: correct the cell, or read the columns as probabilities."
            )
        return values

    def _chosen(self, matrix: npt.NDArray[np.float32], batch: Batch) -> npt.NDArray[Any]:
        return matrix

    def sets(self) -> Sets:
        return self._sets(self.names, ordered=True)


class ProbabilityColumns(ClassColumns):
    """One column of probabilities for each class: the likeliest `top_k`, or as few as hold `mass`, are candidates; those at 0 never."""

    def __init__(self, table: Table, indices: Sequence[int], names: list[str], top_k: int | None, mass: float | None) -> None:
        super().__init__(table, indices, names)
        if top_k is not None and top_k > len(names):
            raise InputError(f"top_k is {top_k}, but {table.path} has probabilities of {len(names)} classes only: lower it.")
        self.top_k, self.mass = top_k, mass

    def _column(self, batch: Batch, index: int) -> npt.NDArray[np.float32]:
        try:
            values = numbers(self.table, batch, index)
        except NotNumbersError as error:
            raise no_number(self.table, batch, index, error.position, "probability") from None
        wrong = np.flatnonzero(~((values >= 0) & (values <= 1 + ROUNDING)))
        if len(wrong) and not np.isfinite(values[wrong[0]]):
            raise no_number(self.table, batch, index, int(wrong[0]), "probability")
        if len(wrong):
            raise InputError(
                f"{self.table.row(batch.first + int(wrong[0]))} holds {values[wrong[0]]:.6g} in the probability column "
                f"{shown(self.table.names[index])}: probabilities lie between 0 and 1; turn scores into probabilities first."
            )
        return values

    def _chosen(self, matrix: npt.NDArray[np.float32], batch: Batch) -> npt.NDArray[Any]:
        order = np.argsort(-matrix, axis=1, kind="stable")
        if self.top_k is not None:
            first = np.broadcast_to(np.arange(matrix.shape[1]) < self.top_k, matrix.shape)
        else:
            ranked = np.take_along_axis(matrix, order, axis=1).astype(np.float64)
            total = ranked.sum(1, keepdims=True)
            first = np.cumsum(ranked, axis=1) - ranked < (float(self.mass or 0) - ROUNDING) * total
        chosen = np.zeros(matrix.shape, dtype=bool)
        np.put_along_axis(chosen, order, first, axis=1)
        return chosen & (matrix > 0)


# ---- class numbers ----------------------------------------------------------------------------------------------------


def class_order(names: Sequence[str]) -> list[str]:
    """Sorted: by value where all names are whole numbers, so that 2 comes before 10."""
    if all(re.fullmatch(r"-?[0-9]{1,18}", name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def as_candidates(table: Table, sets: Sets, classes: Sequence[str] | None) -> Candidates:
    """The sets with class numbers; classes are the given ones, else the sorted names that occur."""
    empty = np.flatnonzero(np.diff(sets.indptr) == 0)
    if len(empty):
        more = f" ({len(empty)} such rows)" if len(empty) > 1 else ""
        raise InputError(
            f"{table.row(int(empty[0]))} has no candidate label{more}: drop the row, or list every class if nothing is known about it."
        )
    if sets.split_at is not None:
        _check_separator(table, sets, set(classes or ()))
    occurring = [name for name in sets.names if name]
    names = tuple(classes) if classes is not None else tuple(occurring if sets.ordered else class_order(occurring))
    number = {name: i for i, name in enumerate(names)}
    numbers_of = np.asarray([number.get(name, -1) for name in sets.names], dtype=np.int64)
    found = numbers_of[sets.codes]
    unknown = np.flatnonzero(found < 0)
    if len(unknown):
        row, name = row_of(int(unknown[0]), sets.indptr), sets.names[sets.codes[unknown[0]]]
        raise InputError(f"{table.row(row)} has the candidate {no_class(name, names)}.")
    return Candidates.from_flat(sets.indptr, found, len(names), names)


def no_class(name: str, names: Sequence[str]) -> str:
    """The end of a sentence about a name that is none of the classes."""
    guess = get_close_matches(name, names, n=1)
    meant = f" (did you mean {shown(guess[0])}?)" if guess else ""
    some = ", ".join(shown(one) for one in names[:5]) + (", …" if len(names) > 5 else "")
    return f"{shown(name)}, which is not one of the {len(names)} classes{meant}: correct it; the classes are {some}"


def _check_separator(table: Table, sets: Sets, classes: set[str]) -> None:
    """Refuse cells such as `cat;dog` that were probably meant to be split, and warn of those that perhaps were.

    They were meant to be where `cat` and `dog` are labels elsewhere, or where nothing is split at all and either all pieces recur or
    the usual separator stands in them.
    """
    names = set(sets.names) | classes
    unsplit = len(sets.codes) == len(sets.indptr) - 1
    for separator in SEPARATORS:
        if separator == sets.split_at:
            continue
        pieces = {
            code: [piece.strip() for piece in name.split(separator)]
            for code, name in enumerate(sets.names)
            if separator in name and name not in classes
        }
        pieces = {code: found for code, found in pieces.items() if all(found)}
        meant = [code for code, found in pieces.items() if names.issuperset(found)]
        if not meant and unsplit and pieces:
            times = Counter([*names, *(piece for found in pieces.values() for piece in set(found))])
            recur = len(pieces) > 1 and all(times[piece] > 1 for found in pieces.values() for piece in found)
            meant = list(pieces) if recur or separator == SEPARATORS[0] else []
        if not meant and not (unsplit and len(pieces) > 1):
            continue
        position = int(np.flatnonzero(np.isin(sets.codes, meant or list(pieces)))[0])
        row, name = table.row(row_of(position, sets.indptr)), sets.names[sets.codes[position]]
        if meant:
            raise InputError(
                f"{row} has the candidate {shown(name)}, which looks like several labels separated by {separator!r} rather than "
                f"{sets.split_at!r}: use one separator throughout, and say which with --separator."
            )
        warnings.warn(
            f"No set has more than one candidate, and {len(pieces)} class names hold {separator!r}, such as {shown(name)}: if they are "
            f"several labels, say so with --separator {separator!r}.",
            InputWarning,
            stacklevel=2,
        )
        return


def as_labels(table: Table, codes: npt.NDArray[Any], names: Sequence[str], classes: Sequence[Any]) -> npt.NDArray[np.int64]:
    """True classes as numbers, −1 where none is given."""
    number = {name: i for i, name in enumerate(classes)}
    labels: npt.NDArray[np.int64] = np.asarray([number.get(name, -1 if name == "" else -2) for name in names], dtype=np.int64)[codes]
    wrong = np.flatnonzero(labels == -2)
    if len(wrong):
        raise InputError(f"{table.row(int(wrong[0]))} has the true label {no_class(names[codes[wrong[0]]], [str(c) for c in classes])}.")
    return labels
