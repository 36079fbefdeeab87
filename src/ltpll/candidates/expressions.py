"""Expressions: entries of cells (names, groups, exclusions, `*`, scores) become class numbers.

The set of a row is made in this order: what its cell names, with groups expanded; minus the
excluded classes; without the classes that are not possible there; and with weights that sum to one
again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, vstack

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
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Possible:
    """Which classes are possible in each row."""

    lists: Entries
    of_row: Numbers  # the list of each row; −1 if every class is possible
    where: Callable[
        [int], str
    ]  # how a message refers to the place of list i: "at the site 'north'"
    row: RowName = PLAIN_ROW  # how a message refers to list i itself


@dataclass(frozen=True)
class SetRules:
    """How the entries of cells become sets."""

    taxonomy: Taxonomy | None = None
    empty: str = "stop"  # a row without entries: an error ("stop") or every class ("all")
    excluded: Entries | None = None  # classes removed from each row's set, from their own column
    possible: Possible | None = None
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

    The classes are by default the names that occur, sorted by `order`, which are leaves if there is
    a taxonomy. With a taxonomy or lists of possible classes, classes that remain in no set are left
    out.
    """
    taxonomy, excluded, possible = rules.taxonomy, rules.excluded, rules.possible
    empty = np.diff(entries.indptr) == 0
    if excluded is not None:
        empty &= np.diff(excluded.indptr) == 0
    if empty.any() and rules.empty == "stop":
        first = row(int(np.argmax(empty)))
        raise InputError(no_candidates_error(first, int(empty.sum()), advice=empty_advice()))
    texts = entries.names[: entries.n_marked]
    marked = any(name[:1] == EXCLUDES or name == EVERY for name in texts)
    special = (taxonomy, excluded, possible, entries.scores)
    if not marked and not empty.any() and all(one is None for one in special):
        names = classes or order(list(dict.fromkeys(name for name in entries.names if name)))
        plain = names_to_numbers(*entries[:3], names, row)
        if classes is None:
            warn_of_similar_names(names, plain.numbers)
        return plain

    known = set(classes or ())
    columns = [_Column(entries, "candidate", row, taxonomy, known)]
    if excluded is not None:
        columns.append(_Column(excluded, "excluded class", row, taxonomy, known))
    lists = None
    if possible is not None:
        used = np.isin(possible.lists.rows, possible.of_row)
        lists = _Column(possible.lists, "possible class", possible.row, taxonomy, known, used)
    if classes is not None:
        names = list(classes)
    elif taxonomy is not None:
        names = order(taxonomy.leaves)
    else:
        meanings = [column.meanings for column in ([*columns, lists] if lists else columns)]
        found = (name for one in meanings for _, members in one.values() for name in members)
        names = order(list(dict.fromkeys(found)))
    if not names:
        which = f"No cell names a class, so it is not known what {row(0)} stands for"
        raise InputError(f"{which}: name the classes in some cells.")
    for column in columns:
        column.look_up(names)
    if lists is not None:
        lists.look_up(names, lenient=True)
    size_only = SetRules(check_size=rules.check_size)
    sets = _sets_of(columns, rules, lists and _sets_of([lists], size_only))
    numbers = sets.indices.astype(np.int64)
    if classes is None and (taxonomy is not None or possible is not None):
        remaining, numbers = np.unique(numbers, return_inverse=True)
        names = [names[number] for number in remaining]
    if classes is None and taxonomy is None:
        warn_of_similar_names(names, numbers)
    scores = None if entries.scores is None else sets.data
    return FlatSets(sets.indptr, numbers, len(names), tuple(names), scores)


class _Column:
    """The distinct entries of a column, and the classes that each of them stands for."""

    def __init__(
        self,
        entries: Entries,
        what: str,
        row: RowName,
        taxonomy: Taxonomy | None,
        known: set[Hashable],
        used: Mask | slice = slice(None),
    ) -> None:
        self.entries, self.what, self.row = entries, what, row
        self.excludes, self.every = (np.zeros(len(entries.names), dtype=bool) for _ in range(2))
        self.meanings: dict[int, tuple[str, tuple[str, ...]]] = {}  # a name and its classes
        for code in np.unique(entries.codes[used]).tolist():
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
                members = (name,) if taxonomy is None else taxonomy.classes_below(name)
            except InputError as error:
                raise self._error(code, error) from None
            self.meanings[code] = name, members

    def _error(self, code: int, problem: object) -> InputError:
        first = row_at(int(np.argmax(self.entries.codes == code)), self.entries.indptr)
        return InputError(f"{self.row(first)} has the {self.what} {problem}.")

    def look_up(self, classes: Sequence[Any], *, lenient: bool = False) -> None:
        """Look up all names; those that are not classes are ignored if `lenient`, else refused."""
        number = {name: i for i, name in enumerate(classes)}
        self.n_classes = len(classes)
        numbers: list[Sequence[int]] = [()] * len(self.entries.names)
        for code in np.flatnonzero(self.every).tolist():
            numbers[code] = range(len(classes))
        for code, (written, members) in self.meanings.items():
            numbers[code] = [number[name] for name in members if name in number]
            if not numbers[code] and not lenient:
                raise self._error(code, unknown_class_error(written, classes))
        flat = np.fromiter(chain.from_iterable(numbers), dtype=np.int64)
        indptr = np.cumsum([0, *map(len, numbers)])
        shape = (len(numbers), len(classes))
        # Sparse (distinct entries, classes): a product with it expands the entries of rows.
        self.expansion = csr_matrix((np.ones(len(flat), dtype=bool), flat, indptr), shape)
        self.sizes = np.diff(indptr)

    def expand_entries(self, chosen: Mask, scores: npt.NDArray[np.float64] | None = None) -> Any:
        """What the chosen entries of each row stand for, as a sparse matrix (rows, classes).

        Several classes share the score of an entry.
        """
        codes = self.entries.codes[chosen]
        values = np.ones(len(codes), dtype=bool) if scores is None else scores / self.sizes[codes]
        indptr = np.concatenate([[0], np.cumsum(chosen)])[self.entries.indptr]
        shape = (len(indptr) - 1, len(self.sizes))
        return csr_matrix((values, codes, indptr), shape) @ self.expansion


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


