"""The `data` commands: prepare and list image sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.console import console, print_line
from ltpll.errors import InputError
from ltpll_research.cli.options import DataRoot, data_option

app = typer.Typer(help="Prepare and list image sets.", no_args_is_help=True)


@app.command()
def prepare(
    name: Annotated[
        str, typer.Argument(help="Image set to prepare.", metavar="cifar10|cifar100|voc2007")
    ],
    archive: Annotated[
        list[Path] | None,
        data_option(
            help="Published archive that you already have; repeat it for image sets with several."
        ),
    ] = None,
    root: DataRoot = None,
) -> None:
    """Download an image set, or read it from given archives, and write it as plain arrays."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

    from ltpll_research.image_sets.prepared import load_image_set, prepare_image_set

    tasks: dict[str, TaskID] = {}
    columns = (TextColumn("downloading {task.description}"), BarColumn(), DownloadColumn())
    try:
        with Progress(*columns, console=console) as progress:

            def show(file: str, done: int, total: int) -> None:
                if file not in tasks:
                    tasks[file] = progress.add_task(file)
                progress.update(tasks[file], completed=done, total=total or None)

            folder = prepare_image_set(name, root, archive or (), show)
    except KeyboardInterrupt:
        console.print("Interrupted: nothing was changed. Rerun the command to start again.")
        raise typer.Exit(130) from None
    prepared = load_image_set(name, root, mmap=True)
    print_line(
        f"{name}: {len(prepared.y_train)} training and {len(prepared.y_test)} test images of "
        f"{len(prepared.classes)} classes in {folder}"
    )


@app.command("list")
def data_list(
    root: DataRoot = None,
    verify: Annotated[
        bool, data_option("--verify", help="Verify the checksum of every file.")
    ] = False,
) -> None:
    """Show which image sets are prepared."""
    from ltpll_research.image_sets.prepared import IMAGE_SETS, data_root, read_meta

    damaged = False
    for name in IMAGE_SETS:
        folder = data_root(root) / name
        if not folder.exists():
            print_line(f"{name}: not prepared; run `ltpll-research data prepare {name}`")
            continue
        try:
            meta = read_meta(folder, verify=verify)
            print_line(
                f"{name}: {meta.n_train} training and {meta.n_test} test images of "
                f"{len(meta.classes)} classes in {folder}"
            )
        except InputError as error:
            damaged = True
            print_line(f"{name}: {error}")
    if damaged:
        raise typer.Exit(2)
