"""Arrow: tables and columns of polars, pyarrow, Hugging Face and others, without importing these
libraries.
"""

from __future__ import annotations

from typing import Any

from ltpll.errors import InputError, first_line


def is_arrow(source: Any) -> bool:
    """Whether an object has Arrow's interface (PyCapsule) and is not from pandas, which is handled
    by its own methods.
    """
    exports = hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__")
    exports = exports or _is_from(source, "datasets")
    return exports and not isinstance(source, type) and not _is_from(source, "pandas")


def is_frame(source: Any) -> bool:
    """Whether an object is a table of pandas or one with Arrow's interface, not a single column."""
    named = hasattr(source, "columns") or hasattr(source, "column_names")
    return named and (_is_from(source, "pandas") or is_arrow(source))


def pandas_frame(source: Any) -> Any:
    """A table as a DataFrame of pandas; None if it is something else, such as an array."""
    if not is_frame(source):
        return None
    return arrow_table(source).to_pandas() if is_arrow(source) else source


def _is_from(source: Any, package: str) -> bool:
    return type(source).__module__.partition(".")[0] == package


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
        if _is_from(frame, "datasets"):
            return _hugging_face_table(frame)
        if hasattr(frame, "to_arrow"):  # of polars, whose other interface has types of its own
            return frame.to_arrow()
        return pa.Table.from_pandas(frame) if _is_from(frame, "pandas") else pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        which = f"The table cannot be read ({first_line(error)})"
        raise InputError(f"{which}: give every column values of one type.") from None


def arrow_list(column: Any) -> list[Any]:
    """The values of a column, with None for missing ones."""
    import pyarrow as pa

    if _is_from(column, "datasets"):
        column = arrow_table(column.source.select_columns([column.column_name])).column(0)
    chunks = column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.chunked_array(column)
    return list(chunks.to_pylist())


def _hugging_face_table(dataset: Any) -> Any:
    """A dataset of Hugging Face, with names in the place of the numbers of a `ClassLabel`."""
    if isinstance(dataset, dict):
        splits = ", ".join(map(repr, dataset))
        raise InputError(f"The dataset has splits ({splits}): give one of them, dataset[NAME].")
    table = dataset.with_format("arrow")[:]
    for place, (name, feature) in enumerate(dataset.features.items()):
        names = getattr(getattr(feature, "feature", feature), "names", None)
        if names is not None:
            named = [_named(value, names) for value in table.column(name).to_pylist()]
            table = table.set_column(place, name, [named])
    return table


def _named(value: Any, names: list[str]) -> Any:
    """The name of a class, or the names in a list; −1 stands for none."""
    if isinstance(value, list):
        return [_named(one, names) for one in value]
    return None if value is None or value < 0 else names[value]
