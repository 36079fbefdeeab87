"""Streaming: tables read a few megabytes at a time, so that a file can be larger than memory."""

from __future__ import annotations

import codecs
import csv
import io
import re
import secrets
import sys
import time
import traceback
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ltpll.candidates.arrow import arrow_table, is_frame
from ltpll.data.readers.memory_limits import check_expansion
from ltpll.data.readers.parquet_footer import expanded_size
from ltpll.errors import InputError, first_line, printable, shown
from ltpll.formatting import counted, format_names

BLOCK = 4 << 20
WAIT_SECONDS = 0.2  # at most, for what pyarrow still does in the background
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
ReadProgress = Callable[[int, int], None]
"""Called with the amount read so far and the total: bytes of a text file, rows of a Parquet file."""


@dataclass(frozen=True)
class TableBatch:
    """Some rows of a table: `columns` holds a pyarrow array for each requested column number."""

    first: int  # row number
    n_rows: int
    columns: Mapping[int, Any]
    expected_rows: int  # an estimate for the whole table


class Table(ABC):
    """A file with named columns; messages count rows from 1, below the header and without blank lines."""

    def __init__(self, path: Path | str, names: Sequence[str]) -> None:
        self.path = path  # a table in memory has a name instead
        self.names = tuple(names)

    @abstractmethod
    def row(self, i: int) -> str:
        """How a message refers to row i, counted from 0."""

    @abstractmethod
    def numeric(self, index: int) -> bool | None:
        """Whether a column holds numbers; None if the file has no types."""

    @abstractmethod
    def _batches(self, columns: Sequence[int], on_progress: ReadProgress | None) -> Iterator[TableBatch]: ...

    def batches(self, columns: Sequence[int], on_progress: ReadProgress | None = None) -> Iterator[TableBatch]:
        """Read the rows in order; only the given columns are converted."""
        n_rows = 0
        for batch in self._batches(sorted(set(columns)) or [0], on_progress):
            n_rows += batch.n_rows
            yield batch
        if n_rows == 0:
            raise self.no_rows()

    def no_rows(self) -> InputError:
        return InputError(f"{self.path} has no rows below a header with column names: give at least one example.")

    def column(self, name: str, advice: str = "") -> int:
        """The number of the column with this name, which must be unique; `advice` is for a table that does not have it."""
        if self.names.count(name) == 1:
            return self.names.index(name)
        if name in self.names:
            raise InputError(f"{self.path} has several columns called {shown(name)}: rename all but one.")
        guess = get_close_matches(name.lower(), [known.lower() for known in self.names], n=1)
        meant = next((known for known in self.names if guess and known.lower() == guess[0]), None)
        raise InputError(
            f"{self.path} has no column called {shown(name)}{f' (did you mean {shown(meant)}?)' if meant else ''}: "
            f"it has {format_names(self.names)}{self.hint() or (advice and f'; {advice}')}."
        )

    def hint(self) -> str:
        """The end of a sentence about columns that seem to be separated by something else; empty if they do not."""
        other = next((mark for mark in (";", "\t", ",") if len(self.names) == 1 and mark in self.names[0]), None)
        return "" if other is None else f", so its columns seem to be separated by {other!r}: save it with commas (.csv) or tabs (.tsv)"


