"""Opening: the table in a file of any kind, in all files that fit a pattern, or in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from ltpll.candidates.arrow import is_frame
from ltpll.errors import InputError, shown
from ltpll.formatting import counted
from ltpll.tables.json_stream import LINES
from ltpll.tables.json_tables import JsonLinesTable
from ltpll.tables.spreadsheets import WORKBOOKS, SheetTable
from ltpll.tables.streaming import (
    TABLE_SUFFIXES,
    ArrowTable,
    ParquetTable,
    ReadProgress,
    Table,
    TableBatch,
    TextTable,
    require_file,
)

READABLE = (*TABLE_SUFFIXES, *WORKBOOKS, *LINES)


def is_pattern(path: Path) -> bool:
    """Whether a path stands for several files, such as `part-*.csv`, and is not a file itself."""
    return has_magic(str(path)) and not path.exists()


def matching_files(path: Path) -> list[Path]:
    """The files that fit a pattern, sorted; a path that is no pattern stands for itself."""
    if not is_pattern(path):
        return [path]
    return [
        found
        for name in sorted(glob(str(path)))  # noqa: PTH207, which lists hidden files, too
        if (found := Path(name)).is_file()
    ]


def open_table(path: Path | Any, sheet: str | None = None) -> Table:
    """Open a table and read its header or schema.

    Args:
        path: A .csv, .tsv, .parquet, .xlsx, .xlsm, .jsonl or .ndjson file; a pattern that some of
            them fit, whose rows are joined in the order of their names; or a table in memory.
        sheet: The sheet of a workbook; by default the only one with data.

    Raises:
        InputError: The table cannot be opened.
    """
    if not is_frame(path) and is_pattern(path):
        files = matching_files(path)
        if not files:
            raise InputError(f"There is no file like {path}.")
        return JoinedTable(path, [open_table(file, sheet) for file in files])
    kind = "" if is_frame(path) else path.suffix.lower()
    if sheet is not None and kind not in WORKBOOKS:
        raise InputError("sheet names a sheet of an Excel file: leave it out for other tables.")
    if is_frame(path):
        return ArrowTable(path)
    require_file(path)
    if kind == ".parquet":
        return ParquetTable(path)
    if kind in WORKBOOKS:
        return SheetTable(path, sheet)
    if kind in LINES:
        return JsonLinesTable(path)
    if kind not in READABLE:
        raise InputError(
            f"{path} is not a table: its name must end in {', '.join(READABLE)} or .mat."
        )
    return TextTable(path, "\t" if kind == ".tsv" else ",")


def whole_table(path: Path) -> Any:
    """All rows and columns as a pyarrow table, to be written again.

    Texts are unmodified, and a Parquet file keeps its types.
    """
    import pyarrow as pa  # type: ignore[import-untyped]

    table = open_table(path)
    if isinstance(table, ParquetTable):
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        table.check_expansion(table.names)
        return pq.read_table(path)
    columns = range(len(table.names))
    text = pa.schema([(name, pa.string()) for name in table.names])
    return pa.Table.from_batches(
        [
            pa.record_batch([batch.columns[i].cast(pa.string()) for i in columns], text)
            for batch in table.row_batches(columns)
        ]
    )


class JoinedTable(Table):
    """The rows of several tables with the same columns, one table after the other."""

    def __init__(self, path: Path, tables: Sequence[Table]) -> None:
        first, *others = self.tables = list(tables)
        super().__init__(path, first.names)
        for other in others:
            if other.names != first.names:
                differing = [*set(first.names) ^ set(other.names), *other.names]
                raise InputError(
                    f"{other.path} has other columns than {first.path}, see {shown(differing[0])}: "
                    "files that are read together must have the same columns in the same order."
                )
        notes = dict.fromkeys(note for table in tables for note in table.notes)
        self.notes = (f"Read {counted(len(tables), 'file')} like {path} as one table.", *notes)
        self._starts = [0]

    def describe_row(self, i: int) -> str:
        which = bisect_right(self._starts, i) - 1
        return self.tables[which].describe_row(i - self._starts[which])

    def numeric(self, index: int) -> bool | None:
        kinds = {table.numeric(index) for table in self.tables}
        return kinds.pop() if len(kinds) == 1 else None

    def holds_words(self, index: int) -> bool:
        return all(table.holds_words(index) for table in self.tables)

    def _batches(
        self, columns: Sequence[int], on_progress: ReadProgress | None
    ) -> Iterator[TableBatch]:
        self._starts, n = [0], len(self.tables)
        for i, table in enumerate(self.tables):
            start = first = self._starts[-1]
            for batch in table._batches(columns, None):
                first = start + batch.first + batch.n_rows
                rows = n * batch.expected_rows
                yield replace(batch, first=start + batch.first, expected_rows=rows)
            self._starts.append(first)
            if on_progress is not None:
                on_progress(i + 1, n)
