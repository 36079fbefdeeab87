"""Writers: tables of results, written atomically and safe to open in a spreadsheet."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.data.readers.columns import NUMBER
from ltpll.data.readers.streaming import TABLE_SUFFIXES
from ltpll.errors import InputError, first_line
from ltpll.formatting import counted

CHUNK = 1 << 16  # rows turned into text at a time

_RISKY = r"^[=+\-@\t\r]"


def write_table(path: Path, columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]]) -> None:
    """Write a table as .csv, .tsv or .parquet.

    An existing file is replaced only once the new one is complete. In text files, cells that a spreadsheet would run as a formula
    are prefixed with an apostrophe, and missing values (None, NaN) are empty cells.

    Args:
        path: The file; its suffix determines the format.
        columns: Sequences, or arrays of numpy or pyarrow, of equal length.

    Raises:
        InputError: The columns cannot be written, or the path cannot be written to.

    Examples:
        >>> write_table(Path("labels.csv"), {"id": ["a", "b"], "label": ["cat", "dog"]})
    """
    check_output_table(path)
    table = _as_arrow(path, columns)
    write_when_complete(path, _writing(path, table, lambda file: _write_text(table, file, _delimiter(path))))


def write_unmodified(path: Path, table: Any) -> None:
    """Write a user's own cells as .csv, .tsv or .parquet; unlike `write_table`, no cell is changed, so that the file can be read again.

    Args:
        path: The file; its suffix determines the format.
        table: A pyarrow table, or a mapping from names to columns.

    Raises:
        InputError: The path cannot be written to.
    """
    from pyarrow import csv as arrow  # type: ignore[import-untyped]

    check_output_table(path)
    if isinstance(table, Mapping):
        table = _as_arrow(path, table)
    options = arrow.WriteOptions(delimiter=_delimiter(path))
    write_when_complete(path, _writing(path, table, lambda file: arrow.write_csv(table, file, options)))


def _delimiter(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _writing(path: Path, table: Any, write_text: Callable[[Any], None]) -> Callable[[Any], None]:
    """A function that writes a Parquet file, or a text file with the given function."""

    def write(file: Any) -> None:
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet as pq  # type: ignore[import-untyped]

            pq.write_table(table, file)
        else:
            write_text(file)

    return write


def write_when_complete(path: Path, write: Callable[[Any], None]) -> None:
    """Write a file with a function that is given the open binary file; an existing file is replaced when the new one is complete."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror or error}).") from None
    finally:
        with suppress(OSError):  # a folder that cannot be written to may not allow deleting either
            temporary.unlink(missing_ok=True)


def check_output_table(path: Path, *others: str) -> None:
    """Refuse a path to which no table can be written, or another kind of file with one of these suffixes; call this before computing."""
    if path.suffix.lower() not in (*TABLE_SUFFIXES, *others):
        raise InputError(f"{path} must end in {', '.join((*TABLE_SUFFIXES, *others))}, which determines the format.")
    if path.is_dir():
        raise InputError(f"{path} is a folder: give the name of a file.")
    if not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent} to write {path.name} to: create it first.")


def _as_arrow(path: Path, columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]]) -> Any:
    import pyarrow as pa

    if not columns:
        raise InputError(f"There are no columns to write to {path}.")
    sizes = {name: len(values) for name, values in columns.items()}
    first = next(iter(sizes))
    uneven = next((name for name, size in sizes.items() if size != sizes[first]), None)
    if uneven is not None:
        raise InputError(
            f"Columns of {path} differ in length: {first!r} has {counted(sizes[first], 'row')}, {uneven!r} has {sizes[uneven]}."
        )
    arrays = {}
    for name, values in columns.items():
        try:
            if isinstance(values, pa.Array):
                array = values
            else:
                array = pa.array(np.ascontiguousarray(values) if isinstance(values, np.ndarray) else list(values), from_pandas=True)
        except (pa.ArrowException, UnicodeError, OverflowError) as error:
            raise InputError(f"The column {name!r} cannot be written to {path} ({first_line(error)}): give values of one type.") from None
        if pa.types.is_nested(array.type) and path.suffix.lower() != ".parquet":
            raise InputError(f"The column {name!r} holds lists, which {path.suffix} cannot store: join them to text, or write .parquet.")
        arrays[str(name)] = array
    return pa.table(arrays)


def _write_text(table: Any, file: Any, delimiter: str) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]
    from pyarrow import csv as arrow

    if table.num_columns == 1:  # a missing value would be a blank line, which readers skip
        table = table.set_column(0, table.column_names[0], pc.fill_null(table.column(0).cast(pa.string()), ""))
    text = [i for i, column in enumerate(table.columns) if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)]
    header = pa.table({str(i): pa.array([name]) for i, name in enumerate(table.column_names)})
    plain = arrow.WriteOptions(include_header=False, delimiter=delimiter, quoting_style="needed")
    names = [_safe(header.column(i)) for i in range(header.num_columns)]
    arrow.write_csv(pa.table(names, names=header.column_names), file, plain)
    for start in range(0, table.num_rows, CHUNK):
        part = table.slice(start, CHUNK)
        for i in text:
            part = part.set_column(i, part.column_names[i], _safe(part.column(i)))
        arrow.write_csv(part, file, plain)


def _safe(column: Any) -> Any:
    """Prefix texts that a spreadsheet would take for formulas with an apostrophe; numbers such as −1 are safe."""
    import pyarrow.compute as pc

    risky = pc.and_(pc.match_substring_regex(column, _RISKY), pc.invert(pc.match_substring_regex(column, NUMBER)))
    return pc.if_else(pc.fill_null(risky, False), pc.binary_join_element_wise("'", column, ""), column)