def check_is_file(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a table: give a file in it.")
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty: it has no header with column names.")


def open_table(path: Path | Any) -> Table:
    """Open a .csv, .tsv or .parquet file and read its header; or a table in memory, of pandas, polars or pyarrow."""
    if is_frame(path):
        return ArrowTable(path)
    check_is_file(path)
    kind = path.suffix.lower()
    if kind == ".parquet":
        return ParquetTable(path)
    if kind not in TABLE_SUFFIXES:
        raise InputError(f"{path} is not a table: its name must end in {', '.join(TABLE_SUFFIXES)} or .mat.")
    return TextTable(path, "\t" if kind == ".tsv" else ",")


def whole_table(path: Path) -> Any:
    """All rows and columns as a pyarrow table, to be written again: texts are unmodified, and a Parquet file keeps its types."""
    import pyarrow as pa  # type: ignore[import-untyped]

    table = open_table(path)
    if isinstance(table, ParquetTable):
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        return pq.read_table(path)
    columns = range(len(table.names))
    batches = [[batch.columns[i].cast(pa.string()) for i in columns] for batch in table.batches(list(columns))]
    return pa.Table.from_arrays([pa.chunked_array([batch[i] for batch in batches]) for i in columns], names=list(table.names))


# ---- text -------------------------------------------------------------------------------------------------------------


class TextTable(Table):
    """UTF-8 text with a header, in which cells that contain the delimiter or a line end are quoted; columns are bytes."""

    path: Path

    def __init__(self, path: Path, delimiter: str) -> None:
        names, self.start = _read_header(path, delimiter)
        super().__init__(path, names)
        self.delimiter = delimiter

    def row(self, i: int) -> str:
        return f"Row {i + 1} below the header of {self.path}"

    def numeric(self, index: int) -> bool | None:
        return None

    def _batches(self, columns: Sequence[int], on_progress: ReadProgress | None) -> Iterator[TableBatch]:
        import pyarrow as pa
        from pyarrow import csv as arrow

        n_columns = len(self.names)
        labels = [str(i) for i in range(n_columns)]  # names may occur twice

        end = secrets.token_hex(16)
        total = self.path.stat().st_size - self.start
        with self.path.open("rb") as file:
            source = _Rows(file, self, f"\n{self.delimiter.join([end] * n_columns)}\n".encode())
            first, ended, reader = 0, False, None
            try:
                reader = arrow.open_csv(
                    pa.PythonFile(source, mode="r"),
                    # One thread is no slower, and only then does pyarrow report the number of a row of the wrong length.
                    arrow.ReadOptions(column_names=labels, block_size=BLOCK, use_threads=False),
                    arrow.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                    arrow.ConvertOptions(
                        include_columns=[labels[i] for i in columns],
                        column_types=dict.fromkeys(labels, pa.binary()),
                        strings_can_be_null=False,
                    ),
                )
                for k, batch in enumerate(reader):
                    done = min(source.position, (k + 1) * BLOCK, total)  # pyarrow reads ahead
                    if batch.num_rows and batch.column(0)[-1].as_py() == end.encode():
                        ended, batch = True, batch.slice(0, batch.num_rows - 1)
                    n_rows = batch.num_rows
                    if n_rows:
                        found = {index: batch.column(j) for j, index in enumerate(columns)}
                        yield TableBatch(first, n_rows, found, int((first + n_rows) * total / max(done, 1)))
                    first += n_rows
                    if on_progress is not None:
                        on_progress(total if ended else done, total)
            except pa.ArrowInvalid as error:
                raise self._refusal(str(error), first) from None
            finally:
                source.stopped = True
                with suppress(Exception):
                    for _ in reader or ():
                        pass  # whatever was read ahead
                released = weakref.ref(source)
                del reader, source
                _forget_frames(sys.exception())
                _wait_until(lambda: released() is None)
            if not ended:
                raise self._unclosed_quote()

    def _unclosed_quote(self) -> InputError:
        return InputError(f'{self.path} cannot be read as a table: a quote (") is never closed; close it or double it.')

    def _refusal(self, reason: str, first: int) -> InputError:
        match = re.search(r"Row #(\d+): Expected \d+ columns, got (\d+)", reason)
        if match is not None:
            return InputError(
                f"The header of {self.path} has {counted(len(self.names), 'column')}, but row {match[1]} below it has {match[2]}: "
                f"close open quotes, quote cells that contain a {'tab' if self.delimiter == chr(9) else 'comma'}, or correct the row."
            )
        if "straddl" in reason:
            return InputError(
                f"{self.path} cannot be read as a table: after row {first} below the header a row is longer than {BLOCK >> 20} MiB; "
                'usually because a quote (") is never closed.'
            )
        return InputError(f"{self.path} cannot be read as a table ({printable(reason.splitlines()[0])[:200].rstrip('.')}).")


def _forget_frames(error: BaseException | None) -> None:
    """Let go of what the functions that raised an error had in their variables."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def _wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a thread of pyarrow that calls Python: if it were still at it when Python ends, the process would abort."""
    end = time.monotonic() + WAIT_SECONDS
    while not condition() and time.monotonic() < end:
        time.sleep(0.0005)


class _Rows(io.RawIOBase):
    """The bytes below the header plus an extra last row, which pyarrow never returns if a quote is left open."""

    def __init__(self, file: io.BufferedReader, table: TextTable, last: bytes) -> None:
        self.file, self.table, self.last = file, table, last
        self.position = 0
        self.stopped = False
        file.seek(table.start)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if self.stopped:
            return b""
        content = self.file.read(size)
        if b"\0" in content:
            raise self._nul(self.position + content.index(b"\0"))
        self.position += len(content)
        if not content:
            content, self.last = self.last, b""
        return content

    def _nul(self, position: int) -> InputError:
        self.file.seek(self.table.start)
        lines = 1
        while position > 0:
            content = self.file.read(min(position, BLOCK))
            lines, position = lines + content.count(b"\n"), position - len(content)
        return InputError(
            f"Row {lines} below the header of {self.table.path} holds a NUL byte: the file is damaged or not text; save it as UTF-8 text."
        )


def _read_header(path: Path, delimiter: str) -> tuple[list[str], int]:
    """The names of the columns, and the position of the first row below them."""
    with path.open("rb") as file:
        mark = file.read(4)
        if mark[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise InputError(f"{path} is text in UTF-16: save it as UTF-8.")
        if mark in (b"PAR1", b"PK\3\4") or mark[:2] == b"\x1f\x8b":
            raise InputError(f"{path} is not text but a Parquet, Excel or compressed file: save it as UTF-8 text, or correct its suffix.")
        end = len(codecs.BOM_UTF8) if mark.startswith(codecs.BOM_UTF8) else 0
        file.seek(end)

        def lines() -> Iterator[str]:
            nonlocal end
            # Columns that are not requested may contain bytes that are not UTF-8.
            text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="")
            while line := text.readline(BLOCK):
                end += len(line.encode("utf-8", "surrogateescape"))
                if len(line) == BLOCK:
                    raise InputError(f"{path} cannot be read as a table: its header is longer than {BLOCK >> 20} MiB.")
                yield line

        try:
            names = next((row for row in csv.reader(lines(), delimiter=delimiter, strict=True) if any(cell.strip() for cell in row)), None)
        except csv.Error as error:
            raise InputError(f"{path} cannot be read as a table: its first line is not a header ({first_line(error)}).") from None
    if names is None:
        raise InputError(f"{path} has no rows below a header with column names: its lines are all empty.")
    text = "".join(names)
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InputError(f"The header of {path} is not UTF-8 text: save the file as UTF-8 text.")
    return [name.strip() for name in names], end


# ---- Parquet ----------------------------------------------------------------------------------------------------------


class ParquetTable(Table):
    """A Parquet file, whose columns have types."""

    path: Path

    def __init__(self, path: Path) -> None:
        with _opened(path) as file:
            self.schema = file.schema_arrow
            self.n_rows = file.metadata.num_rows
            super().__init__(path, self.schema.names)

    def row(self, i: int) -> str:
        return f"Row {i + 1} of {self.path}"

    def numeric(self, index: int) -> bool | None:
        import pyarrow as pa

        kind = self.schema.field(index).type
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))

    def no_rows(self) -> InputError:
        return InputError(f"{self.path} has no rows: give at least one example.")

    def _batches(self, columns: Sequence[int], on_progress: ReadProgress | None) -> Iterator[TableBatch]:
        names = [self.names[i] for i in columns]
        for name in names:
            self.column(name)  # pyarrow reads columns by name, which must be unique
        size = max(1 << 10, min(1 << 16, (4 << 20) // max(len(names), 1)))
        first = 0
        with _opened(self.path) as file:
            wanted = set(names)
            chosen = [field.name in wanted for field in self.schema for _ in range(_leaves(field.type))]
            advice = "write fewer rows or columns, or write it without compression"
            check_expansion(self.path, self.path.stat().st_size, expanded_size(self.path, chosen), advice)
            for batch in file.iter_batches(batch_size=size, columns=names):
                batch.validate(full=True)  # finds text that is not UTF-8, which would fail later
                if batch.num_rows:
                    found = {i: batch.column(name) for i, name in zip(columns, names, strict=True)}
                    yield TableBatch(first, batch.num_rows, found, self.n_rows)
                first += batch.num_rows
                if on_progress is not None:
                    on_progress(first, self.n_rows)


# ---- memory -----------------------------------------------------------------------------------------------------------


class ArrowTable(Table):
    """A table of pandas, polars, pyarrow or another library with Arrow's interface; its rows are counted from 0."""

    def __init__(self, frame: Any) -> None:
        self.table = arrow_table(frame)
        super().__init__(f"{type(frame).__module__.partition('.')[0]}.{type(frame).__name__}", self.table.column_names)

    def row(self, i: int) -> str:
        return f"Row {i} (counted from 0) of {self.path}"

    def numeric(self, index: int) -> bool | None:
        import pyarrow as pa

        kind = self.table.schema.field(index).type
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))

    def no_rows(self) -> InputError:
        return InputError(f"There are no rows in {self.path}: give at least one example.")

    def _batches(self, columns: Sequence[int], on_progress: ReadProgress | None) -> Iterator[TableBatch]:
        first, n_rows = 0, self.table.num_rows
        for batch in self.table.select(list(columns)).to_batches(max_chunksize=1 << 16):
            if batch.num_rows:
                yield TableBatch(first, batch.num_rows, dict(zip(columns, batch.columns, strict=True)), n_rows)
            first += batch.num_rows
            if on_progress is not None:
                on_progress(first, n_rows)


def _leaves(kind: Any) -> int:
    """The number of Parquet columns in which a column of this type is stored."""
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields)) if kind.num_fields else 1


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a Parquet file; pyarrow's exceptions about a damaged one become an InputError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            yield file
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as Parquet ({first_line(error)}): it is truncated or damaged; write it again.") from None
