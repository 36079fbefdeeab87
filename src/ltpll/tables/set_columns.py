"""Set columns: candidate sets as text, as 0/1 columns or as one probability per class."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.candidates.cells import CollectedSets, Entries, RowName, TextSets
from ltpll.candidates.expressions import PLAIN_RULES, SetRules, WeightedSets, class_sets
from ltpll.candidates.scores import DEFAULT_SCORES, ROUNDING, chosen_by_scores, tempered
from ltpll.errors import InputError, shown
from ltpll.formatting import counted
from ltpll.tables.columns import (
    NotNumericError,
    not_a_number_error,
    parse_numbers,
    strings,
    texts,
)
from ltpll.tables.memory_limits import expansion_problem
from ltpll.tables.streaming import Table, TableBatch, is_list

BYTES_PER_LABEL = 16  # while sets are sorted, for each of two copies


class SetColumn(TextSets):
    """A column of cells such as `cat|dog` or JSON lists, or of the lists of a Parquet file."""

    def __init__(
        self, table: Table, index: int, separator: str, classes: Sequence[str] | None = None
    ) -> None:
        super().__init__(separator, table.row, classes)
        self.table, self.index, self.indices = table, index, [index]

    def add(self, batch: TableBatch) -> None:
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        column = batch.columns[self.index]
        if not is_list(column.type):
            self.add_cells(texts(self.table, batch, self.index), batch.first)
            return
        kind = column.type.value_type
        try:
            if pa.types.is_nested(kind):
                raise pa.ArrowNotImplementedError
            names = strings(column.flatten())
        except pa.ArrowException:
            raise InputError(
                f"The column {shown(self.table.names[self.index])} of {self.table.path} holds "
                f"lists of {kind}, some of which are not text: give lists of names in UTF-8."
            ) from None
        sizes = pc.fill_null(pc.list_value_length(column), 0)
        self.add_lists(names, sizes.to_numpy(zero_copy_only=False), batch.first)

    def candidates(
        self,
        classes: Sequence[str] | None,
        rules: SetRules = PLAIN_RULES,
        scores: str = DEFAULT_SCORES,
    ) -> Candidates:
        """The sets, with the sorted names that occur as classes unless others are given."""
        known = (*(classes or ()), *(rules.taxonomy.names if rules.taxonomy else ()))
        entries = self.entries(known)
        found = class_sets(entries, classes, rules, order=sorted_class_names, row=self.row)
        return weighted_candidates(found, scores, self.row)


class ClassColumns(CollectedSets):
    """One column of zeros and ones per class."""

    scored = False

    def __init__(self, table: Table, indices: Sequence[int], names: list[str]) -> None:
        super().__init__(table.row)
        self.table, self.indices, self.names = table, list(indices), names

    def add(self, batch: TableBatch) -> None:
        matrix = np.stack([self._column(batch, index) for index in self.indices], axis=1)
        rows, codes = np.nonzero(self._chosen(matrix))
        scores = matrix[rows, codes].astype(np.float64) if self.scored else None
        self.add_codes(rows, codes, batch.n_rows, scores)

    def _column(self, batch: TableBatch, index: int) -> npt.NDArray[np.float32]:
        try:
            values = parse_numbers(self.table, batch, index)
        except NotNumericError:
            words = [word.strip().lower() for word in texts(self.table, batch, index).to_pylist()]
            number = {"0": 0, "1": 1, "false": 0, "true": 1}
            values = np.asarray([number.get(word, np.nan) for word in words], dtype=np.float32)
        for i in np.flatnonzero((values != 0) & (values != 1))[:1].tolist():
            cell = texts(self.table, batch, index)[i].as_py()
            raise InputError(
                f"{self.table.row(batch.first + i)} holds {shown(cell)} in the class column "
                f"{shown(self.table.names[index])}, where only 0 and 1 are allowed: "
                "correct the cell, or read the columns as probabilities."
            )
        return values

    def _chosen(self, matrix: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        return matrix

    def candidates(
        self,
        classes: Sequence[str] | None,
        rules: SetRules = PLAIN_RULES,
        scores: str = DEFAULT_SCORES,
    ) -> Candidates:
        """The sets, with the columns' classes unless others are given."""
        if classes is None and rules.taxonomy is None:
            classes = self.names
        entries = Entries(*self.joined(), self.names, 0, self.joined_scores())
        return weighted_candidates(
            class_sets(entries, classes, rules, row=self.row), scores, self.row
        )


class ProbabilityColumns(ClassColumns):
    """One column of probabilities per class.

    Candidates are the `top_k` most likely classes, or the fewest that reach `mass`.
    """

    scored = True

    def __init__(
        self,
        table: Table,
        indices: Sequence[int],
        names: list[str],
        top_k: int | None,
        mass: float | None,
    ) -> None:
        super().__init__(table, indices, names)
        if top_k is not None and top_k > len(names):
            known = counted(len(names), "class", "classes")
            raise InputError(
                f"top_k is {top_k}, but {table.path} has probabilities of only {known}: lower it."
            )
        self.top_k, self.mass = top_k, mass

    def _column(self, batch: TableBatch, index: int) -> npt.NDArray[np.float32]:
        try:
            values = parse_numbers(self.table, batch, index)
            wrong = np.flatnonzero(~((values >= 0) & (values <= 1 + ROUNDING)))
            if len(wrong) and not np.isfinite(values[wrong[0]]):
                raise NotNumericError(int(wrong[0]))
        except NotNumericError as error:
            where = self.table, batch, index, error.position
            raise not_a_number_error(*where, "probability") from None
        if len(wrong):
            raise InputError(
                f"{self.table.row(batch.first + int(wrong[0]))} holds {values[wrong[0]]:.6g} in "
                f"the probability column {shown(self.table.names[index])}: probabilities lie "
                "between 0 and 1; turn scores into probabilities first."
            )
        return values

    def _chosen(self, matrix: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        return chosen_by_scores(matrix, self.top_k, self.mass)


# ---- candidates ----------------------------------------------------------------------------------


def weighted_candidates(found: WeightedSets, scores: str, row: RowName) -> Candidates:
    """The sets as candidates, with their scores as weights unless `scores` is "none"."""
    candidates = Candidates.from_flat(*found.sets, row=row)
    if found.weights is None or scores == "none":
        return candidates
    return candidates.with_weights(tempered(found.weights))


def check_set_memory(path: Path | str) -> Callable[[int], None]:
    """A check that refuses sets with more candidates than memory can hold."""

    def check(n_labels: int) -> None:
        reason = expansion_problem(BYTES_PER_LABEL * n_labels, BYTES_PER_LABEL * n_labels)
        if reason is not None:
            raise InputError(
                f"The sets of {path} would have {n_labels:,} candidates together, and {reason}: "
                "rows that stand for every class (*, empty cells, exclusions) take the most; limit "
                "their classes with --possible or --possible-at, or leave such rows out."
            )

    return check


# ---- class numbers -------------------------------------------------------------------------------


def sorted_class_names(names: Sequence[str]) -> list[str]:
    """Sort names, by value if all of them are whole numbers, so that 2 comes before 10."""
    if all(re.fullmatch(r"-?[0-9]{1,18}", name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)
