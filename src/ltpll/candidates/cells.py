"""Cells: how text such as `cat|dog` or `["cat", "dog"]` becomes candidate sets, for lists, pandas Series and files alike."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError, InputWarning, shown

SEPARATOR = "|"
KNOWN_SEPARATORS = (SEPARATOR, ";", ",", "/", "\t")
RowName = Callable[[int], str]
"""How a message refers to a row, which is numbered from 0."""
PLAIN_ROW: RowName = "Row {}".format


class FlatSets(NamedTuple):
    """The class numbers of all rows in one array; row i has those at `indptr[i]:indptr[i + 1]`."""

    indptr: npt.NDArray[Any]
    numbers: npt.NDArray[Any]
    n_classes: int
    names: tuple[Hashable, ...] | None


def row_at(position: int, indptr: npt.NDArray[Any]) -> int:
    """The row that the label at this position belongs to."""
    return int(np.searchsorted(indptr, position, side="right") - 1)


def names_to_numbers(
    indptr: npt.NDArray[Any], codes: npt.NDArray[Any], names: Sequence[Any], classes: Sequence[Hashable], row: RowName
) -> FlatSets:
    """Turn positions in `names` into positions in `classes`."""
    number = {name: i for i, name in enumerate(classes)}
    numbers = np.asarray([number.get(name, -1) for name in names], dtype=np.int64)[codes]
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        first = int(unknown[0])
        raise InputError(f"{row(row_at(first, indptr))} has the candidate {unknown_class_error(names[codes[first]], classes)}.")
    return FlatSets(indptr, numbers, len(classes), tuple(classes))


def unknown_class_error(name: Any, classes: Sequence[Any]) -> str:
    """The end of a sentence about a name that is not one of the classes."""
    guess = get_close_matches(str(name), [str(known) for known in classes], n=1)
    hint = f" (did you mean {shown(guess[0])}?)" if guess else ""
    some = ", ".join(shown(known) for known in classes[:5]) + (", …" if len(classes) > 5 else "")
    return f"{shown(name)}, which is not one of the {len(classes)} classes{hint}: correct it or add the class; the classes are {some}"


# ---- one cell ---------------------------------------------------------------------------------------------------------


def parse_cell(cell: str, separator: str, i: int, row: RowName = PLAIN_ROW) -> list[str]:
    """The names in the cell of row i; `TextSets.add_cells` does the same for many cells at once."""
    cell = cell.strip()
    if not (cell.startswith("[") and cell.endswith("]")):
        return [name for part in cell.split(separator) if (name := part.strip())]
    try:
        labels = _parse_list(cell)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise InputError(f'{row(i)} holds {shown(cell)}, which is not a list: write it like ["cat", "dog"] or cat|dog.') from None
    for label in labels:
        if not isinstance(label, (str, int, float)) or isinstance(label, bool):
            raise InputError(f"{row(i)} has the candidate {shown(str(label))}, which is not a name: give a flat list of names.")
    return [label.strip() if isinstance(label, str) else str(int(label) if label == label // 1 else label) for label in labels]


def cell_holds_set(cell: str) -> bool:
    """Whether a cell is written as a set rather than as a single name; `[0, 10]` may be an interval that is a class."""
    if SEPARATOR in cell or not cell.lstrip().startswith("["):
        return SEPARATOR in cell
    try:
        labels = _parse_list(cell.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    return bool(labels) and all(isinstance(label, str) for label in labels)


def _parse_list(cell: str) -> list[Any]:
    """Parse a list in JSON, or as Python prints it."""
    try:
        found = json.loads(cell)
    except ValueError:
        # numpy prints lists without commas, and Python would join the names.
        if re.search(r"""['"]\s+['"]""", cell):
            raise
        found = ast.literal_eval(cell)
    return list(found)


# ---- many cells -------------------------------------------------------------------------------------------------------


