"""Cells: how text such as `cat|dog` or `["cat", "dog"]` becomes entries, wherever it comes from."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError, InputWarning, option, shown

SEPARATOR = "|"
EXCLUDES, EVERY = "!", "*"  # `!dog`: not dog; `*`: every class
SCORE = re.compile(r"(?s).*\S\s*:\s*[01]?\.[0-9]+")  # fox:0.6, which does not give scores
KNOWN_SEPARATORS = (SEPARATOR, ";", ",", "/", "\t")
RowName = Callable[[int], str]
"""How a message refers to a row, which is numbered from 0."""
PLAIN_ROW: RowName = "Row {}".format
LARGEST_SCORE = 1e300  # so that sums stay finite
Array = npt.NDArray[Any]


class FlatSets(NamedTuple):
    """The class numbers of all rows in one array, maybe with a score for each.

    Row i has those at `indptr[i]:indptr[i + 1]`.
    """

    indptr: Array
    numbers: Array
    n_classes: int
    names: tuple[Hashable, ...] | None
    scores: npt.NDArray[np.float64] | None = None


class Entries(NamedTuple):
    """What the cells of a column hold.

    Row i has the entries at `indptr[i]:indptr[i + 1]`, as positions in `names`. The first
    `n_marked` names are from text, where `!` and `*` have a meaning; the others are literal. The
    scores are NaN for entries without one; None if the column has no scores.
    """

    indptr: Array
    codes: Array
    names: Sequence[str]
    n_marked: int = 0
    scores: npt.NDArray[np.float64] | None = None

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The row of each entry."""
        return np.repeat(np.arange(len(self.indptr) - 1, dtype=np.int64), np.diff(self.indptr))


def row_at(position: int, indptr: Array) -> int:
    """The row that the label at this position belongs to."""
    return int(np.searchsorted(indptr, position, side="right") - 1)


def names_to_numbers(
    indptr: Array, codes: Array, names: Sequence[Any], classes: Sequence[Hashable], row: RowName
) -> FlatSets:
    """Turn positions in `names` into positions in `classes`."""
    number = {name: i for i, name in enumerate(classes)}
    numbers = np.asarray([number.get(name, -1) for name in names], dtype=np.int64)[codes]
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        first = int(unknown[0])
        problem = unknown_class_error(names[codes[first]], classes)
        raise InputError(f"{row(row_at(first, indptr))} has the candidate {problem}.")
    return FlatSets(indptr, numbers, len(classes), tuple(classes))


def unknown_class_error(name: Any, classes: Sequence[Any]) -> str:
    """The end of a sentence about a name that is not one of the classes."""
    guess = get_close_matches(str(name), [str(known) for known in classes], n=1)
    hint = f" (did you mean {shown(guess[0])}?)" if guess else ""
    some = ", ".join(shown(known) for known in classes[:5]) + (", …" if len(classes) > 5 else "")
    which = f"{shown(name)}, which is not one of the {len(classes)} classes{hint}"
    return f"{which}: correct it or add the class; the classes are {some}"


def no_candidates_error(row: str, n: int = 1, *, advice: str = "list every class") -> str:
    more = f" ({n} such rows)" if n > 1 else ""
    known = "if nothing is known about it"
    return f"{row} has no candidate label{more}: drop the row, or {advice} {known}."


# ---- one cell ------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """The entries of one cell; names in lists and objects are literal, and objects give scores."""

    entries: list[str]
    literal: bool
    scores: list[float] | None = None


