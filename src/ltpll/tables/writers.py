"""Writers: tables of results, written atomically and safe to open in a spreadsheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError, first_line
from ltpll.files import check_output, write_when_complete
from ltpll.tables.dialect import with_apostrophes
from ltpll.tables.streaming import TABLE_SUFFIXES

CHUNK = 1 << 16  # rows turned into text at a time


def write_table(path: Path, columns: Any) -> None:
    """Write a table as .csv, .tsv or .parquet.

    An existing file is replaced only once the new one is complete. In text files, cells that a
    spreadsheet would run as a formula are prefixed with an apostrophe, which ltpll takes away when
    it reads them, and missing values (None, NaN) are empty cells.

    Args:
        path: The file; its suffix determines the format.
        columns: A mapping from names to sequences, or to arrays of numpy or pyarrow, of equal
            length; or a pyarrow table.

    Raises:
        InputError: The columns cannot be written, or the path cannot be written to.

    Examples:
        >>> write_table(Path("labels.csv"), {"id": ["a", "b"], "label": ["cat", "dog"]})
    """
    check_output(path, TABLE_SUFFIXES)
    table = _as_arrow(path, columns) if isinstance(columns, Mapping) else columns

    def write(file: Any) -> None:
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet as pq  # type: ignore[import-untyped]

            pq.write_table(table, file)
        else:
            _write_text(table, file, "\t" if path.suffix.lower() == ".tsv" else ",")

    write_when_complete(path, write)


def _as_arrow(path: Path, columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]]) -> Any:
    import pyarrow as pa

    if len({len(values) for values in columns.values()}) != 1:
        raise InputError(f"{path} is not written, since its columns need equal lengths.")
    arrays = {}
    for name, values in columns.items():
        try:
            if isinstance(values, np.ndarray):
                values = np.ascontiguousarray(values)
            array = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
        except (pa.ArrowException, UnicodeError, OverflowError) as error:
            raise InputError(
                f"The column {name!r} cannot be written to {path} ({first_line(error)}): "
                "give values of one type."
            ) from None
        if pa.types.is_nested(array.type) and path.suffix.lower() != ".parquet":
            raise InputError(
                f"The column {name!r} holds lists, which {path.suffix} cannot store: "
                "join them to text, or write .parquet."
            )
        arrays[str(name)] = array
    return pa.table(arrays)


def _write_text(table: Any, file: Any, delimiter: str) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]
    from pyarrow import csv as arrow

    if table.num_columns == 1:  # a missing value would be a blank line, which readers skip
        filled = pc.fill_null(table.column(0).cast(pa.string()), "")
        table = pa.table([filled], names=table.column_names)
    strings = pa.string(), pa.large_string()
    text = [i for i, column in enumerate(table.columns) if column.type in strings]
    header = pa.table({str(i): pa.array([name]) for i, name in enumerate(table.column_names)})
    plain = arrow.WriteOptions(include_header=False, delimiter=delimiter, quoting_style="needed")
    names = [with_apostrophes(header.column(i)) for i in range(header.num_columns)]
    arrow.write_csv(pa.table(names, names=header.column_names), file, plain)
    for start in range(0, table.num_rows, CHUNK):
        part = table.slice(start, CHUNK)
        for i in text:
            part = part.set_column(i, part.column_names[i], with_apostrophes(part.column(i)))
        arrow.write_csv(part, file, plain)
