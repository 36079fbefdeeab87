"""Streaming: tables read a few megabytes at a time, so that a file can be larger than memory."""

from __future__ import annotations

import codecs
import csv
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates.arrow import arrow_table
from ltpll.errors import InputError, first_line, printable, shown
from ltpll.formatting import counted, format_names
from ltpll.tables.dialect import NO_TEXT, find_dialect
from ltpll.tables.formulas import without_apostrophes
from ltpll.tables.guarded import parquet_sizes
from ltpll.tables.memory_limits import ALWAYS, check_expansion

BLOCK = 4 << 20  # bytes of text that are read at a time, and the longest row
LINE_ENDS = b"\n\r"  # a single \r ends rows only where there is no \n
FEWER = "write fewer rows or columns, or write it without compression"
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")  # that are written; others are only read
ReadProgress = Callable[[int, int], None]
"""Called with the amount read so far and the total: bytes of text, rows of Parquet."""


@dataclass(frozen=True)
class TableBatch:
    """Some rows of a table: `columns` holds a pyarrow array for each requested column number."""

    first: int  # row number
    n_rows: int
    columns: Mapping[int, Any]
    expected_rows: int  # an estimate for the whole table
    decimal: str = "."  # the decimal mark of numbers that are texts


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
    def _batches(
        self, columns: Sequence[int], on_progress: ReadProgress | None
    ) -> Iterator[TableBatch]: ...

    def row_batches(
        self, columns: Sequence[int], on_progress: ReadProgress | None = None
    ) -> Iterator[TableBatch]:
        """Read the rows in order; only the given columns are converted."""
        n_rows = 0
        for batch in self._batches(sorted(set(columns)) or [0], on_progress):
            n_rows += batch.n_rows
            yield batch
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
        dialect = find_dialect(path, usual)
        names, self.start = _read_header(path, dialect.delimiter)
        super().__init__(path, names)
        self.delimiter, self.decimal = dialect
        self.notes = dialect.notes(usual)

    def _batches(
        self, columns: Sequence[int], on_progress: ReadProgress | None
    ) -> Iterator[TableBatch]:
        import pyarrow as pa
        from pyarrow import csv as arrow

        labels = [str(i) for i in range(len(self.names))]  # names may occur twice
        options = (
            # One thread is no slower, and only then does pyarrow number a row of the wrong length.
            arrow.ReadOptions(column_names=labels, block_size=BLOCK + 1, use_threads=False),
            arrow.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            arrow.ConvertOptions(
                include_columns=[labels[i] for i in columns],
                column_types=dict.fromkeys(labels, pa.binary()),
                strings_can_be_null=False,
            ),
        )
        total = self.path.stat().st_size - self.start
        first = done = 0
        for rows in self._whole_rows():
            if rows is None:
                raise self._unreadable(
                    f"after row {first} below the header a row is longer than {BLOCK >> 20} MiB; "
                    'usually because a quote (") is never closed'
                )
            done += rows.size
            try:
                table = arrow.read_csv(pa.BufferReader(rows), *options)
            except pa.ArrowInvalid as error:
                raise self._refusal(str(error), first) from None
            apostrophes = (np.frombuffer(rows, dtype=np.uint8) == ord("'")).any()
            for batch in table.to_batches():
                found = {index: batch.column(j) for j, index in enumerate(columns)}
                if apostrophes:
                    found = {index: without_apostrophes(cells) for index, cells in found.items()}
                n_rows = batch.num_rows
                expected = int((first + n_rows) * total / done)
                yield TableBatch(first, n_rows, found, expected, self.decimal)
                first += n_rows
            if on_progress is not None:
                on_progress(done, total)

    def _whole_rows(self) -> Iterator[Any]:
        """The bytes below the header in buffers that end where a row does; None if it is too long.

        They are memory of pyarrow, whose threads would otherwise need Python, which aborts if one
        of them is still at work when it ends.
        """
        import pyarrow as pa

        rest, position = b"", 0
        with self.path.open("rb") as file:
            file.seek(self.start)
            while True:
                buffer = pa.allocate_buffer(BLOCK)
                block = np.frombuffer(buffer, dtype=np.uint8)
                block[: len(rest)] = np.frombuffer(rest, dtype=np.uint8)
                size = len(rest) + file.readinto(block[len(rest) :])  # type: ignore[arg-type]
                block = block[:size]
                ended = size < BLOCK
                nul = np.flatnonzero(block == 0)
                if len(nul):
                    place = self.start + position + int(nul[0])
                    raise self._unreadable(f"it holds a NUL byte at position {place}")
                end, is_open = _last_row_end(block, self.delimiter)
                end = size if ended else end
                if end == 0 and not ended:
                    yield None
                if block[:end].tobytes().strip(LINE_ENDS):  # pyarrow refuses text without rows
                    yield buffer.slice(0, end)
                if ended and is_open:
                    raise self._unreadable('a quote (") is never closed; close it or double it')
                if ended:
                    return
                rest, position = block[end:].tobytes(), position + end

    def _unreadable(self, reason: str) -> InputError:
        return InputError(f"{self.path} cannot be read as a table: {reason}.")

    def _refusal(self, reason: str, first: int) -> InputError:
        match = re.search(r"Row #(\d+): Expected \d+ columns, got (\d+)", reason)
        if match is None:
            return self._unreadable(printable(reason.splitlines()[0])[:200].rstrip("."))
        mark = {"\t": "tab", ";": "semicolon"}.get(self.delimiter, "comma")
        return InputError(
            f"The header of {self.path} has {counted(len(self.names), 'column')}, "
            f"but row {first + int(match[1])} below it has {match[2]}: "
            f"close open quotes, quote cells that contain a {mark}, or correct the row."
        )


