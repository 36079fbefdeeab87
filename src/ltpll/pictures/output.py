"""Output: embeddings in an .npy file, and the table beside it that names their pictures."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ltpll.errors import InputError
from ltpll.files import check_output, remove_leftovers, write_when_complete
from ltpll.formatting import counted, format_names
from ltpll.pictures.embedding import EmbeddedBlock, embedded_blocks
from ltpll.pictures.reading import PictureRows
from ltpll.tables.columns import TextColumn, read_rows
from ltpll.tables.opening import open_table, whole_table
from ltpll.tables.streaming import Table
from ltpll.tables.writers import write_table

if TYPE_CHECKING:
    from ltpll.backbones import Backbone

ROW = "row"  # the column of the table beside the file that numbers its rows, from 0
ID, PATH = "id", "path"


def rows_file(out: Path) -> Path:
    """The table beside a file of embeddings that names the picture of every row."""
    return out.with_suffix(".rows.csv")


def embed_pictures(
    folder: Path,
    paths: Sequence[str],
    backbone: Backbone,
    out: Path,
    *,
    cache: Path,
    on_error: str = "stop",
    on_progress: Callable[[int, int], None] | None = None,
    device: str = "auto",
    precision: str = "float32",
) -> PictureRows:
    """Embed pictures into an .npy file of shape (pictures, features), in constant memory.

    The file appears when it is complete, with a table beside it, `.rows.csv`, that gives the
    picture of every row and the reason for every picture that was left out. After an interrupt or
    a crash, the same call takes what was done from the cache.

    Args:
        folder, paths, backbone, cache, on_error, device, precision: As for `embedded_pictures`.
        out: The file to write.
        on_progress: Called with the number of pictures that are done and the total.

    Returns:
        The features, mapped from the file, and the problems of the pictures that were left out.

    Raises:
        InputError: A picture cannot be read, or `out` cannot be written.

    Examples:
        >>> from ltpll.backbones import Preprocessing
        >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.AdaptiveAvgPool2d(1))
        >>> backbone = Backbone(network, Preprocessing(side=32))
        >>> out, paths = Path("features.npy"), ["a.jpg", "b.jpg"]
        >>> embed_pictures(Path("photos"), paths, backbone, out, cache=Path("cache")).x.shape
        (2, 8)
    """
    if not paths:
        raise InputError(f"There are no pictures to embed in {folder}.")
    how: dict[str, Any] = {"on_error": on_error, "device": device, "precision": precision}
    blocks = embedded_blocks(folder, paths, backbone, cache, **how)
    names = {PATH: list(paths)}
    return write_features(out, len(paths), backbone.n_features, blocks, names, on_progress)


def write_features(
    out: Path,
    n_rows: int,
    n_features: int,
    blocks: Generator[EmbeddedBlock],
    names: Mapping[str, Sequence[str]],
    on_progress: Callable[[int, int], object] | None = None,
) -> PictureRows:
    """Write blocks of features to an .npy file, and the table beside it.

    Args:
        out: The file to write.
        n_rows, n_features: The size of all blocks together.
        blocks: The features, in order.
        names: The columns of the table beside the file that name its rows.
        on_progress: Called with the number of rows that are done and the total.

    Raises:
        InputError: `out` cannot be written.
    """
    check_output(out, [".npy"], makes_folder=True)
    kept: list[int] = []
    problems: dict[int, str] = {}

    def write(file: Any) -> None:
        header = {"descr": "<f4", "fortran_order": False}
        # numpy leaves room for any number of rows.
        np.lib.format.write_array_header_1_0(file, header | {"shape": (0, n_features)})
        if on_progress is not None:
            on_progress(0, n_rows)
        with closing(blocks):
            for block in blocks:
                file.write(np.ascontiguousarray(block.features, "<f4").data)
                kept.extend(block.kept)
                problems.update(block.problems)
                if on_progress is not None:
                    on_progress(len(kept) + len(problems), n_rows)
        file.seek(0)
        np.lib.format.write_array_header_1_0(file, header | {"shape": (len(kept), n_features)})

    remove_leftovers(out.parent, out.name)
    write_when_complete(out, write)
    number = {row: i for i, row in enumerate(kept)}
    rows = range(n_rows)
    columns: dict[str, Any] = {ROW: [number.get(row) for row in rows], **names}
    write_table(rows_file(out), columns | {"problem": [problems.get(row, "") for row in rows]})
    first = next(iter(names.values()), [""] * n_rows)
    listed = [(str(first[row]), reason) for row, reason in problems.items()]
    return PictureRows(np.load(out, mmap_mode="r"), np.asarray(kept, dtype=np.int64), listed)


def read_picture_names(out: Path, n: int) -> dict[str, list[str]]:
    """The paths or ids of the n rows of an .npy file, as `ltpll embed` wrote them beside it.

    Returns:
        For each of "path" and "id", as far as they are there, the text of every row; nothing if
        `ltpll embed` did not write the file, or the rows have no names.

    Raises:
        InputError: The table beside the file is about another number of rows.
    """
    path = rows_file(out)
    if out.suffix.lower() != ".npy" or not path.is_file():
        return {}
    table = open_table(path)
    if ROW not in table.names or not {PATH, ID} & set(table.names):
        return {}  # not ours
    columns = texts_of_columns(table, [name for name in (ROW, ID, PATH) if name in table.names])
    numbers = columns.pop(ROW)
    place = {int(row) if row.isdecimal() else -1: i for i, row in enumerate(numbers) if row}
    if sorted(place) != list(range(n)):
        raise InputError(
            f"{path} does not name the {counted(n, 'row')} of {out.name}, so the two do not belong "
            "together: run `ltpll embed` again, or move one of them elsewhere."
        )
    return {name: [texts[place[row]] for row in range(n)] for name, texts in columns.items()}


# ---- tables that name pictures -------------------------------------------------------------------


def paths_in_table(path: Path, name: str | None = None) -> tuple[str, list[str]]:
    """The column of a table that names pictures, and the different paths in it, in order.

    Args:
        path: The table.
        name: The column; by default path, or else id.

    Raises:
        InputError: The table cannot be read, or has no such column.
    """
    table = open_table(path)
    found = name or next((one for one in (PATH, ID) if one in table.names), None)
    if found is None:
        raise InputError(
            f"{path} has neither a column {PATH} nor a column {ID} that names pictures: choose one "
            f"of {format_names(table.names)} with --path."
        )
    return found, list(dict.fromkeys(texts_of_columns(table, [found])[found]))


def write_readable_rows(path: Path, column: str, unreadable: Sequence[str], out: Path) -> None:
    """Write the rows of a table that name none of these paths, with all columns."""
    left_out = set(unreadable)
    names = texts_of_columns(open_table(path), [column])[column]
    write_table(out, whole_table(path).filter([name not in left_out for name in names]))


def texts_of_columns(table: Table, names: Sequence[str]) -> dict[str, list[str]]:
    """The cells of some columns of a table."""
    columns = {name: TextColumn(table, table.column(name)) for name in names}
    read_rows(table, columns.values())
    return {name: column.values().tolist() for name, column in columns.items()}
