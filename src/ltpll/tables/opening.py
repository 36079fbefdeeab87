"""Opening: the table in a file of any kind, or in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates.arrow import arrow_table, is_frame
from ltpll.errors import InputError, option, required_by, shown
from ltpll.formatting import format_names
from ltpll.tables.dialect import without_apostrophes
from ltpll.tables.guarded import ask_child
from ltpll.tables.json_stream import LINES, json_items
from ltpll.tables.memory_limits import check_expansion
from ltpll.tables.streaming import (
    TABLE_SUFFIXES,
    ArrowTable,
    ParquetTable,
    Table,
    TextTable,
    require_file,
)

WORKBOOKS = (".xlsx", ".xlsm")
READABLE = (*TABLE_SUFFIXES, *WORKBOOKS, *LINES)
ARRAY_SUFFIXES = (".npy", ".npz")


def open_table(path: Path | Any, sheet: str | None = None) -> Table:
    """Open a table and read its header or schema.

    Args:
        path: A .csv, .tsv, .parquet, .xlsx, .xlsm, .jsonl or .ndjson file, or a table in memory.
        sheet: The sheet of a workbook; by default the only one with data.

    Raises:
        InputError: The table cannot be opened.
    """
    kind = "" if is_frame(path) else path.suffix.lower()
    if is_frame(path):
        library = type(path).__module__.partition(".")[0]
        return ArrowTable(arrow_table(path), f"{library}.{type(path).__name__}")
    if sheet is not None and kind not in WORKBOOKS:
        raise InputError("sheet names a sheet of an Excel file: leave it out for other tables.")
    require_file(path)
    if kind == ".parquet":
        return ParquetTable(path)
    if kind in WORKBOOKS:
        return SheetTable(path, sheet)
    if kind in LINES:
        return JsonLinesTable(path)
    if kind not in READABLE:
        raise InputError(f"{path} is not a table: its name must end in {', '.join(READABLE)}.")
    return TextTable(path, "\t" if kind == ".tsv" else ",")


def whole_table(path: Path) -> Any:
    """All rows and columns as a pyarrow table, to be written again.

    Texts are unmodified, and a Parquet file keeps its types.
    """
    import pyarrow as pa  # type: ignore[import-untyped]

    table = open_table(path)
    columns = range(len(table.names))
    text = pa.schema([(name, pa.string()) for name in table.names])
    schema = text if table.schema is None else table.schema
    return pa.Table.from_batches(
        [
            pa.record_batch([batch.columns[i].cast(schema.types[i]) for i in columns], schema)
            for batch in table.row_batches(columns)
        ]
    )


# ---- Excel ---------------------------------------------------------------------------------------


class SheetTable(ArrowTable):
    """A sheet whose cells are texts, as they would be in a .csv file; formulas have their results.

    The first row that is not blank names the columns. Blank rows do not count, and columns without
    a name and any cell are left out.
    """

    row_name, first_row = "Row {} below the header of {}", 1

    def __init__(self, path: Path, sheet: str | None = None) -> None:
        import pyarrow as pa

        with required_by("An Excel file", install="'ltpll[excel]'", otherwise=", or save .csv"):
            import python_calamine  # noqa: F401

        sheets, rows = ask_child("excel", path, *([] if sheet is None else [sheet]))
        if not sheets:
            raise InputError(f"{path} is empty: it has no header with column names.")
        if not rows:
            has = "several sheets" if sheet is None else f"no sheet {shown(sheet)}"
            raise InputError(
                f"{path} has {has} with data: keep one of {format_names(sheets)}, or choose it in "
                f"training with {option('sheet', sheets[0])}."
            )
        filled = [row for row in rows if any(map(str.strip, row))]
        columns = [column for column in zip(*filled, strict=True) if any(map(str.strip, column))]
        cells = [without_apostrophes(pa.array(column, pa.string())) for column in columns]
        names = [column[0].as_py().strip() for column in cells]
        super().__init__(pa.Table.from_arrays([column[1:] for column in cells], names=names), path)
        self.schema = None  # texts may be numbers


# ---- arrays of numpy -----------------------------------------------------------------------------


def read_array(path: Path, choose: Callable[[Sequence[str]], str]) -> npt.NDArray[Any]:
    """Read the array of an .npy file, or of an .npz file the one that `choose` picks by name."""
    require_file(path)
    try:
        with np.errstate(over="ignore"):
            # Memory mapping refuses an array that claims to be larger than its file.
            found = np.load(path, allow_pickle=False, mmap_mode="r")
            if isinstance(found, np.ndarray):
                return found
            name = choose(found.files)
            if name not in found.files:
                raise InputError(f"{path} has no array called {shown(name)}.")
            sizes = {info.filename: info.file_size for info in found.zip.infolist()}
            expanded = sizes.get(f"{name}.npy") or sizes[name]
            advice = "save fewer rows or columns, or save it uncompressed with numpy.save"
            check_expansion(path, path.stat().st_size, expanded, advice)
            array = found[name]
            if not isinstance(array, np.ndarray):
                raise ValueError("it is no array")
            return array
    except InputError:
        raise
    # Damaged files make numpy and zipfile fail in unforeseeable ways, and numpy's message about
    # pickled objects would tell the user how to run code from the file.
    except Exception:
        raise InputError(
            f"{path} does not hold plain arrays, or is truncated: write it without objects, "
            "with numpy.save (.npy) or numpy.savez (.npz)."
        ) from None


# ---- lines of JSON -------------------------------------------------------------------------------

CELL_BYTES = 16  # for each member that a row lacks, too
GROWTH = 4  # bytes that a byte of the file takes in memory, at most, for each copy


class JsonLinesTable(ArrowTable):
    """A .jsonl or .ndjson file with one object for each row, whose columns are all its members.

    Values of several types in a column are texts, as in a .csv file.
    """

    row_name, first_row = "Row {} of {}", 1

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        size, n_rows = path.stat().st_size, 0
        check_expansion(path, size, GROWTH * size, "save it as .csv or .parquet")
        found: dict[str, list[Any]] = {}
        for n_rows, row in enumerate(_json_rows(path), 1):
            for name, value in row.items():
                if name not in found:
                    advice, cells = "give all rows the same members", n_rows * (len(found) + 1)
                    check_expansion(path, size, CELL_BYTES * cells, advice)
                column = found.setdefault(name, [])
                column += [None] * (n_rows - 1 - len(column))
                column.append(value)
        if not found:
            raise InputError(f"{path} has no rows: give at least one example.")
        names = text_array(path, list(found)).to_pylist()
        columns = [[*column, *[None] * (n_rows - len(column))] for column in found.values()]
        kinds = [{type(value) for value in column} - {type(None)} for column in columns]
        self.nested = [bool(found & {list, dict}) for found in kinds]
        # A text among numbers may be a typo.
        self.unclear = [str in found and bool(found & {int, float}) for found in kinds]
        arrays = map(partial(_json_column, path), columns, self.nested)
        super().__init__(pa.Table.from_arrays(list(arrays), names=names), path)

    def numeric(self, index: int) -> bool | None:
        return None if self.unclear[index] else super().numeric(index)

    def holds_words(self, index: int) -> bool:
        return not self.nested[index]


def _json_column(path: Path, values: Sequence[Any], nested: bool) -> Any:
    import pyarrow as pa

    if not nested:
        with suppress(pa.ArrowException, OverflowError, UnicodeError):
            found = pa.array(values)
            if not pa.types.is_null(found.type):
                return found
    return text_array(path, [_text_of(value) for value in values])


def text_array(path: Path, texts: Sequence[str]) -> Any:
    """A pyarrow array of texts of JSON, which can write halves of surrogate pairs."""
    import pyarrow as pa

    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError as error:
        wrong = ascii(error.object)[:60]
        raise InputError(f"{path} holds {wrong}, which is not valid Unicode: correct it.") from None


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    for item in json_items(path):
        if not isinstance(item.value, dict):
            raise InputError(
                f"Row {item.number} of {path} is {shown(item.value)}: give one object for each "
                'row, such as {"id": "a", "candidates": ["cat", "fox"], "x": 0.5}.'
            )
        yield item.value


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
