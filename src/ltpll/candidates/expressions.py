"""Expressions: entries of cells (names, groups, exclusions, `*`, scores) become class numbers.

The set of a row is what its cell names, with groups expanded, minus the excluded classes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from ltpll.candidates.cells import (
    EVERY,
    EXCLUDES,
    PLAIN_ROW,
    Entries,
    FlatSets,
    RowName,
    names_to_numbers,
    no_candidates_error,
    row_at,
    unknown_class_error,
)
from ltpll.candidates.similar_names import warn_of_similar_names
from ltpll.candidates.taxonomy import Taxonomy
from ltpll.errors import InputError, option, shown

EMPTY = ("stop", "all")  # what a row without entries means: a mistake, or every class


@dataclass(frozen=True)
class SetRules:
    """How the entries of cells become sets."""

    taxonomy: Taxonomy | None = None
    empty: str = "stop"  # a row without entries: an error ("stop") or every class ("all")
    # May refuse the number of candidates of all rows before memory is allocated.
    check_size: Callable[[int], None] = lambda _: None

    def __post_init__(self) -> None:
        if self.empty not in EMPTY:
            raise InputError(f"empty is {shown(self.empty)}: it must be stop or all.")


PLAIN_RULES = SetRules()


def empty_advice() -> str:
    """What to do about a row without entries, for a message."""
    return f"read it with {option('empty', 'all')}"


def class_sets(
    entries: Entries,
    classes: Sequence[Hashable] | None,
    rules: SetRules = PLAIN_RULES,
    *,
    order: Callable[[Sequence[str]], list[str]] = sorted,
    row: RowName = PLAIN_ROW,
) -> FlatSets:
    """Turn entries into class numbers; refuse a row that is left without a candidate.

    The classes are by default the names that occur, sorted by `order`. With a taxonomy, they are
    its leaves that remain in some set.
    """
    taxonomy = rules.taxonomy
    empty = np.diff(entries.indptr) == 0
    if empty.any() and rules.empty == "stop":
        first = row(int(np.argmax(empty)))
        raise InputError(no_candidates_error(first, int(empty.sum()), advice=empty_advice()))
    texts = entries.names[: entries.n_marked]
    marked = any(name[:1] == EXCLUDES or name == EVERY for name in texts)
    if not marked and not empty.any() and taxonomy is None and entries.scores is None:
        names = classes or order(list(dict.fromkeys(name for name in entries.names if name)))
        plain = names_to_numbers(*entries[:3], names, row)
        if classes is None:
            warn_of_similar_names(names, plain.numbers)
        return plain

    meanings = _Meanings(entries, row, taxonomy, set(classes or ()))
    if classes is not None:
        names = list(classes)
    elif taxonomy is not None:
        names = order(taxonomy.leaves)
    else:
        names = order(list(dict.fromkeys(name for name, _ in meanings.names.values())))
    if not names:
        which = f"No cell names a class, so it is not known what {row(0)} stands for"
        raise InputError(f"{which}: name the classes in some cells.")
    sets = meanings.sets(names, rules)
    numbers = sets.indices.astype(np.int64)
    if classes is None and taxonomy is not None:
        remaining, numbers = np.unique(numbers, return_inverse=True)
        names = [names[number] for number in remaining]
    elif classes is None:
        warn_of_similar_names(names, numbers)
    scores = None if entries.scores is None else sets.data
    return FlatSets(sets.indptr, numbers, len(names), tuple(names), scores)


class _Meanings:
    """What each distinct entry stands for."""

    def __init__(
        self, entries: Entries, row: RowName, taxonomy: Taxonomy | None, known: set[Hashable]
    ) -> None:
        self.entries, self.row = entries, row
        self.excludes, self.every = (np.zeros(len(entries.names), dtype=bool) for _ in range(2))
        self.names: dict[int, tuple[str, tuple[str, ...]]] = {}  # a name and its classes
        for code in np.unique(entries.codes).tolist():
            name: str | None = entries.names[code]
            if code < entries.n_marked and name not in known:
                self.excludes[code], name = _without_mark(entries.names[code])
            self.every[code] = name is None
            if name is None:
                continue
            try:
                if not name:
                    example = "write !dog for every class but dog"
                    raise InputError(f"{shown(entries.names[code])} without a name: {example}")
                below = (name,) if taxonomy is None else taxonomy.classes_below(name)
            except InputError as error:
                raise self._error(code, error) from None
            self.names[code] = name, below

    def _error(self, code: int, problem: object) -> InputError:
        first = row_at(int(np.argmax(self.entries.codes == code)), self.entries.indptr)
        return InputError(f"{self.row(first)} has the candidate {problem}.")

    def _numbers(self, classes: Sequence[Any]) -> Any:
        """The classes of each distinct entry, a sparse matrix (entries, classes)."""
        number = {name: i for i, name in enumerate(classes)}
        numbers: list[Sequence[int]] = [
            range(len(classes)) if every else () for every in self.every.tolist()
        ]
        for code, (written, below) in self.names.items():
            numbers[code] = [number[name] for name in below if name in number]
            if not numbers[code]:
                raise self._error(code, unknown_class_error(written, classes))
        flat = np.fromiter(chain.from_iterable(numbers), dtype=np.int64)
        indptr = np.cumsum([0, *map(len, numbers)])
        ones = np.ones(len(flat), dtype=bool)
        return csr_matrix((ones, flat, indptr), (len(numbers), len(classes)))

    def sets(self, classes: Sequence[Any], rules: SetRules) -> Any:
        """The sets of all rows, a sparse matrix (rows, classes) with the scores as its values."""
        rows, codes, scores = self.entries.rows, self.entries.codes, self.entries.scores
        n_rows = len(self.entries.indptr) - 1
        numbers = self._numbers(classes)
        sizes = np.diff(numbers.indptr)

        def rows_with(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
            return np.asarray(np.bincount(rows[mask], minlength=n_rows) > 0)

        out = self.excludes[codes]
        every = self.every[codes] & ~out
        named = ~out & ~every
        full = rows_with(every) | (~rows_with(named) & (rows_with(out) | (rules.empty == "all")))
        if scores is not None:
            scored = named & (scores != 0)
            for wrong, problem in (
                (rows_with(named) & rows_with(every), "both * and candidates with scores"),
                (rows_with(named) & ~rows_with(scored), "only candidates with the score 0"),
            ):
                if wrong.any():
                    first = self.row(int(np.argmax(wrong)))
                    raise InputError(f"{first} has {problem}: correct its scores.")
            named = scored
        named &= ~full[rows]
        rules.check_size(int(sizes[codes[named | out]].sum() + full.sum() * len(classes)))

        def expanded(chosen: npt.NDArray[np.bool_], values: npt.NDArray[Any]) -> Any:
            indptr = np.concatenate([[0], np.cumsum(chosen)])[self.entries.indptr]
            shape = (n_rows, len(self.entries.names))
            return csr_matrix((values, codes[chosen], indptr), shape) @ numbers

        # Several classes share the score of an entry.
        values = np.ones(named.sum(), dtype=bool)
        if scores is not None:
            values = scores[named] / sizes[codes[named]]
        found = expanded(named, values)
        every_class = csr_matrix(np.ones((1, len(classes)), dtype=bool))
        of_full = np.zeros(full.sum(), dtype=np.int64)
        ends = np.concatenate([[0], np.cumsum(full)])
        found = found + csr_matrix((full[full], of_full, ends), (n_rows, 1)) @ every_class
        if out.any():
            removed = expanded(out, np.ones(out.sum(), dtype=bool))
            found = found.astype(np.float64)
            found = found - found.multiply(removed)
            found.eliminate_zeros()
            lost = np.flatnonzero(np.diff(found.indptr) == 0)
            if len(lost):
                more = f" ({len(lost)} such rows)" if len(lost) > 1 else ""
                problem = "excludes all of its candidates: correct or drop the row"
                raise InputError(f"{self.row(int(lost[0]))}{more} {problem}.")
        found.sort_indices()
        return found


def _without_mark(entry: str) -> tuple[bool, str | None]:
    """Whether an entry of a text excludes, and its name; None stands for every class."""
    excludes = entry.startswith(EXCLUDES)
    name = entry[1:].strip() if excludes else entry
    return excludes, None if name == EVERY else name


def names_in(entries: Entries) -> list[str]:
    """The distinct names in the entries, without marks."""
    marked, literal = entries.names[: entries.n_marked], entries.names[entries.n_marked :]
    names = [*(_without_mark(name)[1] for name in marked), *literal]
    return list(dict.fromkeys(name for name in names if name))