def parse_cell(cell: str, separator: str, i: int, row: RowName = PLAIN_ROW) -> Cell:
    """The entries in the cell of row i; `TextSets.add_cells` does the same for many cells."""
    cell = cell.strip()
    labels = _parse_list_or_object(cell)
    if isinstance(labels, dict):
        return scored_cell(labels, i, row)
    if labels is None:
        if cell.startswith("[") and cell.endswith("]"):
            example = 'write it like ["cat", "dog"] or cat|dog'
            raise InputError(f"{row(i)} holds {shown(cell)}, which is not a list: {example}.")
        return Cell([name for part in cell.split(separator) if (name := part.strip())], False)
    names = []
    for label in labels:
        if isinstance(label, bool) or not isinstance(label, (str, int, float)):
            which = f"the candidate {shown(str(label))}, which is not a name"
            raise InputError(f"{row(i)} has {which}: give a flat list of names.")
        if not isinstance(label, str):
            label = str(int(label) if label == label // 1 else label)
        names.append(label.strip())
    return Cell(names, True)


def scored_cell(scores: Mapping[Any, Any], i: int, row: RowName = PLAIN_ROW) -> Cell:
    """The names and scores of row i."""
    for name, score in scores.items():
        number = isinstance(score, (int, float)) and not isinstance(score, bool)
        if not isinstance(name, str) or not number or not 0 <= score <= LARGEST_SCORE:
            which = f"{row(i)} gives {shown(name)} the score {shown(score)}"
            raise InputError(
                f"{which}: names are text, and scores finite numbers that are not negative, as in "
                '{"cat": 0.7, "dog": 0.3}.'
            )
    names = [name.strip() for name in scores]
    return Cell(names, True, [float(score) for score in scores.values()])


def cell_holds_set(cell: str) -> bool:
    """Whether a cell is written as a set; `[0, 10]` may be an interval that is a class."""
    found = None if SEPARATOR in cell else _parse_list_or_object(cell.strip())
    if isinstance(found, list):
        return bool(found) and all(isinstance(label, str) for label in found)
    return SEPARATOR in cell or found is not None


def _parse_list_or_object(cell: str) -> dict[Any, Any] | list[Any] | None:
    """A list or an object in JSON, or what Python prints for a list, dictionary or set.

    pandas writes lists to CSV in the second way. None if it is something else, such as a name.
    """
    if cell[:1] + cell[-1:] not in ("[]", "{}"):
        return None
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        # numpy prints lists without commas, and Python would join the names.
        if re.search(r"""['"]\s+['"]""", cell):
            return None
        try:
            found = ast.literal_eval(cell)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return None
    if isinstance(found, set):
        return sorted(found) if all(isinstance(name, str) for name in found) else None
    return found if isinstance(found, (dict, list)) else None


# ---- many cells ----------------------------------------------------------------------------------


class NameCodes:
    """Distinct texts without surrounding blanks, numbered in order of first appearance."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}

    def encode(self, texts: Any) -> npt.NDArray[np.int32]:
        """The numbers of a pyarrow array of strings."""
        encoded = texts.dictionary_encode()
        number = self.number
        names = [name.strip() for name in encoded.dictionary.to_pylist()]
        local = [number.setdefault(name, len(number)) for name in names]
        codes: npt.NDArray[np.int32] = np.asarray(local, dtype=np.int32)[encoded.indices.to_numpy()]
        return codes

    @property
    def names(self) -> list[str]:
        return list(self.number)


class CollectedSets:
    """Candidate sets that arrive in batches, as positions in a list of names, maybe with scores."""

    def __init__(self, row: RowName) -> None:
        self.row = row
        self._sizes: list[Array] = []
        self._codes: list[Array] = []
        self._scores: list[npt.NDArray[np.float64] | None] = []

    def add_codes(
        self, rows: Array, codes: Array, n_rows: int, scores: Array | None = None
    ) -> None:
        self._sizes.append(np.bincount(rows, minlength=n_rows).astype(np.int32))
        self._codes.append(codes.astype(np.int32, copy=False))
        self._scores.append(scores)

    @property
    def n_labels(self) -> int:
        return sum(map(len, self._codes))

    def joined(self, names: Sequence[str]) -> Entries:
        """The entries of all batches, whose codes are positions in `names`."""
        ends = np.cumsum(np.concatenate(self._sizes), dtype=np.int64)
        found = Entries(np.concatenate([[0], ends]), np.concatenate(self._codes), names)
        if all(scores is None for scores in self._scores):
            return found
        parts = zip(self._codes, self._scores, strict=True)
        scores = [np.full(len(c), np.nan) if s is None else s for c, s in parts]
        return found._replace(scores=np.concatenate(scores))


class TextSets(CollectedSets):
    """Candidate sets written as text, parsed with Arrow because Python takes several times as long.

    Names in lists and objects are literal; only objects have scores.
    """

    def __init__(self, separator: str, row: RowName = PLAIN_ROW) -> None:
        super().__init__(row)
        if not separator:
            which = "The separator between candidate names is empty"
            raise InputError(f"{which}: give the character that separates them, such as '|'.")
        self.separator = separator
        self.names = NameCodes()
        self.literal = NameCodes()  # names in lists; their codes are stored as −1, −2, …

    def add_cells(self, cells: Any, first: int) -> None:
        """Parse a pyarrow array of strings; `first` is the number of its first row."""
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        trimmed = pc.utf8_trim_whitespace(cells)
        brackets = pc.and_(pc.starts_with(trimmed, "["), pc.ends_with(trimmed, "]"))
        if pc.any(pc.or_(brackets, pc.starts_with(trimmed, "{"))).as_py():
            texts = cells.to_pylist()
            lists = _json_lists(texts)
            if lists is None:
                numbered = enumerate(texts, first)
                parsed = [parse_cell(cell, self.separator, i, self.row) for i, cell in numbered]
                self.add_parsed(parsed, first)
                return
            sizes = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
            rows = np.repeat(np.arange(len(sizes)), sizes) + first
            self.add_lists(as_texts([name for one in lists for name in one], rows, self.row), sizes)
            return
        parts = pc.split_pattern(cells, self.separator)
        codes = self.names.encode(parts.flatten())
        self._add(codes, pc.list_value_length(parts).to_numpy())

    def add_parsed(self, cells: Sequence[Cell], first: int) -> None:
        """Add rows whose cells are already parsed."""
        sizes = np.asarray([len(cell.entries) for cell in cells], dtype=np.int64)
        rows = np.repeat(np.arange(len(sizes)), sizes) + first
        names = as_texts([name for cell in cells for name in cell.entries], rows, self.row)
        literal = np.repeat(np.asarray([cell.literal for cell in cells], dtype=bool), sizes)
        codes = np.empty(len(names), dtype=np.int32)
        codes[~literal] = self.names.encode(names.filter(~literal))
        codes[literal] = -1 - self.literal.encode(names.filter(literal))
        given = [s for cell in cells for s in (cell.scores or [np.nan] * len(cell.entries))]
        scores = np.asarray(given, dtype=np.float64)
        self._add(codes, sizes, None if np.isnan(scores).all() else scores)

    def add_lists(self, names: Any, sizes: Array) -> None:
        """Add rows whose names are already separate: a pyarrow array, and how many each row has."""
        self._add(-1 - self.literal.encode(names), sizes)

    def _add(self, codes: Array, sizes: Array, scores: Array | None = None) -> None:
        """Add entries, of which blank ones do not count."""
        rows = np.repeat(np.arange(len(sizes)), sizes)
        blanks = [self.names.number[""]] if "" in self.names.number else []
        blanks += [-1 - self.literal.number[""]] if "" in self.literal.number else []
        if blanks:
            kept = ~np.isin(codes, blanks)
            rows, codes = rows[kept], codes[kept]
            scores = None if scores is None else scores[kept]
        self.add_codes(rows, codes, len(sizes), scores)

    def entries(self, known: Iterable[Any] = ()) -> Entries:
        """All rows; cells with another separator or with scores are refused unless `known`."""
        marked, literal = self.names.names, self.literal.names
        found = self.joined([*marked, *literal])._replace(n_marked=len(marked))
        if literal:
            codes = np.where(found.codes < 0, len(marked) - 1 - found.codes, found.codes)
            found = found._replace(codes=codes)
        if found.scores is not None:
            named = [not name.startswith(EXCLUDES) and name != EVERY for name in marked]
            unscored = np.asarray([*named, *(True for _ in literal)])[found.codes]
            advice = "unlike others: give every candidate of the column a score"
            self._refuse_first(
                found, unscored & np.isnan(found.scores), f"without a score, {advice}"
            )
        if not literal:
            check_separator(found, self.separator, known, self.row)
            ending = {code for code, name in enumerate(marked) if SCORE.fullmatch(name)}
            if 2 * len(ending) > len(marked) and not {*marked} <= {*known}:
                advice = 'with a score: write scores as JSON, as in {"fox": 0.6, "dog": 0.3}, and '
                advice += "names that end like scores as a JSON list"
                self._refuse_first(found, np.isin(found.codes, [*ending]), advice)
        return found

    def _refuse_first(self, found: Entries, wrong: Array, why: str) -> None:
        """Refuse the first of these entries, if there is one."""
        for at in np.flatnonzero(wrong)[:1].tolist():
            which = f"{self.row(row_at(at, found.indptr))} has the candidate"
            raise InputError(f"{which} {shown(found.names[found.codes[at]])} {why}.")


def check_separator(
    found: Entries,
    separator: str,
    known: Iterable[Any],
    row: RowName = PLAIN_ROW,
    advice: Callable[[str], str] | None = None,
) -> None:
    """Refuse entries such as `cat;dog` that were probably meant to be split, or warn about them.

    They probably were if `cat` and `dog` are labels elsewhere, or if no cell is split and either
    these pieces recur or the default separator occurs in them. `separator` is empty for single
    labels, about which there is a warning only if some pieces recur. Names that are `known` as
    classes are never refused. `advice` says what to do about a separator.
    """
    indptr, codes, names = found[:3]
    classes = set(known)
    unsplit = len(codes) == len(indptr) - 1
    for other in KNOWN_SEPARATORS:
        pieces = {
            code: [piece.strip() for piece in name.split(other)]
            for code, name in enumerate(names)
            if other != separator and other in name and name not in classes
        }
        pieces = {code: split for code, split in pieces.items() if all(split)}
        labels = {*names, *classes}
        if unsplit:
            times = Counter(piece for split in pieces.values() for piece in set(split))
            labels |= {piece for piece, n in times.items() if n > 1}
        meant = [code for code, split in pieces.items() if labels.issuperset(split)]
        if unsplit and other == SEPARATOR:
            meant = meant or list(pieces)
        recurs = any(piece in labels for split in pieces.values() for piece in split)
        suspicious = unsplit and len(pieces) > 1 and (separator or recurs)
        if not meant and not suspicious:
            continue
        position = int(np.flatnonzero(np.isin(codes, meant or list(pieces)))[0])
        name = shown(names[codes[position]])
        do = f"pass {option('separator', other)}" if advice is None else advice(other)
        if meant:
            instead = f" rather than {shown(separator)}" if separator else ""
            raise InputError(
                f"{row(row_at(position, indptr))} has the candidate {name}, which looks like "
                f"several labels separated by {other!r}{instead}: use one separator throughout, "
                f"and {do}."
            )
        warnings.warn(
            f"No set has more than one candidate, and {len(pieces)} class names contain {other!r}, "
            f"such as {name}: if these are several labels each, {do}.",
            InputWarning,
            stacklevel=2,
        )
        return


def as_texts(texts: Sequence[str], rows: Sequence[int] | Array, row: RowName = PLAIN_ROW) -> Any:
    """Strings of the given rows as a pyarrow array, which cannot hold lone surrogates."""
    import pyarrow as pa

    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        i = next(i for i, text in enumerate(texts) if re.search("[\ud800-\udfff]", text))
        which = f"{row(rows[i])} holds {shown(texts[i])}"
        raise InputError(f"{which}, which is not valid Unicode text: correct the row.") from None


def _json_lists(cells: list[str]) -> list[list[str]] | None:
    """Parse all cells as one JSON text, which is fast; None if some are not lists of strings."""
    try:
        found: list[list[str]] = json.loads(f"[{','.join(cells)}]")
    except (ValueError, RecursionError):
        return None
    plain = len(found) == len(cells) and all(type(row) is list for row in found)
    return found if plain and {type(label) for row in found for label in row} == {str} else None
