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
    """A table as a pyarrow Table, whose text and lists have the types that all of pyarrow's
    functions support.

    Raises:
        InputError: A column cannot be converted, for example because it holds values of several
            types.
    """
    import pyarrow as pa  # type: ignore[import-untyped]

    try:
        convert = pa.Table.from_pandas if _is_pandas(frame) else pa.table
        table = frame if isinstance(frame, pa.Table) else convert(frame)
        columns = [_column_without_views(column) for column in table.columns]
        return pa.Table.from_arrays(columns, names=table.column_names)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        which = f"The table cannot be read ({first_line(error)})"
        raise InputError(f"{which}: give every column values of one type.") from None


def arrow_list(column: Any) -> list[Any]:
    """The values of a column, with None for missing ones."""
    import pyarrow as pa

    chunks = column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.chunked_array(column)
    return list(chunks.to_pylist())


def _column_without_views(column: Any) -> Any:
    """A column without views.

    The values of a dictionary are converted by hand, because pyarrow cannot.
    """
    import pyarrow as pa

    text = pa.large_string()
    if pa.types.is_dictionary(column.type) and column.type.value_type == pa.string_view():
        chunks = [
            pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(text))
            for chunk in column.chunks
        ]
        return pa.chunked_array(chunks, pa.dictionary(column.type.index_type, text))
    plain = _type_without_views(column.type)
    return column if plain == column.type else column.cast(plain)


def _type_without_views(kind: Any) -> Any:
    """The type without views, which some functions of pyarrow lack."""
    import pyarrow as pa

    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    if kind in views:
        return views[kind]
    large = (pa.types.is_list_view, pa.types.is_large_list_view, pa.types.is_large_list)
    if any(is_kind(kind) for is_kind in large):
        return pa.large_list(_type_without_views(kind.value_type))
    if pa.types.is_list(kind):
        return pa.list_(_type_without_views(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_type_without_views(kind.value_type), kind.list_size)
    return kind
