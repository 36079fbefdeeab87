"""The `data` commands: prepare an image set from its published archives, and list what is prepared; `describe` has a file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.console import console
from ltpll.cli.describe import DataRoot, describe

app = typer.Typer(help="Prepare and list image sets, and describe candidate sets.", no_args_is_help=True)


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="An image set.", metavar="cifar10|cifar100|voc2007")],
    archive: Annotated[
        list[Path] | None, typer.Option(help="A published archive already on this disk; repeat for sets that have several.")
    ] = None,
    root: DataRoot = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="Take the given archives whatever their checksum.")] = False,
) -> None:
    """Download an image set, or take the archives given, and write it as plain arrays."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    from ltpll.data.benchmarks.image_sets import load_image_set, prepare_image_set

    tasks: dict[str, TaskID] = {}
    try:
        with Progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=console) as progress:

            def show(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = progress.add_task(what, total=total or None)
                progress.update(tasks[what], completed=done, total=total or None)

            folder = prepare_image_set(name, root, archive or (), show, check=not no_check)
    except KeyboardInterrupt:
        console.print("Interrupted: nothing was changed; the same command starts again.")
        raise typer.Exit(130) from None
    prepared = load_image_set(name, root, mmap=True)
    console.print(
        f"{name}: {len(prepared.y_train)} training and {len(prepared.y_test)} test images of {len(prepared.classes)} classes in {folder}",
        markup=False,
        soft_wrap=True,
    )


@app.command("list")
def list_sets(
    root: DataRoot = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare the checksum of every file.")] = False,
) -> None:
    """Show which image sets are prepared, and which are not yet."""
    from rich import box
    from rich.table import Table

    from ltpll.data.benchmarks.archives import PUBLISHED_ARCHIVES
    from ltpll.data.benchmarks.image_sets import data_root, list_image_sets

    listed = list_image_sets(root, verify=verify)
    prepared = [one for one in listed if one.prepared]
    if prepared:
        table = Table(box=box.SIMPLE, pad_edge=False)
        for heading, side in (("name", "left"), ("images", "right"), ("classes", "right"), ("size", "right"), ("checksums", "left")):
            table.add_column(heading, justify=side, no_wrap=True)  # type: ignore[arg-type]
        for one in prepared:
            state = "damaged" if one.problem else "ok" if one.verified else "not checked"
            numbers = (
                ("–", "–", "–") if one.problem else (f"{one.n_train} + {one.n_test}", str(one.n_classes), f"{one.n_bytes / 2**20:.1f} MiB")
            )
            table.add_row(one.name, *numbers, state)
        console.print(table)
        # Below the table and not in it, where a narrow terminal would break it so that it cannot be copied.
        console.print(f"images: training + test; each set is a folder in {data_root(root)}", markup=False, soft_wrap=True)
    else:
        console.print(f"No image set is prepared in {data_root(root)}.", markup=False, soft_wrap=True)
    for one in listed:
        if not one.prepared:
            archives = " and ".join(source.file_name for source in PUBLISHED_ARCHIVES[one.name])
            console.print(f"Not prepared: {one.name} (`ltpll data prepare {one.name}` downloads {archives}).", markup=False, soft_wrap=True)
    damaged = [one.problem for one in prepared if one.problem]
    for problem in damaged:
        console.print(problem, markup=False, soft_wrap=True)
    if damaged:
        raise typer.Exit(2)


app.command()(describe)
