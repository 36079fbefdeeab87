"""Expressions: the entries of cells (names, groups, exclusions, `*`, scores) turned into class numbers.

The set of a row is made in this order: what its cell names, with groups expanded; minus the
excluded classes; without the classes that are not possible there; and with weights that sum to one
again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

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
from ltpll.formatting import format_names

EMPTY = ("stop", "all")  # what a row without entries means: a mistake, or every class
MOST_NAMES = 5  # of a set that an error message shows
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Possible:
    """Which classes are possible in each row.

    Args:
        lists: The lists of possible classes.
        of_row: The list of each row; −1 if every class is possible.
        where: How a message refers to the place that list i belongs to, such as "at the site
            'north'".
        row: How a message refers to list i itself.
    """

    lists: Entries
    of_row: Numbers
    where: Callable[[int], str]
    row: RowName = PLAIN_ROW


@dataclass(frozen=True)
class SetRules:
    """How the entries of cells become sets.

    Args:
        taxonomy: The groups whose names may stand for all classes below them.
        empty: What a row without entries means: "stop" (an error) or "all" (every class).
        excluded: Classes that are removed from each row's set, from a column of their own.
        possible: The classes that are possible in each row.
        check_size: Called with the number of candidates of all rows before memory is allocated for
            them; it may refuse them.
    """

    taxonomy: Taxonomy | None = None
    empty: str = "stop"
    excluded: Entries | None = None
    possible: Possible | None = None
    check_size: Callable[[int], None] | None = None

    def check(self) -> None:
        if self.empty not in EMPTY:
            raise InputError(f"empty is {shown(self.empty)}: it must be stop or all.")


PLAIN_RULES = SetRules()


def empty_advice() -> str:
    """What to do about a row without entries, for a message."""
    return f"read it with {option('empty', 'all')}"


class WeightedSets(NamedTuple):
    """Sets, and the share of the scores that each label has in its row; None if there are no scores."""

    sets: FlatSets
    weights: npt.NDArray[np.float64] | None


class _Mark(NamedTuple):
    """One distinct entry: whether it is excluded, and its name; None stands for every class."""

    excludes: bool
    name: str | None


def class_sets(
    entries: Entries,
    classes: Sequence[Hashable] | None,
    rules: SetRules = PLAIN_RULES,
    *,
    order: Callable[[Sequence[str]], list[str]] = sorted,
    row: RowName = PLAIN_ROW,
) -> WeightedSets:
    """Turn entries into class numbers.

    Args:
        entries: The entries of each row.
        classes: The classes; by default the names that occur, which are leaves if there is a
            taxonomy. With a taxonomy or lists of possible classes, classes that remain in no set
            are left out.
        rules: How entries become sets.
        order: How the names that occur are sorted.
        row: How an error message refers to a row.

    Returns:
        The sets and, if the entries have scores, their weights. Every set has at least one class.

    Raises:
        InputError: An entry cannot be understood, or a row is left without a candidate.
    """
    rules.check()
    known = set(classes or ())
    empty = np.diff(entries.indptr) == 0
    if rules.excluded is not None:
        empty &= np.diff(rules.excluded.indptr) == 0
    if empty.any() and rules.empty == "stop":
        raise InputError(
            no_candidates_error(row(int(np.argmax(empty))), int(empty.sum()), advice=empty_advice())
        )
    marked = any(
        name[:1] == EXCLUDES or name == EVERY for name in entries.names[: entries.n_marked]
    )
    extras = (rules.taxonomy, rules.excluded, rules.possible, entries.scores)
    if not marked and not empty.any() and all(extra is None for extra in extras):
        chosen = (
            order(list(dict.fromkeys(name for name in entries.names if name)))
            if classes is None
            else classes
        )
        found = names_to_numbers(*entries[:3], chosen, row)
        if classes is None:
            warn_of_similar_names(chosen, found.numbers)
        return WeightedSets(found, None)

    columns = {"candidate": _Column(entries, "candidate", row, rules.taxonomy, known)}
    if rules.excluded is not None:
        columns["excluded"] = _Column(rules.excluded, "excluded class", row, rules.taxonomy, known)
    possible = rules.possible
    if possible is not None:
        used = np.unique(possible.of_row[possible.of_row >= 0])
        columns["possible"] = _Column(
            possible.lists, "possible class", possible.row, rules.taxonomy, known, used
        )
    names: list[Any] = (
        _class_names(columns.values(), rules.taxonomy, order) if classes is None else list(classes)
    )
    if not names:
        raise InputError(
            f"No cell names a class, so it is not known what {row(0)} stands for: name the classes "
            "in some cells."
        )
    problem = _Problem(names, rules.check_size)
    for what, column in columns.items():
        column.expand(names, lenient=what == "possible")
    lists = None
    if possible is not None:
        lists = _Lists(problem.keys(columns["possible"], None, None, None, "stop")[0], possible)
    keys, weights = problem.keys(
        columns["candidate"], columns.get("excluded"), lists, entries.scores, rules.empty
    )
    rows, numbers = np.divmod(keys, len(names))
    if classes is None and (rules.taxonomy is not None or possible is not None):
        remaining, numbers = np.unique(numbers, return_inverse=True)
        names = [names[number] for number in remaining]
    if classes is None and rules.taxonomy is None:
        warn_of_similar_names(names, numbers)
    indptr = np.searchsorted(rows, np.arange(len(entries.indptr)))
    return WeightedSets(FlatSets(indptr, numbers, len(names), tuple(names)), weights)


class _Column:
    """The distinct entries of a column, each with the names of the classes and then the numbers of the classes that it stands for."""

    def __init__(
        self,
        entries: Entries,
        what: str,
        row: RowName,
        taxonomy: Taxonomy | None,
        known: set[Hashable],
        rows: Numbers | None = None,
    ) -> None:
        self.entries, self.what, self.row = entries, what, row
        used = np.zeros(len(entries.names), dtype=bool)
        used[entries.codes if rows is None else entries.codes[np.isin(entries.rows, rows)]] = True
        self.used = np.flatnonzero(used).tolist()
        self.marks: dict[int, _Mark] = {}
        self.members: dict[int, tuple[str, ...]] = {}
        for code in self.used:
            name = entries.names[code]
            literal = code >= entries.n_marked or name in known
            mark = _Mark(False, name) if literal else _mark(name)
            if mark.name == "":
                raise InputError(
                    f"{self._where(code)} has {shown(name)} without a name: write !dog for every "
                    "class but dog."
                )
            self.marks[code] = mark
            try:
                if mark.name is not None:
                    self.members[code] = (
                        (mark.name,) if taxonomy is None else taxonomy.members(mark.name)
                    )
            except InputError as error:
                raise InputError(f"{self._where(code)} has the {what} {error}.") from None

    def _where(self, code: int) -> str:
        return self.row(row_at(int(np.argmax(self.entries.codes == code)), self.entries.indptr))

    def expand(self, names: Sequence[Any], *, lenient: bool) -> None:
        """Look up the class numbers of all entries; names that are not classes are ignored if `lenient`, and refused otherwise."""
        number = {name: i for i, name in enumerate(names)}
        found: list[Numbers] = []
        every = np.arange(len(names))
        for code in self.used:
            if self.marks[code].name is None:
                found.append(every)
                continue
            numbers = [number[name] for name in self.members[code] if name in number]
            if not numbers and not lenient:
                raise InputError(
                    f"{self._where(code)} has the {self.what} "
                    f"{unknown_class_error(self.marks[code].name, names)}."
                )
            found.append(np.asarray(numbers, dtype=np.int64))
        sizes = np.zeros(len(self.entries.names), dtype=np.int64)
        sizes[self.used] = [len(numbers) for numbers in found]
        starts = np.zeros_like(sizes)
        starts[self.used] = np.cumsum([0, *map(len, found)])[:-1]
        self.sizes, self.starts = sizes, starts
        self.numbers = np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
        self.excludes, self.every = (np.zeros(len(sizes), dtype=bool) for _ in range(2))
        for code, mark in self.marks.items():
            self.excludes[code], self.every[code] = mark.excludes, mark.name is None


def _mark(entry: str) -> _Mark:
    """Interpret one entry of a text."""
    name = entry[1:].strip() if entry.startswith(EXCLUDES) else entry
    return _Mark(entry.startswith(EXCLUDES), None if name == EVERY else name)


def names_in(entries: Entries) -> list[str]:
    """The distinct names in the entries, without marks."""
    marks = [
        _mark(name) if code < entries.n_marked else _Mark(False, name)
        for code, name in enumerate(entries.names)
    ]
    return list(dict.fromkeys(mark.name for mark in marks if mark.name))


def _class_names(
    columns: Iterable[_Column],
    taxonomy: Taxonomy | None,
    order: Callable[[Sequence[str]], list[str]],
) -> list[str]:
    """All leaves of the taxonomy, or else all names that occur."""
    if taxonomy is not None:
        return order(taxonomy.leaves)
    return order(
        list(
            dict.fromkeys(
                name
                for column in columns
                for names in column.members.values()
                for name in names
                if name
            )
        )
    )


class _Lists(NamedTuple):
    """The possible classes of each list, as sorted keys, and which list each row has."""

    keys: Numbers
    possible: Possible


class _Problem:
    """Sets as sorted keys: row times the number of classes, plus the class number."""

    def __init__(self, names: Sequence[Any], check_size: Callable[[int], None] | None) -> None:
        self.names, self.n_classes, self.check_size = names, len(names), check_size

    def keys(
        self,
        column: _Column,
        excluded: _Column | None,
        lists: _Lists | None,
        scores: npt.NDArray[np.float64] | None,
        empty: str,
    ) -> tuple[Numbers, npt.NDArray[np.float64] | None]:
        """The sets of all rows of a column, and their weights."""
        entries, row = column.entries, column.row
        n_rows, rows, codes = len(entries.indptr) - 1, entries.rows, entries.codes
        out, every = column.excludes[codes], column.every[codes]
        named = ~out & ~every
        has = [np.bincount(rows[mask], minlength=n_rows) > 0 for mask in (named, ~out & every, out)]
        has_excluded = (
            has[2] if excluded is None else has[2] | (np.diff(excluded.entries.indptr) > 0)
        )
        full = has[1] | (~has[0] & (has_excluded | (empty == "all")))
        if scores is not None:
            mixed = np.flatnonzero(has[0] & has[1])
            if len(mixed):
                raise InputError(
                    f"{row(int(mixed[0]))} has both * and candidates with scores: give one of the "
                    "two."
                )
            zero = named & (scores == 0)
            dropped = np.flatnonzero(
                has[0] & (np.bincount(rows[named & ~zero], minlength=n_rows) == 0)
            )
            if len(dropped):
                raise InputError(
                    f"{row(int(dropped[0]))} has only candidates with the score 0: give one of "
                    "them a higher score, or drop the row."
                )
            named &= ~zero
        named &= ~full[rows]
        of_row = np.full(n_rows, -1) if lists is None else lists.possible.of_row
        removed = [(rows[out], codes[out], column)]
        if excluded is not None:
            removed.append((excluded.entries.rows, excluded.entries.codes, excluded))
        self._check(
            column.sizes[codes[named]].sum()
            + sum(of.sizes[which].sum() for _, which, of in removed),
            full,
            of_row,
            lists,
        )

        keys = self._expanded(rows[named], codes[named], column)
        weights = None
        if scores is not None:
            # A group shares its score among its classes.
            sizes = column.sizes[codes[named]]
            weights = np.repeat(scores[named] / np.maximum(sizes, 1), sizes)
        keys, weights = _merged(keys, weights, self._whole_sets(full, of_row, lists))
        minus = np.concatenate([self._expanded(*part) for part in removed])
        if len(minus):
            minus.sort()
            keys, weights = self._kept(
                keys, weights, ~_contains(minus, keys), n_rows, row, _excluded_error
            )
        if lists is not None and len(keys):
            at = of_row[keys // self.n_classes]
            allowed = (at < 0) | _contains(lists.keys, at * self.n_classes + keys % self.n_classes)

            def not_possible(i: int, names: str) -> str:
                where = lists.possible.where(int(of_row[i]))
                return f"has the candidates {names}, none of which is possible {where}: correct the set, or the possible classes"

            keys, weights = self._kept(keys, weights, allowed, n_rows, row, not_possible)
        return keys, weights

    def _check(
        self, n_named: Any, full: npt.NDArray[np.bool_], of_row: Numbers, lists: _Lists | None
    ) -> None:
        n_full = int((full & (of_row < 0)).sum()) * self.n_classes
        if lists is not None:
            n_full += int(self._list_sizes(lists)[of_row[full & (of_row >= 0)]].sum())
        if self.check_size is not None:
            self.check_size(int(n_named) + n_full)

    def _list_sizes(self, lists: _Lists) -> Numbers:
        sizes: Numbers = np.bincount(
            lists.keys // self.n_classes, minlength=len(lists.possible.lists.indptr) - 1
        )
        return sizes

    def _expanded(self, rows: Numbers, codes: npt.NDArray[Any], column: _Column) -> Numbers:
        """The keys of some entries, in the order of the entries."""
        return rows.repeat(column.sizes[codes]) * self.n_classes + _gathered(
            column.numbers, column.starts[codes], column.sizes[codes]
        )

    def _whole_sets(
        self, full: npt.NDArray[np.bool_], of_row: Numbers, lists: _Lists | None
    ) -> Numbers:
        """The keys of rows that start from every class, or from every class that is possible there."""
        open_rows = np.flatnonzero(full & (of_row < 0))
        keys = (open_rows[:, None] * self.n_classes + np.arange(self.n_classes)).ravel()
        if lists is None:
            return keys
        limited = np.flatnonzero(full & (of_row >= 0))
        sizes = self._list_sizes(lists)
        starts = np.concatenate([[0], np.cumsum(sizes)])[of_row[limited]]
        sizes = sizes[of_row[limited]]
        numbers = _gathered(lists.keys, starts, sizes) % self.n_classes
        return np.concatenate([keys, limited.repeat(sizes) * self.n_classes + numbers])

    def _kept(
        self,
        keys: Numbers,
        weights: npt.NDArray[np.float64] | None,
        kept: npt.NDArray[np.bool_],
        n_rows: int,
        row: RowName,
        problem: Callable[[int, str], str],
    ) -> tuple[Numbers, npt.NDArray[np.float64] | None]:
        """Some of the keys; a row that loses all of them is refused."""
        rows = keys // self.n_classes
        left = np.bincount(rows[kept], minlength=n_rows)
        lost = np.unique(rows[left[rows] == 0])
        if len(lost):
            i = int(lost[0])
            names = format_names(
                [str(self.names[key % self.n_classes]) for key in keys[rows == i]], MOST_NAMES
            )
            more = f" ({len(lost)} such rows)" if len(lost) > 1 else ""
            raise InputError(f"{row(i)}{more} {problem(i, names)}.")
        return keys[kept], None if weights is None else weights[kept]


def _excluded_error(_: int, names: str) -> str:
    return f"excludes all of its candidates ({names}): correct the row, or drop it"


def _gathered(values: Numbers, starts: Numbers, sizes: Numbers) -> Numbers:
    """The values at `starts[i]:starts[i] + sizes[i]` for each i, one after the other."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    found: Numbers = values[np.arange(total) + np.repeat(starts - ends + sizes, sizes)]
    return found


def _contains(values: Numbers, wanted: Numbers) -> npt.NDArray[np.bool_]:
    """Whether each wanted key is one of the sorted values."""
    if not len(values):
        return np.zeros(len(wanted), dtype=bool)
    found: npt.NDArray[np.bool_] = (
        values[np.minimum(np.searchsorted(values, wanted), len(values) - 1)] == wanted
    )
    return found


def _merged(
    keys: Numbers, weights: npt.NDArray[np.float64] | None, whole: Numbers
) -> tuple[Numbers, npt.NDArray[np.float64] | None]:
    """Sorted and distinct keys of rows that name their candidates and of those that start from all classes, which weigh the same."""
    joined = np.concatenate([keys, whole])
    if weights is not None:
        distinct, where = np.unique(joined, return_inverse=True)
        summed: npt.NDArray[np.float64] = np.bincount(
            where, np.concatenate([weights, np.ones(len(whole))])
        ).astype(np.float64)
        return distinct, summed
    joined.sort(kind="stable")
    return joined[np.concatenate([[True], joined[1:] != joined[:-1]])] if len(
        joined
    ) else joined, None