def _last_row_end(block: npt.NDArray[np.uint8], delimiter: str) -> tuple[int, bool]:
    """The position behind the last line end outside quotes, or 0, and whether a quote is open.

    The block begins where a row does. A quote opens at the start of a cell; a doubled one does not
    close it.
    """
    quotes = np.flatnonzero(block == ord('"'))
    opening = quotes[::2]
    before = block[opening[opening > 0] - 1]
    # Usually quotes come in pairs; a doubled one closes and opens again, which makes no difference.
    if not np.isin(before, list(LINE_ENDS + delimiter.encode() + b'"')).all():
        # Elsewhere in a cell, a quote is a letter like any other.
        quoted = re.compile(rb'(?:\A|(?<=[\r\n%c]))"(?:[^"]++|"")*+("?)' % ord(delimiter))
        spans = [(cell.start(), cell.start(1)) for cell in quoted.finditer(block.tobytes())]
        quotes = np.asarray(spans, dtype=np.int64).ravel()
        quotes = quotes[quotes < len(block)]  # where the last one is not closed
    for mark in LINE_ENDS:
        ends = np.flatnonzero(block == mark)
        ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
        if len(ends):
            return int(ends[-1]) + 1, bool(len(quotes) % 2)
    return 0, bool(len(quotes) % 2)


def _read_header(path: Path, delimiter: str) -> tuple[list[str], int]:
    """The names of the columns, and the position of the first row below them."""
    import pyarrow as pa

    with path.open("rb") as file:
        mark = file.read(4)
        if mark.startswith(NO_TEXT):
            raise InputError(
                f"{path} is not text in UTF-8 but in UTF-16, Parquet, Excel or compressed: "
                "save it as UTF-8 text, or correct its suffix."
            )
        end = len(codecs.BOM_UTF8) if mark.startswith(codecs.BOM_UTF8) else 0
        file.seek(end)

        def lines() -> Iterator[str]:
            nonlocal end
            # Columns that are not requested may contain bytes that are not UTF-8.
            text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="")
            while line := text.readline(BLOCK):
                end += len(line.encode("utf-8", "surrogateescape"))
                if len(line) == BLOCK:
                    raise csv.Error(f"longer than {BLOCK >> 20} MiB")
                yield line

        try:
            rows = csv.reader(lines(), delimiter=delimiter, strict=True)
            names = next(row for row in rows if any(cell.strip() for cell in row))
            found = pa.array([name.strip().encode("utf-8") for name in names])
        except StopIteration:
            raise InputError(f"{path} has no rows below a header: all lines are empty.") from None
        except (csv.Error, UnicodeError) as error:
            reason = "not UTF-8" if isinstance(error, UnicodeError) else first_line(error)
            raise InputError(
                f"The header of {path} cannot be read ({reason}): save the file as UTF-8 text."
            ) from None
    if any(b"\0" in name for name in found.to_pylist()):
        raise InputError(f"The header of {path} holds a NUL byte: save the file as UTF-8 text.")
    return without_apostrophes(found).cast(pa.string()).to_pylist(), end


# ---- Parquet -------------------------------------------------------------------------------------