def _sets_of(columns: Sequence[_Column], rules: SetRules, lists: Any = None) -> Any:
    """The sets of all rows, a sparse matrix (rows, classes) with the scores as its values.

    `columns` are the candidates and, if they have a column, the excluded classes; `lists` are the
    possible classes, a sparse matrix (lists, classes).
    """
    column, *excluded = columns
    entries, row, n_classes = column.entries, column.row, column.n_classes
    n_rows, rows = len(entries.indptr) - 1, entries.rows
    codes, scores = entries.codes, entries.scores

    def rows_with(mask: Mask) -> Mask:
        return np.asarray(np.bincount(rows[mask], minlength=n_rows) > 0)

    out, every = column.excludes[codes], column.every[codes] & ~column.excludes[codes]
    named = ~out & ~every
    excludes = rows_with(out)
    for other in excluded:
        excludes |= np.diff(other.entries.indptr) > 0
    full = rows_with(every) | (~rows_with(named) & (excludes | (rules.empty == "all")))
    if scores is not None:
        scored = named & (scores != 0)
        for wrong, problem in (
            (rows_with(named) & rows_with(every), "both * and candidates with scores"),
            (rows_with(named) & ~rows_with(scored), "only candidates with the score 0"),
        ):
            if wrong.any():
                raise InputError(f"{row(int(np.argmax(wrong)))} has {problem}: correct its scores.")
        named = scored
    named &= ~full[rows]
    # The last list has every class; it is that of rows whose list is −1.
    choices = csr_matrix(np.ones((1, n_classes), dtype=bool))
    of_row = np.full(n_rows, -1)
    if lists is not None and rules.possible is not None:
        choices, of_row = vstack([lists, choices], "csr"), rules.possible.of_row
    removed = [(column, out)]
    removed += [(other, np.ones(len(other.entries.codes), dtype=bool)) for other in excluded]
    size = column.sizes[codes[named]].sum() + np.diff(choices.indptr)[of_row[full]].sum()
    size += sum(one.sizes[one.entries.codes[chosen]].sum() for one, chosen in removed)
    rules.check_size(int(size))

    found = column.expand_entries(named, None if scores is None else scores[named])
    list_of_row = of_row[full] % choices.shape[0]
    ends = np.concatenate([[0], np.cumsum(full)])
    found = (
        found + csr_matrix((full[full], list_of_row, ends), (n_rows, choices.shape[0])) @ choices
    )
    found.sort_indices()

    def without(dropped: Mask, problem: Callable[[int], str]) -> Any:
        """The sets without some of their entries; a row that loses all of them is refused."""
        kept = ~dropped
        indptr = np.concatenate([[0], np.cumsum(kept)])[found.indptr]
        lost = np.flatnonzero((np.diff(indptr) == 0) & (np.diff(found.indptr) > 0))
        if len(lost):
            i, more = int(lost[0]), f" ({len(lost)} such rows)" if len(lost) > 1 else ""
            raise InputError(f"{row(i)}{more} {problem(i)}: correct or drop the row.")
        return csr_matrix((found.data[kept], found.indices[kept], indptr), found.shape)

    for one, chosen in removed:
        if chosen.any():
            dropped = np.isin(_entry_numbers(found), _entry_numbers(one.expand_entries(chosen)))
            found = without(dropped, lambda _: "excludes all of its candidates")
    if lists is not None and rules.possible is not None:
        where = rules.possible.where
        at = np.repeat(of_row, np.diff(found.indptr))
        dropped = (at >= 0) & ~np.isin(at * n_classes + found.indices, _entry_numbers(lists))
        found = without(dropped, lambda i: f"has no candidate that is possible {where(of_row[i])}")
    return found


def _entry_numbers(sets: Any) -> Numbers:
    """A number for each entry of a sparse matrix of sets: row times classes, plus class."""
    n_rows, n_classes = sets.shape
    rows = np.repeat(np.arange(n_rows, dtype=np.int64), np.diff(sets.indptr))
    keys: Numbers = rows * n_classes + sets.indices
    return keys
