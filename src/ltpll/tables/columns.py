"""Columns: cells converted to texts, numbers and features in batches; messages name the cell."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ltpll.candidates.cells import NameCodes
from ltpll.errors import InputError, InputWarning, option, shown
from ltpll.formatting import are, counted, format_names
from ltpll.number_types import blurred_by_float32
from ltpll.tables.dialect import COMMA_NUMBER, NUMBER
from ltpll.tables.streaming import ReadProgress, Table, TableBatch

Array = npt.NDArray[Any]
# How people and programs write a missing number.
MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "-", "?")
FEW_LEVELS = 20  # distinct cells, at most, of numbers and words that are levels
LEVEL_ROWS, LEVEL_SHARE = 5, 0.01  # at least, in which each of the words is


class NotNumericError(Exception):
    """A cell, at this position of the batch, is not a number."""

    def __init__(self, position: int) -> None:
        self.position = position


def strings(column: Any) -> Any:
    """Convert a pyarrow array that is not nested to strings; nulls become empty strings."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())  # few functions support float16
    if pa.types.is_floating(column.type):
        # pandas, for example, writes whole numbers with gaps as floats: 1.0 means 1.
        column = pc.if_else(pc.is_nan(column), None, column)
        whole = pc.and_(pc.equal(column, pc.trunc(column)), pc.less(pc.abs(column), 2.0**53))
        if pc.all(whole).as_py() is not False:
            column = column.cast(pa.int64())
    return pc.fill_null(column.cast(pa.string()), "")


def texts(table: Table, batch: TableBatch, index: int) -> Any:
    """A column of a batch as an array of strings."""
    import pyarrow as pa

    column, name = batch.columns[index], shown(table.names[index])
    if pa.types.is_nested(column.type):
        raise InputError(
            f"The column {name} of {table.path} holds {column.type}, not text: "
            "write one value per cell, as text."
        )
    try:
        return strings(column)
    except pa.ArrowException:
        row = _first_wrong(column, pa.string())
        raise InputError(
            f"{table.describe_row(batch.first + row)} is not UTF-8 text in the column {name}: "
            "save the file as UTF-8."
        ) from None


def _first_wrong(cells: Any, kind: Any) -> int:
    """The position of the first cell that cannot be converted to a type."""
    import pyarrow as pa

    for i, cell in enumerate(cells):
        try:
            cell.cast(kind).validate(full=True)
        except pa.ArrowException:
            return i
    return 0


id_key = str.strip
"""What ids are compared by, in every file: blanks around them do not count."""


class BatchReader(Protocol):
    """Whatever collects some columns of a table, batch by batch."""

    indices: list[int]

    def add_batch(self, batch: TableBatch) -> None: ...


class TextColumn:
    """The texts of a column; with `repeated`, stripped, and each distinct one is stored once."""

    def __init__(self, table: Table, index: int, *, repeated: bool = False) -> None:
        self.table, self.index, self.repeated = table, index, repeated
        self.indices = [index]
        self.names = NameCodes()
        self._parts: list[Any] = []

    def add_batch(self, batch: TableBatch) -> None:
        found = texts(self.table, batch, self.index)
        self._parts.append(self.names.encode(found) if self.repeated else found)

    def codes(self) -> npt.NDArray[np.int32]:
        return np.concatenate(self._parts)

    def values(self) -> npt.NDArray[np.object_]:
        if self.repeated:
            return np.asarray(self.names.names, dtype=object)[self.codes()]
        return np.concatenate([part.to_numpy(zero_copy_only=False) for part in self._parts])

    def _keys(self) -> Any:
        """The texts as ids are compared, in Arrow, which takes a tenth of the time of Python."""
        import pyarrow as pa
        import pyarrow.compute as pc

        return pc.utf8_trim_whitespace(pa.chunked_array(self._parts, pa.string()))

    def non_empty_values(self, advice: str) -> npt.NDArray[np.object_]:
        """The texts, none of which may be empty; a refusal ends with the advice."""
        empty = -1
        if self.repeated:
            found = np.flatnonzero(self.codes() == self.names.number.get("", -1))
            empty = int(found[0]) if len(found) else -1
        else:
            empty = self._keys().index("").as_py()
        if empty >= 0:
            name = shown(self.table.names[self.index])
            row = self.table.describe_row(empty)
            raise InputError(f"{row} is empty in the column {name}: {advice}.")
        return self.values()

    def unique_values(self) -> npt.NDArray[np.object_]:
        """The texts, which must be distinct and not empty, as the names of the examples."""
        values = self.non_empty_values("name every example")
        if len(self._keys().unique()) < len(values):
            first: dict[str, int] = {}
            keys = map(id_key, values)
            i = next(i for i, key in enumerate(keys) if first.setdefault(key, i) != i)
            earlier = self.table.describe_row(first[id_key(values[i])]).replace("Row", "row", 1)
            raise InputError(
                f"{self.table.describe_row(i)} has {shown(values[i])} in the column "
                f"{shown(self.table.names[self.index])}, and so has {earlier}: "
                "names must be distinct; rename or drop one of the two, or add a column of ids."
            )
        return values


