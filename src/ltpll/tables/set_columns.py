"""Set columns: candidate sets as text, as 0/1 columns or as one probability per class."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates.cells import EVERY, EXCLUDES, CollectedSets, TextSets, names_to_numbers
from ltpll.candidates.expressions import SetRules, class_sets
from ltpll.candidates.parsing import ROUNDING, chosen_by_scores
from ltpll.candidates.votes import AnnotatorVotes, drop_repeated_votes
from ltpll.errors import InputError, shown
from ltpll.formatting import counted
from ltpll.tables.columns import NotNumericError, not_a_number_error, parse_numbers, strings, texts
from ltpll.tables.memory_limits import expansion_problem
from ltpll.tables.streaming import Table, TableBatch

if TYPE_CHECKING:
    from ltpll.candidates import Candidates

BYTES_PER_LABEL = 16  # while sets are sorted, for each of two copies


class SetColumns(TextSets):
    """Columns of cells such as `cat|dog` or JSON lists, or of the lists of a Parquet file.

    The cells of a row are read like one cell. Where none of them holds more than a name, several
    columns are the votes of as many annotators.
    """

    def __init__(self, table: Table, indices: Sequence[int], separator: str) -> None:
        super().__init__(separator, table.describe_row)
        self.table, self.indices = table, list(indices)
        self._columns: list[npt.NDArray[np.int64]] = []  # of each entry
        self._most = 0  # entries in a cell

    def add_batch(self, batch: TableBatch) -> None:
        for index in self.indices:
            self._add_column(batch, index)
        n = len(self.indices)
        if n == 1:
            return
        sizes, codes, scores = self._sizes[-n:], self._codes[-n:], self._scores[-n:]
        rows = np.concatenate([np.repeat(np.arange(batch.n_rows), size) for size in sizes])
        by_row = np.argsort(rows, kind="stable")
        self._sizes[-n:] = [np.sum(sizes, axis=0)]
        self._codes[-n:] = [np.concatenate(codes)[by_row]]
        self._scores[-n:] = [None]
        if any(one is not None for one in scores):
            filled = zip(codes, scores, strict=True)
            parts = [np.full(len(c), np.nan) if s is None else s for c, s in filled]
            self._scores[-1] = np.concatenate(parts)[by_row]
        self._columns.append(np.repeat(np.arange(n), [size.sum() for size in sizes])[by_row])
        self._most = max(self._most, *(size.max(initial=0) for size in sizes))

    def votes(self, classes: Sequence[Any]) -> AnnotatorVotes | None:
        """The names as the votes of annotators, called like the columns; None if some of them are not.

        Every row must have a vote.
        """
        if len(self.indices) == 1 or self._most > 1:
            return None
        found = self.entries(classes)
        marked = found.names[: found.n_marked]
        is_set = any(name not in classes and name[:1] in (EXCLUDES, EVERY) for name in marked)
        if is_set or found.scores is not None or not np.diff(found.indptr).all():
            return None
        numbers = names_to_numbers(*found[:3], classes, self.row).numbers
        present, annotators = np.unique(np.concatenate(self._columns), return_inverse=True)
        names = tuple(self.table.names[self.indices[i]] for i in present)
        return AnnotatorVotes(*drop_repeated_votes(found.rows, annotators, numbers), names)

    def _add_column(self, batch: TableBatch, index: int) -> None:
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        column = batch.columns[index]
        is_list = pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list
        if not any(check(column.type) for check in is_list):
            self.add_cells(texts(self.table, batch, index), batch.first)
            return
        kind = column.type.value_type
        try:
            if pa.types.is_nested(kind):
                raise pa.ArrowNotImplementedError
            names = strings(column.flatten())
        except pa.ArrowException:
            raise InputError(
                f"The column {shown(self.table.names[index])} of {self.table.path} holds "
                f"lists of {kind}, some of which are not text: give lists of names in UTF-8."
            ) from None
        sizes = pc.fill_null(pc.list_value_length(column), 0)
        self.add_lists(names, sizes.to_numpy(zero_copy_only=False))


class ClassColumns(CollectedSets):
    """One column per class, of zeros and ones or, with `top_k` or `mass`, of probabilities.

    With probabilities, candidates are the `top_k` most likely classes, or the fewest that reach
    `mass`.
    """

    def __init__(
        self,
        table: Table,
        indices: Sequence[int],
        names: list[str],
        top_k: int | None = None,
        mass: float | None = None,
    ) -> None:
        super().__init__(table.describe_row)
        if top_k is not None and top_k > len(names):
            known = counted(len(names), "class", "classes")
            raise InputError(
                f"top_k is {top_k}, but {table.path} has probabilities of only {known}: lower it."
            )
        self.table, self.indices, self.names = table, list(indices), names
        self.top_k, self.mass = top_k, mass
        self.kind = "class" if top_k is None and mass is None else "probability"

    def add_batch(self, batch: TableBatch) -> None:
        matrix = np.stack([self._checked_numbers(batch, index) for index in self.indices], axis=1)
        if self.kind == "class":
            rows, codes = np.nonzero(matrix)
            self.add_codes(rows, codes, batch.n_rows)
            return
        rows, codes = np.nonzero(chosen_by_scores(matrix, self.top_k, self.mass))
        self.add_codes(rows, codes, batch.n_rows, matrix[rows, codes])

    def _checked_numbers(self, batch: TableBatch, index: int) -> npt.NDArray[np.float64]:
        try:
            values = parse_numbers(self.table, batch, index)
        except NotNumericError as error:
            if self.kind == "probability":
                where = self.table, batch, index, error.position
                raise not_a_number_error(*where, self.kind) from None
            words = [word.strip().lower() for word in texts(self.table, batch, index).to_pylist()]
            number = {"0": 0, "1": 1, "false": 0, "true": 1}
            values = np.asarray([number.get(word, np.nan) for word in words], dtype=np.float64)
        allowed, right = "0 and 1 are", (values == 0) | (values == 1)
        if self.kind == "probability":
            allowed = "probabilities from 0 to 1 are"
            right = (values >= 0) & (values <= 1 + ROUNDING)
        for i in np.flatnonzero(~right)[:1].tolist():
            cell = texts(self.table, batch, index)[i].as_py()
            raise InputError(
                f"{self.table.describe_row(batch.first + i)} holds {shown(cell)} in the {self.kind} "
                f"column {shown(self.table.names[index])}, where only {allowed} allowed: correct "
                "the cell, or drop the row."
            )
        return values


def candidates_in(
    sets: SetColumns | ClassColumns, classes: Sequence[str] | None, rules: SetRules, scores: str
) -> Candidates:
    """The sets; the classes are those given, or else the columns or the sorted names that occur."""
    order: Callable[[Sequence[str]], list[str]] = sorted
    if isinstance(sets, SetColumns):
        known = (*(classes or ()), *(rules.taxonomy.names if rules.taxonomy else ()))
        entries, order = sets.entries(known), sorted_class_names
    else:
        entries = sets.joined(sets.names)
        if classes is None and rules.taxonomy is None:
            classes = sets.names
    found = class_sets(entries, classes, rules, order=order, row=sets.row)
    from ltpll.candidates import Candidates  # torch, which takes seconds: errors come before it

    return Candidates.from_sets(found, sets.row, scores)


def check_set_memory(path: Path | str, n_labels: int) -> None:
    """Refuse sets with more candidates than memory can hold."""
    reason = expansion_problem(BYTES_PER_LABEL * n_labels, BYTES_PER_LABEL * n_labels)
    if reason is not None:
        raise InputError(
            f"The sets of {path} would have {n_labels:,} candidates together, and {reason}: rows "
            "that stand for every class (*, empty cells, exclusions) take the most; leave such "
            "rows out."
        )


def sorted_class_names(names: Sequence[str]) -> list[str]:
    """Sort names, by value if all of them are whole numbers, so that 2 comes before 10."""
    if all(re.fullmatch(r"-?[0-9]{1,18}", name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)
