"""Spreadsheets: a sheet of an Excel file, whose first row that is not blank names the columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ltpll.errors import InputError, option, required_by, shown
from ltpll.formatting import format_names
from ltpll.tables.formulas import without_apostrophes
from ltpll.tables.guarded import sheet_cells
from ltpll.tables.streaming import ArrowTable, Table

WORKBOOKS = (".xlsx", ".xlsm")


class SheetTable(ArrowTable):
    """A sheet whose cells are texts, as they would be in a .csv file; formulas have their results.

    Blank rows do not count, and columns without a name and any cell are left out.
    """

    row_name, first_row = "Row {} below the header of {}", 1

    def __init__(self, path: Path, sheet: str | None = None) -> None:
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        with required_by("An Excel file", install="'ltpll[excel]'", otherwise=", or save .csv"):
            import python_calamine  # noqa: F401

        sheets, width, arrays = sheet_cells(path, sheet)
        if not sheets:
            raise InputError(f"{path} is empty: it has no header with column names.")
        if not arrays:
            has = "several sheets" if sheet is None else f"no sheet {shown(sheet)}"
            raise InputError(
                f"{path} has {has} with data: keep one of {format_names(sheets)}, or choose it in "
                f"training with {option('sheet', sheets[0])}."
            )
        ends, data = (pa.py_buffer(array) for array in arrays)
        cells = pa.LargeStringArray.from_buffers(len(arrays[0]) - 1, ends, data)
        cells.validate(full=True)
        cells = without_apostrophes(cells)
        filled = pc.not_equal(pc.utf8_trim_whitespace(cells), "")
        filled = filled.to_numpy(zero_copy_only=False).reshape(-1, width)
        places = np.arange(len(cells)).reshape(-1, width)
        places = places[filled.any(axis=1)][:, filled.any(axis=0)]
        names = [name.strip() for name in cells.take(places[0]).to_pylist()]
        columns = [cells.take(column) for column in places[1:].T]
        self.table = pa.Table.from_arrays(columns, names=names)
        Table.__init__(self, path, names)
