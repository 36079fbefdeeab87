"""Sources: which pictures are embedded, all of a folder or those that a table names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError
from ltpll.formatting import format_names
from ltpll.pictures.files import list_pictures
from ltpll.tables.columns import TextColumn, id_key
from ltpll.tables.streaming import Table, open_table, whole_table
from ltpll.tables.writers import write_table

ID, PATH = "id", "path"


@dataclass(frozen=True)
class PictureList:
    """Pictures in order: their folder, their paths in it, and their ids; `table` and `example_of_row` if a table names them."""

    folder: Path
    paths: list[str]
    ids: list[str] | None = None
    table: Path | None = None
    example_of_row: npt.NDArray[np.int64] | None = None


def folder_source(folder: Path) -> PictureList:
    """All pictures of a folder and the folders below it."""
    return PictureList(folder, list_pictures(folder))


def table_source(
    table: Path,
    images: Path,
    *,
    id_column: str | None = None,
    path_column: str | None = None,
    task: str | None = None,
) -> PictureList:
    """The pictures that a table names, in the order in which `ltpll train` reads its examples.

    Args:
        table: A .csv, .tsv or .parquet file.
        images: The folder that the paths are relative to.
        id_column: The column of ids; by default `id`, if there is one.
        path_column: The column of paths; by default `path`, if there is one, and else the ids.
        task: For a table with several rows per example: the column that names the example.

    Raises:
        InputError: The table cannot be read, or has none of these columns.
    """
    opened = open_table(table)
    name = task or id_column or (ID if ID in opened.names else None)
    path = path_column or (PATH if PATH in opened.names else name)
    if path is None:
        raise InputError(
            f"{table} has neither a column {PATH} nor a column {ID} that names pictures: choose one of {format_names(opened.names)} "
            "with --path."
        )
    columns = {
        what: TextColumn(opened, opened.column(what))
        for what in dict.fromkeys([path, name or path])
    }
    for batch in opened.batches([column.index for column in columns.values()]):
        for column in columns.values():
            column.add(batch)
    if task is None:
        ids = columns[name or path].unique_values().tolist()
        return PictureList(images, columns[path].values().tolist(), ids, table, np.arange(len(ids)))
    return _tasks(opened, images, columns[task].values(), columns[path].values())


def _tasks(
    table: Table, images: Path, tasks: npt.NDArray[np.object_], paths: npt.NDArray[np.object_]
) -> PictureList:
    """One picture per task, in order of first appearance."""
    number: dict[str, int] = {}
    chosen: list[str] = []
    example = np.empty(len(tasks), dtype=np.int64)
    for i, (name, path) in enumerate(zip(tasks, paths, strict=True)):
        name, path = id_key(name), path.strip()
        if name not in number:
            number[name] = len(chosen)
            chosen.append(path)
        example[i] = number[name]
        if chosen[example[i]] != path:
            raise InputError(
                f"{table.row(i)} gives {name!r} another path than before: use one per example."
            )
    return PictureList(images, chosen, list(number), Path(table.path), example)


def write_kept_rows(source: PictureList, kept: Sequence[int], out: Path) -> None:
    """Write the rows of a source's table whose pictures were embedded, with all columns, in the format of the table."""
    import pyarrow as pa  # type: ignore[import-untyped]

    assert source.table is not None
    assert source.example_of_row is not None
    mask = pa.array(np.isin(source.example_of_row, np.asarray(kept, dtype=np.int64)))
    write_table(out, whole_table(source.table).filter(mask))