def read_rows(
    table: Table, columns: Iterable[BatchReader], on_progress: ReadProgress | None = None
) -> int:
    """Read all rows of a table into these columns, and return how many there are."""
    readers, n_rows = list(columns), 0
    indices = [index for reader in readers for index in reader.indices]
    for batch in table.row_batches(indices, on_progress):
        n_rows += batch.n_rows
        for reader in readers:
            reader.add_batch(batch)
    return n_rows


# ---- numbers -------------------------------------------------------------------------------------


def parse_numbers(table: Table, batch: TableBatch, index: int) -> npt.NDArray[np.float64]:
    """A column of a batch as numbers, NaN where one is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = batch.columns[index]
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if kind in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string()):
        if batch.decimal != ",":
            with suppress(pa.ArrowException):
                # Bytes are parsed without checking for UTF-8, since other text is not a number either.
                plain = column.view(pa.string()) if kind == pa.binary() else column
                return plain.cast(pa.float64()).to_numpy()  # type: ignore[no-any-return]
        return _parsed(texts(table, batch, index), batch.decimal)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif not pa.types.is_decimal(kind) and not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind)
    ):
        raise NotNumericError(0)
    found = pc.fill_null(column.cast(pa.float64(), safe=False), np.nan)
    return found.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _parsed(cells: Any, decimal: str) -> npt.NDArray[np.float64]:
    """Parse numbers with surrounding blanks, decimal commas or missing values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(cells)
    missing = pc.is_in(pc.utf8_lower(trimmed), pa.array(MISSING))
    trimmed = pc.if_else(missing, "nan", trimmed)
    if decimal == ",":  # then a point may separate thousands
        point = pc.match_substring(trimmed, ".")
        trimmed = pc.if_else(point, "a point", pc.replace_substring(trimmed, ",", "."))
    try:
        return trimmed.cast(pa.float64()).to_numpy()  # type: ignore[no-any-return]
    except pa.ArrowInvalid:
        raise NotNumericError(_first_wrong(trimmed, pa.float64())) from None


def not_a_number_error(
    table: Table, batch: TableBatch, index: int, position: int, what: str, *, chosen: bool = True
) -> InputError:
    """The error about a cell of a column that was `chosen` by name or found to hold numbers."""
    cell = batch.columns[index][position].as_py()
    cell = cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell or "")
    unclear = batch.decimal != "." and re.fullmatch(COMMA_NUMBER, cell.strip())
    why = "whose marks are unclear," if unclear else "which is not a finite number,"
    holds = f"holds {shown(cell)}, {why}" if cell.strip() else "is empty"
    name = table.names[index]
    by_option = "" if chosen else f" with {option('ignore', (name,))}"
    return InputError(
        f"{table.describe_row(batch.first + position)} {holds} in the {what} column {shown(name)}: "
        f"correct the cell, drop the row, or omit the column{by_option}."
    )


def numeric_columns(table: Table, indices: Sequence[int]) -> list[int]:
    """Find the columns that hold numbers, judging by the file's types or else by its first rows.

    Raises:
        InputError: Most cells of a column are numbers, and the others seem to be typos.
    """
    unsure = [index for index in indices if table.numeric(index) is None]
    found = [index for index in indices if table.numeric(index)]
    batch = next(table.row_batches(unsure)) if unsure else None
    for index in unsure:
        assert batch is not None
        try:
            parse_numbers(table, batch, index)
            found.append(index)
        except NotNumericError as error:
            if _hides_a_typo(texts(table, batch, index), batch.decimal):
                where = table, batch, index, error.position
                raise not_a_number_error(*where, "numeric", chosen=False) from None
    return found


def _hides_a_typo(cells: Any, decimal: str) -> bool:
    """Whether most cells are numbers, with whichever decimal mark, and words too rare for levels."""
    pattern = re.compile(NUMBER if decimal == "." else f"{NUMBER}|{COMMA_NUMBER}")
    rows = Counter(cell.strip() for cell in cells.to_pylist())
    known = {cell: n for cell, n in rows.items() if cell.lower() not in MISSING}
    words = [n for cell, n in known.items() if not pattern.fullmatch(cell)]
    total = sum(known.values())
    return 2 * sum(words) < total and not are_levels(len(known), words, total)