class ParquetTable(Table):
    """A Parquet file, whose columns have types."""

    path: Path

    def __init__(self, path: Path) -> None:
        self.sizes = parquet_sizes(path)
        with _opened(path) as file:
            self.n_rows = file.metadata.num_rows
            self.texts = [
                leaf.path
                for leaf in map(file.schema.column, range(len(file.schema)))
                if leaf.physical_type == "BYTE_ARRAY" and leaf.converted_type != "DECIMAL"
            ]
            super().__init__(path, file.schema_arrow.names, file.schema_arrow)

    def check_expansion(self, names: Iterable[str]) -> None:
        """Refuse a file whose columns of these names would take far more memory than it does."""
        wanted, packed = set(names), self.path.stat().st_size
        with _opened(self.path, self.texts) as file:
            chosen = [
                field.name in wanted for field in self.schema for _ in range(_leaves(field.type))
            ]
            sizes = [size for size, wants in zip(self.sizes, chosen, strict=True) if wants]
            check_expansion(self.path, packed, sum(size.expanded for size in sizes), FEWER)
            if sum(size.most_text for size in sizes) > ALWAYS:
                texts = [path for path in self.texts if wanted & {path, path.partition(".")[0]}]
                for path, group in product(texts, range(file.num_row_groups)):
                    check_expansion(self.path, packed, _text_bytes(file, group, path), FEWER)

    def _batches(
        self, columns: Sequence[int], on_progress: ReadProgress | None
    ) -> Iterator[TableBatch]:
        names = [self.names[i] for i in columns]
        for name in names:
            self.column(name)  # pyarrow reads columns by name, which must be unique
        size = max(1 << 10, min(1 << 16, (4 << 20) // max(len(names), 1)))
        first = 0
        self.check_expansion(names)
        with _opened(self.path) as file:
            for batch in file.iter_batches(batch_size=size, columns=names):
                batch.validate(full=True)  # finds text that is not UTF-8, which would fail later
                if batch.num_rows:
                    found = {i: batch.column(name) for i, name in zip(columns, names, strict=True)}
                    yield TableBatch(first, batch.num_rows, found, self.n_rows)
                first += batch.num_rows
                if on_progress is not None:
                    on_progress(first, self.n_rows)


# ---- memory --------------------------------------------------------------------------------------


class ArrowTable(Table):
    """A table in memory, of a library with Arrow's interface; its rows are counted from 0."""

    row_name, first_row = "Row {} (counted from 0) of {}", 0

    def __init__(self, frame: Any) -> None:
        self.table = arrow_table(frame)
        library = type(frame).__module__.partition(".")[0]
        name = f"{library}.{type(frame).__name__}"
        super().__init__(name, self.table.column_names, self.table.schema)

    def _batches(
        self, columns: Sequence[int], on_progress: ReadProgress | None
    ) -> Iterator[TableBatch]:
        first, n_rows = 0, self.table.num_rows
        for batch in self.table.select(list(columns)).to_batches(max_chunksize=1 << 16):
            if batch.num_rows:
                yield TableBatch(
                    first, batch.num_rows, dict(zip(columns, batch.columns, strict=True)), n_rows
                )
            first += batch.num_rows
            if on_progress is not None:
                on_progress(first, n_rows)


def _text_bytes(file: Any, group: int, path: str) -> int:
    """The memory that the texts of a column take at least if many cells share them, 0 if little.

    The footer counts such texts once, and so does a file that is read as dictionaries.
    """
    rows = next(file.iter_batches(1, row_groups=[group], columns=[path]), None)
    if rows is None:
        return 0
    if not is_list(rows.column(0).type):  # the first row comes with all texts
        n_rows = file.metadata.row_group(group).num_rows
        if _sizes_of_texts(rows.column(0))[0] * n_rows <= ALWAYS:
            return 0
    column = file.read_row_group(group, columns=[path]).column(0)
    return sum(_sizes_of_texts(chunk)[1] for chunk in column.chunks)


def _sizes_of_texts(column: Any) -> tuple[int, int]:
    """The bytes of the longest text of a dictionary, or of lists of them, and of all cells."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    while is_list(column.type):
        column = column.flatten()
    if not pa.types.is_dictionary(column.type):
        return 0, 0
    sizes = pc.cast(pc.binary_length(column.dictionary), pa.int64())
    return pc.max(sizes).as_py() or 0, pc.sum(sizes.take(column.indices)).as_py() or 0


def is_list(kind: Any) -> bool:
    import pyarrow as pa

    checks = pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list
    return any(check(kind) for check in checks)


def _leaves(kind: Any) -> int:
    """The number of Parquet columns in which a column of this type is stored."""
    fields = map(kind.field, range(kind.num_fields))
    return sum(_leaves(field.type) for field in fields) or 1


@contextmanager
def _opened(path: Path, texts: Sequence[str] = ()) -> Iterator[Any]:
    """Open a Parquet file, whose columns `texts` become dictionaries; a damaged one is refused."""
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    try:
        with pq.ParquetFile(path, read_dictionary=list(texts)) as file:
            yield file
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read as Parquet ({first_line(error)}): it is damaged; write it anew."
        ) from None
