"""The embed command: turn pictures into features, for `ltpll train TABLE --features`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.console import print_line, print_skipped
from ltpll.cli.options import Device, OnError, data_option, output_option
from ltpll.cli.outputs import check_outputs
from ltpll.errors import InputError
from ltpll.formatting import command, counted


def embed(
    context: typer.Context,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER_OR_TABLE",
            help="Folder of pictures, or a table that names them: .csv, .tsv or .parquet.",
        ),
    ],
    backbone: Annotated[
        str,
        data_option(help="Pretrained network: efficientnet-lite0, a folder or a name on the hub."),
    ],
    out: Annotated[Path, output_option(help="File to write: .npy, one row per picture.")],
    images: Annotated[
        Path | None, data_option(help="Folder of the pictures that a table names.")
    ] = None,
    path: Annotated[
        str | None,
        data_option(help="Column of paths inside --images.", show_default="path, or else id"),
    ] = None,
    on_error: OnError = "stop",
    part: Annotated[
        str | None,
        data_option(help="Embed a part of the rows, such as 3/8: one of several jobs."),
    ] = None,
    device: Device = "auto",
    precision: Annotated[str, data_option(help="float32 or bfloat16.")] = "float32",
) -> None:
    """Turn pictures into features with a pretrained network, for `ltpll train --features`.

    Rows are in the order of the table, or of the sorted paths in the folder. Features are kept by
    content in $LTPLL_CACHE: rerun the command to resume an interrupted job.
    """
    from ltpll.cli.reading import reading_progress
    from ltpll.pictures.cache import embedding_cache_folder
    from ltpll.pictures.embedding import embedded_pictures
    from ltpll.pictures.output import rows_file, write_readable_rows
    from ltpll.tables.streaming import TABLE_SUFFIXES

    source, out = source.expanduser(), out.expanduser()
    suffix = source.suffix.lower()
    left = out.with_suffix(f".table{suffix if suffix in TABLE_SUFFIXES else '.csv'}")
    check_outputs(context, out, rows_file(out), left, suffixes=[".npy"], makes_folder=True)
    folder, column, paths = _named_pictures(source, path, images)
    from ltpll.backbones import Backbone

    with reading_progress() as on_progress:
        found = embedded_pictures(
            folder,
            _part_of(paths, part),
            Backbone.from_pretrained(backbone),
            out=out,
            cache=embedding_cache_folder(),
            device=device,
            on_error=on_error,
            precision=precision,
            on_progress=lambda done, total: on_progress("pictures", done, total),
        )
    n, n_features = found.x.shape
    print_line(f"Wrote {counted(n, 'row')} of {n_features:,} features to {out}")
    print_skipped(found.problems)
    print_line(f"The picture of each row: {rows_file(out)}")
    if part is not None:
        print_line("When all parts are done, run the command without --part to join them.")
        return
    if column is None:
        return
    if found.problems:
        write_readable_rows(source, column, [name for name, _ in found.problems], left)
        print_line(f"The rows of {source} without the skipped pictures: {left}")
        source = left
    print_line(f"Next: {command('ltpll', 'train', source, '--features', out)}")


def _named_pictures(
    source: Path, column: str | None, images: Path | None
) -> tuple[Path, str | None, list[str]]:
    """The folder of the pictures, the column of a table that names them, and their paths."""
    from ltpll.pictures.files import list_pictures
    from ltpll.pictures.output import paths_in_table

    if source.is_dir():
        if images or column:
            raise InputError(f"{source} is a folder, but --images and --path belong to a table.")
        return source, None, list_pictures(source)
    if images is None:
        raise InputError(
            f"{source} is not a folder: if it is a table that names pictures, give their "
            "folder with --images."
        )
    return images.expanduser(), *paths_in_table(source, column)


def _part_of(rows: list[str], part: str | None) -> list[str]:
    """Every n-th row, beginning with the k-th, for a part k/n."""
    if part is None:
        return rows
    found = re.fullmatch(r"([1-9]\d{0,8})/([1-9]\d{0,8})", part)
    if found is None or int(found[1]) > int(found[2]):
        raise InputError(f"--part is {part!r}: give the number of this part and of all, as in 3/8.")
    return rows[int(found[1]) - 1 :: int(found[2])]
