"""Streaming: tables read a few megabytes at a time, so that a file can be larger than memory."""

from __future__ import annotations

import csv
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ltpll.errors import InputError, first_line, printable, shown
from ltpll.formatting import counted, format_names
from ltpll.tables.dialect import find_dialect, without_apostrophes
from ltpll.tables.guarded import check_parquet, damaged_error

BLOCK = 4 << 20  # bytes of text that are read at a time, and the longest row
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")  # that are written; others are only read
ReadProgress = Callable[[int, int], None]
"""Called with the amount read so far and the total: bytes of text, rows of Parquet."""


@dataclass
class TableBatch:
    """Some rows of a table: `columns` holds a pyarrow array for each requested column number."""

    columns: Mapping[int, Any]
    n_rows: int
    done: int  # how much of the table is read with this batch, of `total`
    total: int
    decimal: str = "."  # the decimal mark of numbers that are texts
    first: int = 0  # row number

    @property
    def expected_rows(self) -> int:
        """An estimate for the whole table."""
        return int((self.first + self.n_rows) * self.total / self.done)


class Table(ABC):
    """Named columns; messages count rows from 1, below the header and without blank lines."""

    row_name, first_row = "Row {} of {}", 1
    notes: tuple[str, ...] = ()  # sentences about how the file is read

    def __init__(self, path: Path | str, names: Sequence[str], schema: Any = None) -> None:
        self.path = path  # a table in memory has a name instead
        self.names, self.schema = tuple(names), schema

    def describe_row(self, i: int) -> str:
        """How a message refers to row i, counted from 0."""
        return self.row_name.format(i + self.first_row, self.path)

    def numeric(self, index: int) -> bool | None:
        """Whether a column holds numbers; None if the file has no types."""
        import pyarrow as pa  # type: ignore[import-untyped]

        checks = pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal
        if self.schema is None:
            return None
        return any(check(self.schema.field(index).type) for check in checks)

    def holds_words(self, index: int) -> bool:
        """Whether a column holds text, dates or truth values, and not lists or bytes."""
        import pyarrow as pa

        if self.schema is None:
            return True
        kind = self.schema.field(index).type
        return not (pa.types.is_nested(kind) or pa.types.is_binary(kind))

    @abstractmethod
    def _batches(self, columns: Sequence[int]) -> Iterator[TableBatch]: ...

    def row_batches(
        self, columns: Sequence[int], on_progress: ReadProgress | None = None
    ) -> Iterator[TableBatch]:
        """Read the rows in order; only the given columns are converted."""
        n_rows = 0
        for batch in self._batches(sorted(set(columns)) or [0]):
            batch.first = n_rows
            n_rows += batch.n_rows
            if batch.n_rows:
                yield batch
            if on_progress is not None:
                on_progress(batch.done, batch.total)
        if n_rows == 0:
            raise InputError(f"{self.path} has no rows below a header: give at least one example.")

    def column(self, name: str, advice: str = "") -> int:
        """The number of the column of this name, which must be unique; `advice` ends a refusal."""
        if self.names.count(name) == 1:
            return self.names.index(name)
        if name in self.names:
            raise InputError(
                f"{self.path} has several columns called {shown(name)}: rename all but one."
            )
        lower = {known.lower(): known for known in reversed(self.names)}
        guess = get_close_matches(name.lower(), lower, n=1)
        meant = f" (did you mean {shown(lower[guess[0]])}?)" if guess else ""
        end = advice and f"; {advice}"
        raise InputError(
            f"{self.path} has no column called {shown(name)}{meant}: "
            f"it has {format_names(self.names)}{end}."
        )