class NameCodes:
    """Distinct texts without surrounding blanks, numbered in order of first appearance."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}

    def encode(self, texts: Any) -> npt.NDArray[np.int32]:
        """The numbers of a pyarrow array of strings."""
        encoded = texts.dictionary_encode()
        number = self.number
        local = [number.setdefault(name.strip(), len(number)) for name in encoded.dictionary.to_pylist()]
        codes: npt.NDArray[np.int32] = np.asarray(local, dtype=np.int32)[encoded.indices.to_numpy()]
        return codes

    @property
    def names(self) -> list[str]:
        return list(self.number)


class CollectedSets:
    """Candidate sets that arrive in batches, as positions in a list of names."""

    def __init__(self, row: RowName) -> None:
        self.row = row
        self._sizes: list[npt.NDArray[Any]] = []
        self._codes: list[npt.NDArray[Any]] = []

    def add_codes(self, rows: npt.NDArray[Any], codes: npt.NDArray[Any], n_rows: int) -> None:
        self._sizes.append(np.bincount(rows, minlength=n_rows).astype(np.int32))
        self._codes.append(codes.astype(np.int32, copy=False))

    @property
    def n_labels(self) -> int:
        return sum(map(len, self._codes))

    def joined(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """All batches as `indptr` and codes."""
        return np.concatenate([[0], np.cumsum(np.concatenate(self._sizes), dtype=np.int64)]), np.concatenate(self._codes)


class TextSets(CollectedSets):
    """Candidate sets written as text, parsed with Arrow because Python takes several times as long."""

    def __init__(self, separator: str, row: RowName = PLAIN_ROW) -> None:
        super().__init__(row)
        if not separator:
            raise InputError("The separator between candidate names is empty: give the character that separates them, such as '|'.")
        self.separator = separator
        self.names = NameCodes()
        self._has_lists = False

    def add_cells(self, cells: Any, first: int) -> None:
        """Parse a pyarrow array of strings; `first` is the number of its first row."""
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        lists = list_cells(cells)
        if not pc.any(lists).as_py():
            parts = pc.split_pattern(cells, self.separator)
            self.add_lists(parts.flatten(), pc.list_value_length(parts).to_numpy())
            return
        rows = cells.to_pylist()
        found = _json_lists(rows) or [parse_cell(cell, self.separator, first + i, self.row) for i, cell in enumerate(rows)]
        sizes = np.asarray([len(names) for names in found])
        self._has_lists = True
        self.add_lists(
            as_texts([name for names in found for name in names], np.repeat(np.arange(len(sizes)), sizes) + first, self.row), sizes
        )

    def add_lists(self, names: Any, sizes: npt.NDArray[Any]) -> None:
        """Add rows whose names are already separate: all of them in a pyarrow array of strings, and how many each row has."""
        codes = self.names.encode(names)
        rows = np.repeat(np.arange(len(sizes)), sizes)
        blank = self.names.number.get("", -1)
        if blank >= 0:
            kept = codes != blank
            rows, codes = rows[kept], codes[kept]
        self.add_codes(rows, codes, len(sizes))

    def flat(self, classes: Sequence[str] | None, order: Callable[[Sequence[str]], list[str]] = sorted) -> FlatSets:
        """The sets as numbers of the given classes, or else of the names that occur, in `order`."""
        indptr, codes = self.joined()
        if not self._has_lists:
            self._check_separator(indptr, codes, set(classes or ()))
        names = self.names.names
        chosen = order([name for name in names if name]) if classes is None else classes
        return names_to_numbers(indptr, codes, names, chosen, self.row)

    def _check_separator(self, indptr: npt.NDArray[Any], codes: npt.NDArray[Any], classes: set[str]) -> None:
        """Refuse cells such as `cat;dog` that were probably meant to be split, and warn about cells that may have been.

        They probably were if `cat` and `dog` are labels elsewhere, or if no cell is split and either all pieces recur or the
        default separator occurs in them.
        """
        names = self.names.names
        known = set(names) | classes
        unsplit = len(codes) == len(indptr) - 1
        for separator in KNOWN_SEPARATORS:
            if separator == self.separator:
                continue
            pieces = {
                code: [piece.strip() for piece in name.split(separator)]
                for code, name in enumerate(names)
                if separator in name and name not in classes
            }
            pieces = {code: split for code, split in pieces.items() if all(split)}
            meant = [code for code, split in pieces.items() if known.issuperset(split)]
            if not meant and unsplit and pieces:
                times = Counter([*known, *(piece for split in pieces.values() for piece in set(split))])
                recur = len(pieces) > 1 and all(times[piece] > 1 for split in pieces.values() for piece in split)
                meant = list(pieces) if recur or separator == SEPARATOR else []
            if not meant and not (unsplit and len(pieces) > 1):
                continue
            position = int(np.flatnonzero(np.isin(codes, meant or list(pieces)))[0])
            name = names[codes[position]]
            if meant:
                raise InputError(
                    f"{self.row(row_at(position, indptr))} has the candidate {shown(name)}, which looks like several labels separated by "
                    f"{separator!r} rather than {self.separator!r}: use one separator throughout, and name it with separator= "
                    "(--separator on the command line)."
                )
            warnings.warn(
                f"No set has more than one candidate, and {len(pieces)} class names contain {separator!r}, such as {shown(name)}: if these "
                f"are several labels each, pass separator={separator!r} (--separator {separator!r} on the command line).",
                InputWarning,
                stacklevel=2,
            )
            return


def list_cells(cells: Any) -> Any:
    """For a pyarrow array of strings, whether each is written in brackets."""
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(cells)
    return pc.and_(pc.starts_with(trimmed, "["), pc.ends_with(trimmed, "]"))


def as_texts(texts: Sequence[str], rows: Sequence[int] | npt.NDArray[Any], row: RowName = PLAIN_ROW) -> Any:
    """Strings of the given rows as a pyarrow array, which cannot hold lone surrogates."""
    import pyarrow as pa

    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        i = next(i for i, text in enumerate(texts) if any("\ud800" <= letter <= "\udfff" for letter in text))
        raise InputError(f"{row(rows[i])} holds {shown(texts[i])}, which is not valid Unicode text: correct the row.") from None


def _json_lists(cells: list[str]) -> list[list[str]] | None:
    """Parse all cells as one JSON text, which is much faster than one by one; None if some are not JSON lists of strings."""
    try:
        found: list[list[str]] = json.loads(f"[{','.join(cells)}]")
    except (ValueError, RecursionError):
        return None
    plain = len(found) == len(cells) and all(type(row) is list for row in found)
    return found if plain and {type(label) for row in found for label in row} == {str} else None
