"""Cells: how text such as `cat|dog` or `["cat", "dog"]` becomes candidate sets, for lists, pandas Series and files alike."""

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
SCORED = r"(?s)^\s*(?P<name>.*\S)\s*:\s*(?P<score>\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*%?\s*$"  # fox:0.6
KNOWN_SEPARATORS = (SEPARATOR, ";", ",", "/", "\t")
RowName = Callable[[int], str]
"""How a message refers to a row, which is numbered from 0."""
PLAIN_ROW: RowName = "Row {}".format
LARGEST_SCORE = 1e300  # so that sums stay finite


class FlatSets(NamedTuple):
    """The class numbers of all rows in one array; row i has those at `indptr[i]:indptr[i + 1]`."""

    indptr: npt.NDArray[Any]
    numbers: npt.NDArray[Any]
    n_classes: int
    names: tuple[Hashable, ...] | None


class Entries(NamedTuple):
    """What the cells of a column hold; row i has the entries at `indptr[i]:indptr[i + 1]`, as positions in `names`."""

    indptr: npt.NDArray[Any]
    codes: npt.NDArray[Any]
    names: Sequence[str]
    n_marked: int = 0  # so many of the names are from text, where `!` and `*` have a meaning; the others are literal
    scores: npt.NDArray[np.float64] | None = (
        None  # of each entry, NaN where it has none; None if the column has no scores
    )

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The row of each entry."""
        return np.repeat(np.arange(len(self.indptr) - 1, dtype=np.int64), np.diff(self.indptr))


def row_at(position: int, indptr: npt.NDArray[Any]) -> int:
    """The row that the label at this position belongs to."""
    return int(np.searchsorted(indptr, position, side="right") - 1)


def names_to_numbers(
    indptr: npt.NDArray[Any],
    codes: npt.NDArray[Any],
    names: Sequence[Any],
    classes: Sequence[Hashable],
    row: RowName,
) -> FlatSets:
    """Turn positions in `names` into positions in `classes`."""
    number = {name: i for i, name in enumerate(classes)}
    numbers = np.asarray([number.get(name, -1) for name in names], dtype=np.int64)[codes]
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        first = int(unknown[0])
        raise InputError(
            f"{row(row_at(first, indptr))} has the candidate "
            f"{unknown_class_error(names[codes[first]], classes)}."
        )
    return FlatSets(indptr, numbers, len(classes), tuple(classes))


def unknown_class_error(name: Any, classes: Sequence[Any]) -> str:
    """The end of a sentence about a name that is not one of the classes."""
    guess = get_close_matches(str(name), [str(known) for known in classes], n=1)
    hint = f" (did you mean {shown(guess[0])}?)" if guess else ""
    some = ", ".join(shown(known) for known in classes[:5]) + (", …" if len(classes) > 5 else "")
    return f"{shown(name)}, which is not one of the {len(classes)} classes{hint}: correct it or add the class; the classes are {some}"


def no_candidates_error(row: str, n: int = 1, *, advice: str = "list every class") -> str:
    more = f" ({n} such rows)" if n > 1 else ""
    return f"{row} has no candidate label{more}: drop the row, or {advice} if nothing is known about it."


# ---- one cell ------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """The entries of one cell; names in lists and objects are literal, and objects give each of them a score."""

    entries: list[str]
    literal: bool
    scores: list[float] | None = None


def parse_cell(cell: str, separator: str, i: int, row: RowName = PLAIN_ROW) -> Cell:
    """The entries in the cell of row i; `TextSets.add_cells` does the same for many cells at once."""
    cell = cell.strip()
    labels = _parsed(cell)
    if isinstance(labels, dict):
        return scored_cell(labels, i, row)
    if labels is None:
        if cell.startswith("[") and cell.endswith("]"):
            raise InputError(
                f'{row(i)} holds {shown(cell)}, which is not a list: write it like ["cat", "dog"] '
                "or cat|dog."
            )
        return Cell([name for part in cell.split(separator) if (name := part.strip())], False)
    for label in labels:
        if not isinstance(label, (str, int, float)) or isinstance(label, bool):
            raise InputError(
                f"{row(i)} has the candidate {shown(str(label))}, which is not a name: give a flat "
                "list of names."
            )
    return Cell(
        [
            label.strip()
            if isinstance(label, str)
            else str(int(label) if label == label // 1 else label)
            for label in labels
        ],
        True,
    )


def scored_cell(scores: Mapping[Any, Any], i: int, row: RowName = PLAIN_ROW) -> Cell:
    """The names and scores of row i."""
    for name, score in scores.items():
        if not isinstance(name, str):
            raise InputError(
                f"{row(i)} gives {shown(name)} a score, which is not a name: write names as text."
            )
        if (
            isinstance(score, bool)
            or not isinstance(score, (int, float))
            or not 0 <= score <= LARGEST_SCORE
        ):
            raise InputError(
                f"{row(i)} gives {shown(name)} the score {shown(score)}: scores are finite numbers "
                "that are not negative, as in "
                '{"cat": 0.7, "dog": 0.3}.'
            )
    return Cell(
        [name.strip() for name in scores], True, [float(score) for score in scores.values()]
    )


def cell_holds_set(cell: str) -> bool:
    """Whether a cell is written as a set rather than as a single name; `[0, 10]` may be an interval that is a class."""
    found = None if SEPARATOR in cell else _parsed(cell.strip())
    if isinstance(found, list):
        return bool(found) and all(isinstance(label, str) for label in found)
    return SEPARATOR in cell or found is not None


def _parsed(cell: str) -> dict[Any, Any] | list[Any] | None:
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
        self.padded = False  # whether any text had blanks around it

    def encode(self, texts: Any) -> npt.NDArray[np.int32]:
        """The numbers of a pyarrow array of strings."""
        encoded = texts.dictionary_encode()
        number = self.number
        written = encoded.dictionary.to_pylist()
        names = [name.strip() for name in written]
        self.padded |= names != written
        local = [number.setdefault(name, len(number)) for name in names]
        codes: npt.NDArray[np.int32] = np.asarray(local, dtype=np.int32)[encoded.indices.to_numpy()]
        return codes

    @property
    def names(self) -> list[str]:
        return list(self.number)


class CollectedSets:
    """Candidate sets that arrive in batches, as positions in a list of names, possibly with a score for each."""

    def __init__(self, row: RowName) -> None:
        self.row = row
        self._sizes: list[npt.NDArray[Any]] = []
        self._codes: list[npt.NDArray[Any]] = []
        self._scores: list[npt.NDArray[np.float64] | None] = []

    def add_codes(
        self,
        rows: npt.NDArray[Any],
        codes: npt.NDArray[Any],
        n_rows: int,
        scores: npt.NDArray[Any] | None = None,
    ) -> None:
        self._sizes.append(np.bincount(rows, minlength=n_rows).astype(np.int32))
        self._codes.append(codes.astype(np.int32, copy=False))
        self._scores.append(scores)

    @property
    def n_labels(self) -> int:
        return sum(map(len, self._codes))

    def joined(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """All batches as `indptr` and codes."""
        return np.concatenate(
            [[0], np.cumsum(np.concatenate(self._sizes), dtype=np.int64)]
        ), np.concatenate(self._codes)

    def joined_scores(self) -> npt.NDArray[np.float64] | None:
        """The scores of all batches; None if there are none."""
        if all(scores is None for scores in self._scores):
            return None
        parts = zip(self._codes, self._scores, strict=True)
        return np.concatenate(
            [np.full(len(codes), np.nan) if scores is None else scores for codes, scores in parts]
        )


class TextSets(CollectedSets):
    """Candidate sets written as text, parsed with Arrow because Python takes several times as long.

    Whether a column has scores, as in `fox:0.6`, is decided by the first batch that names a class:
    either all names in it have a score, or none is read as one.

    Args:
        separator: What separates the entries of a cell.
        row: How an error message refers to a row.
        classes: The classes, if known; if one of them looks like a name with a score, no text is
            read as a score.
    """

    def __init__(
        self, separator: str, row: RowName = PLAIN_ROW, classes: Iterable[Any] | None = None
    ) -> None:
        super().__init__(row)
        if not separator:
            raise InputError(
                "The separator between candidate names is empty: give the character that separates "
                "them, such as '|'."
            )
        self.separator = separator
        self.names = NameCodes()
        self.literal = NameCodes()  # names in lists; their codes are stored as −1, −2, …
        self._has_lists = False
        self._scored: bool | None = None  # not decided
        self._names_with_scores = not any(
            re.match(SCORED, name) for name in classes or () if isinstance(name, str)
        )

    def add_cells(self, cells: Any, first: int) -> None:
        """Parse a pyarrow array of strings; `first` is the number of its first row."""
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        if not pc.any(structured_cells(cells)).as_py():
            parts = pc.split_pattern(cells, self.separator)
            sizes = pc.list_value_length(parts).to_numpy()
            names = parts.flatten()
            # Looking for scores in the first batch only, and only if there is a colon, keeps plain
            # cells fast.
            if self._scored is False or (self._scored is None and not self._may_have_scores(names)):
                self._add_names(self.names.encode(names), sizes)
            else:
                self._add_scored(names, None, None, sizes, first)
            return
        rows = cells.to_pylist()
        lists = _json_lists(rows)
        if lists is None:
            self.add_parsed(
                [
                    parse_cell(cell, self.separator, first + i, self.row)
                    for i, cell in enumerate(rows)
                ],
                first,
            )
            return
        self._has_lists = True
        sizes = np.asarray([len(names) for names in lists])
        flat = [name for names in lists for name in names]
        self.add_lists(
            as_texts(flat, np.repeat(np.arange(len(sizes)), sizes) + first, self.row), sizes, first
        )

    def add_parsed(self, cells: Sequence[Cell], first: int) -> None:
        """Add rows whose cells are already parsed."""
        self._has_lists = True
        sizes = np.asarray([len(cell.entries) for cell in cells], dtype=np.int64)
        literal = np.repeat(np.asarray([cell.literal for cell in cells], dtype=bool), sizes)
        given = [score for cell in cells for score in (cell.scores or [np.nan] * len(cell.entries))]
        rows = np.repeat(np.arange(len(sizes)), sizes) + first
        names = as_texts([name for cell in cells for name in cell.entries], rows, self.row)
        self._add_scored(names, literal, np.asarray(given, dtype=np.float64), sizes, first)

    def add_lists(self, names: Any, sizes: npt.NDArray[Any], first: int) -> None:
        """Add rows whose names are already separate: all of them in a pyarrow array of strings, and how many each row has."""
        if self._scored:
            self._add_scored(
                names, np.ones(len(names), dtype=bool), np.full(len(names), np.nan), sizes, first
            )
        else:
            self._scored = False if len(names) else self._scored
            self._add_names(-1 - self.literal.encode(names), sizes)

    def _add_names(
        self,
        codes: npt.NDArray[Any],
        sizes: npt.NDArray[Any],
        scores: npt.NDArray[Any] | None = None,
    ) -> None:
        rows = np.repeat(np.arange(len(sizes)), sizes)
        blanks = [
            self.names.number.get(""),
            -1 - self.literal.number[""] if "" in self.literal.number else None,
        ]
        for blank in (blank for blank in blanks if blank is not None):
            kept = codes != blank
            rows, codes, scores = rows[kept], codes[kept], None if scores is None else scores[kept]
        self.add_codes(rows, codes, len(sizes), scores)

    def _may_have_scores(self, names: Any) -> bool:
        import pyarrow.compute as pc

        if self._names_with_scores and pc.any(pc.match_substring(names, ":")).as_py():
            return True
        if pc.any(_names_class(names)).as_py():
            self._scored = False
        return False

    def _add_scored(
        self,
        names: Any,
        literal: npt.NDArray[Any] | None,
        given: npt.NDArray[Any] | None,
        sizes: npt.NDArray[Any],
        first: int,
    ) -> None:
        """Add entries some of which are literal or may have scores, `given` by objects or written behind the names."""
        import pyarrow as pa
        import pyarrow.compute as pc

        n = len(names)
        literal = np.zeros(n, dtype=bool) if literal is None else literal
        scores = np.full(n, np.nan) if given is None else given
        by_objects = bool(np.isfinite(scores).any())
        texts = names.filter(pa.array(~literal))
        plain = literal & np.isnan(scores)
        if self._scored is not False and self._names_with_scores:
            split = pc.extract_regex(texts, SCORED)
            names_class, has_score = (
                mask.to_numpy(zero_copy_only=False)
                for mask in (_names_class(texts), pc.is_valid(split))
            )
            has_score = has_score & names_class
            plain[~literal] = names_class & ~has_score
            if not plain.any() and has_score.any():
                written = pc.if_else(pa.array(has_score), pc.struct_field(split, "score"), None)
                scores[~literal] = pc.fill_null(written.cast(pa.float64()), np.nan).to_numpy(
                    zero_copy_only=False
                )
                texts = pc.if_else(pa.array(has_score), pc.struct_field(split, "name"), texts)
        else:
            plain[~literal] = _names_class(texts).to_numpy(zero_copy_only=False)
        rows = np.repeat(np.arange(len(sizes)), sizes)
        too_large = np.flatnonzero(scores > LARGEST_SCORE)
        if len(too_large):
            raise InputError(
                f"{self.row(first + int(rows[too_large[0]]))} has a score that is too large: give "
                "finite numbers."
            )
        if plain.any() and (self._scored or by_objects):
            raise self._mixed(
                first + int(rows[np.argmax(plain)]), names[int(np.argmax(plain))].as_py()
            )
        if by_objects and self._scored is False:
            position = int(np.flatnonzero(np.isfinite(scores))[0])
            raise InputError(
                f"{self.row(first + int(rows[position]))} gives {shown(names[position].as_py())} a "
                "score, but earlier rows have candidates "
                "without scores: give all candidates of the column scores, or none."
            )
        if plain.any():
            self._scored = False
        elif np.isfinite(scores).any():
            self._scored = True
        codes = np.empty(n, dtype=np.int32)
        codes[~literal] = self.names.encode(texts)
        codes[literal] = -1 - self.literal.encode(names.filter(pa.array(literal)))
        self._add_names(codes, sizes, scores if self._scored else None)

    def _mixed(self, row: int, name: str) -> InputError:
        return InputError(
            f"{self.row(row)} has the candidate {shown(name)} without a score, while others have "
            "one, as in fox:0.6: give every candidate "
            'a score, or write names that end like scores in JSON lists, as in ["16:9"].'
        )

    def entries(self, known: Iterable[str] = ()) -> Entries:
        """All rows; cells that seem to have another separator are refused, unless they are `known` names."""
        indptr, codes = self.joined()
        marked, literal = self.names.names, self.literal.names
        if literal:
            codes = np.where(codes < 0, len(marked) - 1 - codes, codes)
        scores = self.joined_scores()
        if scores is None and self._names_with_scores:
            self._check_mixed(indptr, codes, marked)
        found = Entries(indptr, codes, [*marked, *literal], len(marked), scores)
        if not self._has_lists:
            check_separator(found, self.separator, known, self.row)
        return found

    def _check_mixed(
        self, indptr: npt.NDArray[Any], codes: npt.NDArray[Any], names: Sequence[str]
    ) -> None:
        """Refuse a column in which most candidates, but not all, have a score."""
        looks = np.asarray(
            [
                ":" in name and name[:1] != EXCLUDES and re.match(SCORED, name) is not None
                for name in names
            ],
            dtype=bool,
        )
        if not looks.any():
            return
        times = np.bincount(codes, minlength=len(names))[: len(names)]
        class_names = np.asarray(
            [name != EVERY and name[:1] not in ("", EXCLUDES) for name in names], dtype=bool
        )
        if 2 * times[looks].sum() > times[class_names].sum():
            plain = np.flatnonzero(np.isin(codes, np.flatnonzero(class_names & ~looks)))
            if len(
                plain
            ):  # otherwise only names in lists, which are taken as they are, have no score
                raise self._mixed(row_at(int(plain[0]), indptr), names[codes[plain[0]]])


def check_separator(
    found: Entries,
    separator: str,
    known: Iterable[str],
    row: RowName = PLAIN_ROW,
    advice: Callable[[str], str] | None = None,
) -> None:
    """Refuse entries such as `cat;dog` that were probably meant to be split, and warn about entries that may have been.

    They probably were if `cat` and `dog` are labels elsewhere, or if no cell is split and either
    all pieces recur or the default separator occurs in them.

    Args:
        found: The entries of each row.
        separator: What separated them; empty for single labels, about which there is a warning only
            if some pieces recur.
        known: Names that are classes, and never refused.
        row: How a message refers to a row.
        advice: What to do if names are separated by the given text; by default, to pass it as
            `separator`.
    """
    indptr, codes, names = found[:3]
    classes = set(known)
    labels = set(names) | classes
    unsplit = len(codes) == len(indptr) - 1
    for other in KNOWN_SEPARATORS:
        if other == separator:
            continue
        pieces = {
            code: [piece.strip() for piece in name.split(other)]
            for code, name in enumerate(names)
            if other in name and name not in classes
        }
        pieces = {code: split for code, split in pieces.items() if all(split)}
        meant = [code for code, split in pieces.items() if labels.issuperset(split)]
        if found.scores is not None:  # fox:0.6;dog is what remains of fox:0.6;dog:0.4
            meant += [
                code
                for code, split in pieces.items()
                if all(re.match(SCORED, piece) for piece in split[:-1])
            ]
        recurring = [False]
        if not meant and unsplit and pieces:
            times = Counter(
                [*labels, *(piece for split in pieces.values() for piece in set(split))]
            )
            recurring = [times[piece] > 1 for split in pieces.values() for piece in split]
            meant = (
                list(pieces) if (len(pieces) > 1 and all(recurring)) or other == SEPARATOR else []
            )
        if not meant and not (unsplit and len(pieces) > 1 and (separator or any(recurring))):
            continue
        # The first row at fault is one that shares a label with others, if there are such rows.
        alike = [
            code for code, split in pieces.items() if code in meant or not labels.isdisjoint(split)
        ]
        position = int(np.flatnonzero(np.isin(codes, alike if meant else list(pieces)))[0])
        name = names[codes[position]]
        do = f"pass {option('separator', other)}" if advice is None else advice(other)
        if meant:
            instead = f" rather than {shown(separator)}" if separator else ""
            raise InputError(
                f"{row(row_at(position, indptr))} has the candidate {shown(name)}, which looks "
                "like several labels separated by "
                f"{other!r}{instead}: use one separator throughout, and {do}."
            )
        warnings.warn(
            f"No set has more than one candidate, and {len(pieces)} class names contain {other!r}, "
            f"such as {shown(name)}: if these are "
            f"several labels each, {do}.",
            InputWarning,
            stacklevel=2,
        )
        return


def structured_cells(cells: Any) -> Any:
    """For a pyarrow array of strings, whether each is written in brackets, or begins with a brace."""
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(cells)
    return pc.or_(
        pc.and_(pc.starts_with(trimmed, "["), pc.ends_with(trimmed, "]")),
        pc.starts_with(trimmed, "{"),
    )


def _names_class(entries: Any) -> Any:
    """For a pyarrow array of strings, whether each names a candidate: it is neither blank nor has a mark."""
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(entries)
    marked = pc.or_(pc.starts_with(trimmed, EXCLUDES), pc.equal(trimmed, EVERY))
    return pc.invert(pc.or_(marked, pc.equal(trimmed, "")))


def as_texts(
    texts: Sequence[str], rows: Sequence[int] | npt.NDArray[Any], row: RowName = PLAIN_ROW
) -> Any:
    """Strings of the given rows as a pyarrow array, which cannot hold lone surrogates."""
    import pyarrow as pa

    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        i = next(
            i
            for i, text in enumerate(texts)
            if any("\ud800" <= letter <= "\udfff" for letter in text)
        )
        raise InputError(
            f"{row(rows[i])} holds {shown(texts[i])}, which is not valid Unicode text: correct the "
            "row."
        ) from None


def _json_lists(cells: list[str]) -> list[list[str]] | None:
    """Parse all cells as one JSON text, which is much faster than one by one; None if some are not JSON lists of strings."""
    try:
        found: list[list[str]] = json.loads(f"[{','.join(cells)}]")
    except (ValueError, RecursionError):
        return None
    plain = len(found) == len(cells) and all(type(row) is list for row in found)
    return found if plain and {type(label) for row in found for label in row} == {str} else None