def require_file(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a table: give a file in it.")
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty: it has no header with column names.")


# ---- text ----------------------------------------------------------------------------------------


class TextTable(Table):
    """UTF-8 text with a header; cells may be quoted; columns are bytes."""

    row_name = "Row {} below the header of {}"
    path: Path

    def __init__(self, path: Path, usual: str) -> None:
        self.delimiter, self.decimal = find_dialect(path, usual)
        names, self.rows_above = _read_header(path, self.delimiter)
        super().__init__(path, names)
        mark = "a tab" if self.delimiter == "\t" else repr(self.delimiter)
        unusual = [f"{mark} between columns"] if self.delimiter != usual else []
        unusual += ["',' as decimal mark"] if self.decimal == "," else []
        self.notes = (f"Read with {' and '.join(unusual)}.",) if unusual else ()

    def _batches(self, columns: Sequence[int]) -> Iterator[TableBatch]:
        import pyarrow as pa
        from pyarrow import csv as arrow

        labels = [str(i) for i in range(len(self.names))]  # names may occur twice
        options = (
            # One thread is no slower, and only then does pyarrow number a row of the wrong length.
            arrow.ReadOptions(
                column_names=labels,
                skip_rows_after_names=self.rows_above,
                block_size=BLOCK,
                use_threads=False,
            ),
            arrow.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            arrow.ConvertOptions(
                include_columns=[*(labels[i] for i in columns), labels[-1]],
                column_types=dict.fromkeys(labels, pa.binary()),
                strings_can_be_null=False,
            ),
        )
        total = self.path.stat().st_size
        first, last_cell = 0, b""
        try:
            # A path and not a file: threads of pyarrow that needed Python would abort the process
            # if they were still at work when Python ends.
            for i, batch in enumerate(arrow.open_csv(str(self.path), *options)):
                found = {
                    index: without_apostrophes(batch.column(j)) for j, index in enumerate(columns)
                }
                done = min((i + 1) * BLOCK, total)
                yield TableBatch(found, batch.num_rows, done, total, self.decimal)
                first += batch.num_rows
                if batch.num_rows:
                    last_cell = batch.column(len(columns))[-1].as_py()
        except pa.ArrowInvalid as error:
            raise self._refusal(str(error), first) from None
        if _leaves_quote_open(self.path, last_cell):
            raise InputError(
                f'{self.path} cannot be read as a table: a quote (") is never closed; close it or '
                "double it."
            )

    def _refusal(self, reason: str, first: int) -> InputError:
        match = re.search(r"Row #(\d+): Expected \d+ columns, got (\d+)", reason)
        if match is not None:
            mark = {"\t": "tab", ";": "semicolon"}.get(self.delimiter, "comma")
            return InputError(
                f"The header of {self.path} has {counted(len(self.names), 'column')}, but row "
                f"{int(match[1]) - self.rows_above} below it has {match[2]}: "
                f"close open quotes, quote cells that contain a {mark}, or correct the row."
            )
        if "straddl" in reason:
            reason = (
                f"after row {first} below the header a row is longer than {BLOCK >> 20} MiB; "
                'usually because a quote (") is never closed'
            )
        return InputError(f"{self.path} cannot be read as a table: {printable(reason)[:200]}.")


def _leaves_quote_open(path: Path, last_cell: bytes) -> bool:
    """Whether the quote before the last cell of a file is never closed, which pyarrow accepts."""
    with path.open("rb") as file:
        file.seek(-min(BLOCK, path.stat().st_size), io.SEEK_END)
        end = file.read().rstrip()
    closed = (len(end) - len(end.rstrip(b'"'))) % 2 == 1  # those inside a cell are doubled
    is_open = b"\n" in last_cell or (last_cell and end.endswith(b'"' + last_cell))
    return bool(is_open and not closed)


def _read_header(path: Path, delimiter: str) -> tuple[list[str], int]:
    """The names of the columns, and the number of rows above the data, of which some are blank."""
    import pyarrow as pa

    try:
        # Columns that are not requested may contain bytes that are not UTF-8.
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            lines = iter(lambda: file.readline(BLOCK), "")
            for n_rows, row in enumerate(csv.reader(lines, delimiter=delimiter, strict=True), 1):
                if any(cell.strip() for cell in row):
                    if "\0" in "".join(row):
                        raise csv.Error("it holds a NUL byte")
                    names = pa.array([name.strip().encode("utf-8") for name in row])
                    return without_apostrophes(names).cast(pa.string()).to_pylist(), n_rows
    except (csv.Error, UnicodeError) as error:
        reason = "not UTF-8" if isinstance(error, UnicodeError) else first_line(error)
        raise InputError(
            f"The header of {path} cannot be read ({reason}): save the file as UTF-8 text."
        ) from None
    raise InputError(f"{path} has no rows below a header: all lines are empty.")


# ---- tables with types ---------------------------------------------------------------------------


class ParquetTable(Table):
    """A Parquet file, whose columns have types."""

    path: Path

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        check_parquet(path)
        with pq.ParquetFile(path) as file:
            self.n_rows = file.metadata.num_rows
            super().__init__(path, file.schema_arrow.names, file.schema_arrow)

    def _batches(self, columns: Sequence[int]) -> Iterator[TableBatch]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = [self.names[i] for i in columns]
        for name in names:
            self.column(name)  # pyarrow reads columns by name, which must be unique
        check_parquet(self.path, names)
        size = max(1 << 10, min(1 << 16, (4 << 20) // max(len(names), 1)))
        done = 0
        try:
            with pq.ParquetFile(self.path) as file:
                for batch in file.iter_batches(batch_size=size, columns=names):
                    batch.validate(full=True)  # finds text that is not UTF-8
                    found = {i: batch.column(name) for i, name in zip(columns, names, strict=True)}
                    done += batch.num_rows
                    yield TableBatch(found, batch.num_rows, done, self.n_rows)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise damaged_error("parquet", self.path, error) from None


class ArrowTable(Table):
    """A table in memory; its rows are counted from 0."""

    row_name, first_row = "Row {} (counted from 0) of {}", 0

    def __init__(
        self, table: Any, name: Path | str, row: Callable[[int], str] | None = None
    ) -> None:
        self.table, self.row = table, row
        super().__init__(name, table.column_names, table.schema)

    def describe_row(self, i: int) -> str:
        return super().describe_row(i) if self.row is None else self.row(i)

    def _batches(self, columns: Sequence[int]) -> Iterator[TableBatch]:
        done = 0
        for batch in self.table.select(list(columns)).to_batches(max_chunksize=1 << 16):
            found = dict(zip(columns, batch.columns, strict=True))
            done += batch.num_rows
            yield TableBatch(found, batch.num_rows, done, self.table.num_rows)
