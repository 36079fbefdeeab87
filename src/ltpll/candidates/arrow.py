"""Arrow: tables and columns of polars, pyarrow and others, without importing these libraries."""

from __future__ import annotations

from typing import Any

from ltpll.errors import InputError, first_line


def is_arrow(source: Any) -> bool:
    """Whether an object has Arrow's interface (PyCapsule) and is not from pandas, which is handled
    by its own methods.
    """
    exports = hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__")
    return exports and not isinstance(source, type) and not _is_pandas(source)


def is_frame(source: Any) -> bool:
    """Whether an object is a table of pandas or one with Arrow's interface, not a single column."""
    return (_is_pandas(source) or is_arrow(source)) and hasattr(source, "columns")


def pandas_frame(source: Any) -> Any:
    """A table as a DataFrame of pandas; None if it is something else, such as an array."""
    if not is_frame(source):
        return None
    return arrow_table(source).to_pandas() if is_arrow(source) else source


def _is_pandas(source: Any) -> bool:
    return type(source).__module__.partition(".")[0] == "pandas"


def arrow_table(frame: Any) -> Any:
    """A table as a pyarrow Table.

    Raises:
        InputError: A column cannot be converted, for example because it holds values of several
            types.
    """
    import pyarrow as pa  # type: ignore[import-untyped]

    try:
        if isinstance(frame, pa.Table):
            return frame
        if hasattr(frame, "to_arrow"):  # of polars, whose other interface has types of its own
            return frame.to_arrow()
        return pa.Table.from_pandas(frame) if _is_pandas(frame) else pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        which = f"The table cannot be read ({first_line(error)})"
        raise InputError(f"{which}: give every column values of one type.") from None


def arrow_list(column: Any) -> list[Any]:
    """The values of a column, with None for missing ones."""
    import pyarrow as pa

    chunks = column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.chunked_array(column)
    return list(chunks.to_pylist())
