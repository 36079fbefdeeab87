"""The `data` commands: prepare and list image sets, and describe the candidate sets of experiments on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.console import console, print_line
from ltpll.cli.options import data_option
from ltpll_research.cli.describe import describe
from ltpll_research.cli.options import DataRoot, ExperimentCommand

app = typer.Typer(
    help="Prepare and list image sets, and describe the candidate sets of experiments.",
    no_args_is_help=True,
)


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
    no_check: Annotated[
        bool, data_option("--no-check", help="Do not verify the checksums of the given archives.")
    ] = False,
) -> None:
    """Download an image set, or read it from given archives, and write it as plain arrays."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
    )

    from ltpll_research.image_sets.prepared import load_image_set, prepare_image_set

    tasks: dict[str, TaskID] = {}
    try:
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=console,
        ) as progress:

            def show(file: str, done: int, total: int) -> None:
                if file not in tasks:
                    tasks[file] = progress.add_task(file, total=total or None)
                progress.update(tasks[file], completed=done, total=total or None)

            folder = prepare_image_set(name, root, archive or (), show, check=not no_check)
    except KeyboardInterrupt:
        console.print("Interrupted: nothing was changed. Rerun the command to start again.")
        raise typer.Exit(130) from None
    prepared = load_image_set(name, root, mmap=True)
    sizes = f"{len(prepared.y_train)} training and {len(prepared.y_test)} test images of {len(prepared.classes)} classes"
    print_line(f"{name}: {sizes} in {folder}")


@app.command("list")
def data_list(
    root: DataRoot = None,
    verify: Annotated[
        bool, data_option("--verify", help="Verify the checksum of every file.")
    ] = False,
) -> None:
    """Show which image sets are prepared."""
    from rich import box
    from rich.table import Table

    from ltpll_research.image_sets.archives import PUBLISHED_ARCHIVES
    from ltpll_research.image_sets.prepared import data_root, list_image_sets

    listed = list_image_sets(root, verify=verify)
    prepared = [image_set for image_set in listed if image_set.prepared]
    if prepared:
        table = Table(box=box.SIMPLE, pad_edge=False)
        for heading, side in (
            ("name", "left"),
            ("images", "right"),
            ("classes", "right"),
            ("size", "right"),
            ("checksums", "left"),
        ):
            table.add_column(heading, justify=side, no_wrap=True)  # type: ignore[arg-type]
        for found in prepared:
            state = "damaged" if found.problem else "ok" if found.verified else "not checked"
            numbers = (
                f"{found.n_train} + {found.n_test}",
                str(found.n_classes),
                f"{found.n_bytes / 2**20:.1f} MiB",
            )
            table.add_row(found.name, *(("–", "–", "–") if found.problem else numbers), state)
        console.print(table)
        # Below the table, because a narrow terminal would break the path inside it, and it could not be copied.
        print_line(f"images: training + test; each set is a folder in {data_root(root)}")
    else:
        print_line(f"No image set is prepared in {data_root(root)}.")
    for missing in listed:
        if not missing.prepared:
            archives = " and ".join(source.file_name for source in PUBLISHED_ARCHIVES[missing.name])
            print_line(
                f"Not prepared: {missing.name} (`ltpll-research data prepare {missing.name}` downloads {archives})."
            )
    damaged = [found.problem for found in prepared if found.problem]
    for problem in damaged:
        print_line(problem)
    if damaged:
        raise typer.Exit(2)


app.command(cls=ExperimentCommand)(describe)
