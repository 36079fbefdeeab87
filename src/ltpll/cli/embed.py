"""The embed command: turn pictures into features with a pretrained network, for `ltpll train --features`."""

from __future__ import annotations

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
    from ltpll.pictures.sources import PictureList


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
        str, part_option(help="Pretrained network: a name such as efficientnet-lite0, or a folder.")
    ],
    out: Annotated[Path, output_option(help="File to write: .npy, one row per picture.")],
    images: Annotated[
        Path | None, data_option(help="Folder of the pictures that a table names.")
    ] = None,
    on_error: Annotated[
        str,
        data_option(
            help="On a picture that cannot be read: stop, or skip it.", metavar="stop|skip"
        ),
    ] = "stop",
    id_column: Annotated[
        str | None, column_option("--id", help="Column of ids.", show_default="id, if there is one")
    ] = None,
    path_column: Annotated[
        str | None,
        column_option(
            "--path", help="Column of paths inside --images.", show_default="path, or else the ids"
        ),
    ] = None,
    task: Annotated[
        str | None,
        column_option(
            help="In a table of annotations: column of annotated examples, each of which is embedded once."
        ),
    ] = None,
    cache: Annotated[
        bool,
        output_option(
            "--cache/--no-cache",
            help="Keep embeddings by content in $LTPLL_CACHE, so that none is computed twice.",
        ),
    ] = True,
    fresh: Annotated[
        bool, output_option("--fresh", help="Discard what this command wrote earlier to --out.")
    ] = False,
    device: Device = "auto",
    precision: Annotated[str, hardware_option(help="float32 or bfloat16.")] = "float32",
    workers: Annotated[
        int | None,
        hardware_option(
            help="Processes that decode pictures.", show_default="one per core but one", min=0
        ),
    ] = None,
    launcher: Annotated[
        str,
        hardware_option(
            help="local, or ray: a Ray Data job (pip install 'ltpll\\[ray]').", metavar="local|ray"
        ),
    ] = "local",
    ray_address: Annotated[
        str | None,
        hardware_option(
            help="Address of a Ray cluster, such as auto.", show_default="start Ray on this machine"
        ),
    ] = None,
) -> None:
    """Turn pictures into features with a pretrained network, for `ltpll train TABLE --features`.

    Rows are in the order of the table, or of the sorted paths in the folder. Rerun the command to resume an interrupted job.
    """
    from ltpll.backbones import Backbone
    from ltpll.cli.progress import PictureProgress
    from ltpll.pictures.cache import cache_root
    from ltpll.pictures.output import embed_pictures

    if launcher not in ("local", "ray"):
        raise InputError(f"There is no launcher {launcher!r}: choose local or ray.")
    out = out.expanduser()
    pictures = _pictures(
        source.expanduser(), images and images.expanduser(), id_column, path_column, task
    )
    left = (
        None
        if pictures.table is None
        else out.with_suffix(f".table{pictures.table.suffix.lower()}")
    )
    beside = [out.with_suffix(".rows.csv"), out.with_suffix(".job.json"), *([left] if left else [])]
    check_outputs(context, out, *beside, suffixes=[".npy"], makes_folder=True)
    network = Backbone.from_pretrained(backbone)
    how: dict[str, Any] = {
        "cache": cache_root() if cache else None,
        "device": device,
        "precision": precision,
        "workers": workers,
    }
    if launcher == "ray":
        from ltpll.pictures.on_ray import ray_stream

        how["stream"] = ray_stream(
            network, device=device, precision=precision, workers=workers, address=ray_address
        )
    progress = PictureProgress()
    try:
        written = embed_pictures(
            pictures.folder,
            pictures.paths,
            network,
            out,
            ids=pictures.ids,
            on_error=on_error,
            on_progress=progress,
            fresh=fresh,
            **how,
        )
        if not written.earlier:
            progress.finish()
    except KeyboardInterrupt:
        progress.close()  # before anything is printed below it
        print_line("Interrupted: rerun the command to resume.")
        raise typer.Exit(130) from None
    finally:
        progress.close()
    if written.earlier:
        print_line(f"This file was finished earlier (--fresh computes it again): {out}")
    else:
        print_line(
            f"Wrote {counted(len(written.kept), 'row')} of {written.n_features:,} features to {out}"
        )
    print_skipped(written.problems)
    _print_next(pictures, written.kept, left, out, task)


def _pictures(
    source: Path,
    images: Path | None,
    id_column: str | None,
    path_column: str | None,
    task: str | None,
) -> PictureList:
    from ltpll.pictures.sources import folder_source, table_source

    if not source.is_dir():
        if images is None:
            raise InputError(
                f"{source} is not a folder: if it is a table that names pictures, give their folder with --images."
            )
        return table_source(source, images, id_column=id_column, path_column=path_column, task=task)
    given = {"--images": images, "--id": id_column, "--path": path_column, "--task": task}
    useless = next((name for name, value in given.items() if value is not None), None)
    if useless is not None:
        raise InputError(
            f"{source} is a folder, all of whose pictures are embedded, but {useless} belongs to a table: leave it out."
        )
    return folder_source(source)


def _print_next(
    pictures: PictureList, kept: list[int], left: Path | None, out: Path, task: str | None
) -> None:
    """Print the command that trains on the file; if pictures were skipped, their rows have to leave the table."""
    from ltpll.pictures.sources import write_kept_rows

    if left is None:
        print_line(f"The picture of each row: {out.with_suffix('.rows.csv')}")
        return
    table = pictures.table
    if len(kept) < len(pictures.paths):
        write_kept_rows(pictures, kept, left)
        print_line(f"The rows of {pictures.table} without the skipped pictures: {left}")
        table = left
    annotations = [] if task is None else ["--from-annotators", "union", "--task", task]
    print_line(f"Next: {command('ltpll', 'train', table, *annotations, '--features', out)}")