def are_levels(n_distinct: int, words: Sequence[int], total: int) -> bool:
    """Whether numbers and words are levels, such as 2, 3, 4 and "5 or more", and none a mistake.

    `words` are the rows of each word, and `total` those of all cells.
    """
    return n_distinct <= FEW_LEVELS and min(words, default=0) >= max(
        LEVEL_ROWS, LEVEL_SHARE * total
    )


def read_texts(table: Table, names: Sequence[str]) -> list[list[str]]:
    """The texts of some columns, without blanks around them."""
    columns = [TextColumn(table, table.column(name), repeated=True) for name in names]
    read_rows(table, columns)
    return [column.values().tolist() for column in columns]


class FeatureColumns:
    """Features, (N, d), from columns that were `chosen` by name or found to be numeric.

    A numeric column with text is refused rather than dropped, since it is probably intended as a
    feature, and so is one with missing values unless `gaps` are allowed, which become NaN; one
    without any number is dropped with a warning. Features are float32, unless that would blur them
    (`blurred_by_float32`) or they shall be `exact`.
    """

    def __init__(
        self,
        table: Table,
        indices: Sequence[int],
        *,
        chosen: bool,
        exact: bool = False,
        gaps: bool = False,
    ) -> None:
        self.table, self.indices, self.chosen, self.gaps = table, list(indices), chosen, gaps
        self._rows = np.empty((0, len(indices)), dtype=np.float64 if exact else np.float32)
        self._n = 0
        self._low, self._high = np.full(len(indices), np.inf), np.full(len(indices), -np.inf)
        self._missing: dict[int, InputError] = {}

    def add_batch(self, batch: TableBatch) -> None:
        self._reserve(batch)
        block = self._rows[self._n : self._n + batch.n_rows]
        self._n += batch.n_rows
        for j, index in enumerate(self.indices):
            try:
                values = parse_numbers(self.table, batch, index)
            except NotNumericError as error:
                raise self._refusal(batch, index, error.position) from None
            with np.errstate(over="ignore"):
                block[:, j] = values
            finite = np.isfinite(values)
            self._low[j] = values.min(initial=self._low[j], where=finite)
            self._high[j] = values.max(initial=self._high[j], where=finite)
            allowed = finite | np.isnan(values) if self.gaps else finite
            if not allowed.all():
                refusal = self._refusal(batch, index, int(np.argmin(allowed)))
                if self.chosen:
                    raise refusal
                self._missing.setdefault(j, refusal)

    def _refusal(self, batch: TableBatch, index: int, position: int) -> InputError:
        where = self.table, batch, index, position
        return not_a_number_error(*where, "feature", chosen=self.chosen)

    def _reserve(self, batch: TableBatch) -> None:
        """Allocate rows for the batch, generously: memory is only used once it is written."""
        needed = self._n + batch.n_rows
        if needed > len(self._rows):
            room = max(needed + needed // 4, int(batch.expected_rows * 1.1))
            rows = np.empty((room, len(self.indices)), dtype=self._rows.dtype)
            rows[: self._n] = self._rows[: self._n]
            self._rows = rows

    def matrix_and_names(self) -> tuple[npt.NDArray[Any] | None, tuple[str, ...]]:
        seen = self._low <= self._high
        empty = [shown(self.table.names[self.indices[j]]) for j in np.flatnonzero(~seen)]
        if empty:
            warnings.warn(
                f"{self.table.path} has no finite number in {counted(len(empty), 'column')}, which "
                f"{are(len(empty))} left out of the features: {format_names(empty)}.",
                InputWarning,
                stacklevel=2,
            )
        keep = np.flatnonzero(seen).tolist()
        for j in keep:
            if j in self._missing:
                raise self._missing[j]
        names = tuple(self.table.names[self.indices[j]] for j in keep)
        if not names:
            return None, ()
        if self._rows.dtype == np.float32 and blurred_by_float32(self._low[keep], self._high[keep]):
            self._rows = self._rows[:0].copy()  # frees the memory for the doubles
            how = {"chosen": self.chosen, "exact": True, "gaps": self.gaps}
            again = FeatureColumns(self.table, [self.indices[j] for j in keep], **how)
            read_rows(self.table, [again])
            return again.matrix_and_names()
        if len(keep) < len(self.indices):
            return self._rows[: self._n, keep], names
        self._rows.resize((self._n, len(self.indices)), refcheck=False)
        return self._rows, names
