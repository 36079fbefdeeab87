"""The embed command: turn pictures or texts into features, for `ltpll train TABLE --features`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ltpll.cli.console import print_line
from ltpll.cli.options import (
    Device,
    column_option,
    data_option,
    hardware_option,
    output_option,
    part_option,
)
from ltpll.cli.outputs import check_outputs
from ltpll.cli.tables import print_skipped
from ltpll.errors import InputError
from ltpll.formatting import command, counted

if TYPE_CHECKING:
    from ltpll.cli.progress import PictureProgress

JOIN = "When all parts are done, run the command without --part to join them."


def embed(
    context: typer.Context,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER_OR_TABLE",
            help="Folder of pictures, or a table that names them or holds texts: .csv, .tsv or "
            ".parquet.",
        ),
    ],
    backbone: Annotated[
        str,
        part_option(
            help="Pretrained network: efficientnet-lite0 for pictures, minilm for texts, a folder, "
            "an .onnx file or a name on the hub."
        ),
    ],
    out: Annotated[Path, output_option(help="File to write: .npy, one row per picture or text.")],
    images: Annotated[
        Path | None, data_option(help="Folder of the pictures that a table names.")
    ] = None,
    path: Annotated[
        str | None,
        column_option(help="Column of paths inside --images.", show_default="path, or else id"),
    ] = None,
    text: Annotated[str | None, column_option(help="Column of texts to embed.")] = None,
    on_error: Annotated[
        str,
        data_option(
            help="On a picture that cannot be read: stop, or skip it.", metavar="stop|skip"
        ),
    ] = "stop",
    part: Annotated[
        str | None,
        hardware_option(help="Embed a part of the rows, such as 3/8: one of several jobs."),
    ] = None,
    device: Device = "auto",
    precision: Annotated[str, hardware_option(help="float32 or bfloat16.")] = "float32",
) -> None:
    """Turn pictures or texts into features with a pretrained network, for `ltpll train --features`.

    Rows are in the order of the table, or of the sorted paths in the folder. Features are kept by
    content in $LTPLL_CACHE: rerun the command to resume an interrupted job.
    """
    source, out = source.expanduser(), out.expanduser()
    if text is not None:
        if images or path or on_error != "stop" or precision != "float32":
            raise InputError(
                "--images, --path, --on-error and --precision belong to pictures: leave them out "
                "with --text."
            )
        _embed_texts(context, source, text, backbone, out, part, device)
        return
    from ltpll.backbones import Backbone
    from ltpll.pictures.cache import embedding_cache_folder
    from ltpll.pictures.embedding import embedded_pictures
    from ltpll.pictures.files import list_pictures
    from ltpll.pictures.output import paths_in_table, rows_file, write_readable_rows
    from ltpll.tables.streaming import TABLE_SUFFIXES

    is_table = not source.is_dir()
    if is_table and images is None:
        raise InputError(
            f"{source} is not a folder: if it is a table that names pictures, give their folder "
            "with --images."
        )
    if not is_table and (images or path):
        raise InputError(f"{source} is a folder, but --images and --path belong to a table.")
    folder = images.expanduser() if images else source
    column, paths = paths_in_table(source, path) if is_table else ("", list_pictures(folder))
    suffix = source.suffix.lower() if source.suffix.lower() in TABLE_SUFFIXES else ".csv"
    left = [out.with_suffix(f".table{suffix}")] if is_table else []
    check_outputs(context, out, rows_file(out), *left, suffixes=[".npy"], makes_folder=True)
    network = Backbone.from_pretrained(backbone)
    with _progress("pictures") as progress:
        written = embedded_pictures(
            folder,
            paths if part is None else _part_of(paths, part),
            network,
            cache=embedding_cache_folder(),
            out=out,
            on_error=on_error,
            on_progress=progress,
            device=device,
            precision=precision,
        )
    _print_written(written.x, out)
    print_skipped(written.problems)
    print_line(f"The picture of each row: {rows_file(out)}")
    if part is not None:
        print_line(JOIN)
    elif is_table:
        table = source
        if written.problems:
            table = left[0]
            write_readable_rows(source, column, [name for name, _ in written.problems], table)
            print_line(f"The rows of {source} without the skipped pictures: {table}")
        print_line(f"Next: {command('ltpll', 'train', table, '--features', out)}")


def _embed_texts(
    context: typer.Context,
    source: Path,
    column: str,
    backbone: str,
    out: Path,
    part: str | None,
    device: str,
) -> None:
    from ltpll.pictures.cache import embedding_cache_folder
    from ltpll.pictures.output import rows_file
    from ltpll.text import SentenceEncoder
    from ltpll.text.embedding import embed_texts, read_texts

    check_outputs(context, out, rows_file(out), suffixes=[".npy"], makes_folder=True)
    rows = read_texts(source, column)
    if part is not None:
        rows = {name: _part_of(cells, part) for name, cells in rows.items()}
    encoder = SentenceEncoder.from_pretrained(backbone)
    with _progress("texts") as progress:
        features = embed_texts(
            rows,
            encoder,
            out,
            cache=embedding_cache_folder(),
            on_progress=progress,
            device=device,
        )
    _print_written(features, out)
    if encoder.n_cut:
        print_line(f"Too long to be read to their end: {counted(encoder.n_cut, 'text')}")
    following = command("ltpll", "train", source, "--features", out)
    print_line(JOIN if part is not None else f"Next: {following}")


@contextmanager
def _progress(what: str) -> Iterator[PictureProgress]:
    """Show progress; an interrupt says how to go on."""
    from ltpll.cli.progress import PictureProgress

    progress = PictureProgress(what)
    try:
        yield progress
        progress.finish()
    except KeyboardInterrupt:
        progress.close()  # before anything is printed below it
        print_line("Interrupted: rerun the command to resume.")
        raise typer.Exit(130) from None
    finally:
        progress.close()


def _print_written(features: Any, out: Path) -> None:
    n, n_features = features.shape
    print_line(f"Wrote {counted(n, 'row')} of {n_features:,} features to {out}")


def _part_of(paths: list[str], part: str) -> list[str]:
    """Every n-th path, beginning with the k-th, for a part k/n."""
    found = re.fullmatch(r"([1-9]\d{0,8})/([1-9]\d{0,8})", part)
    if found is None or int(found[1]) > int(found[2]):
        raise InputError(f"--part is {part!r}: give the number of this part and of all, as in 3/8.")
    return paths[int(found[1]) - 1 :: int(found[2])]
