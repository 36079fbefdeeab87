"""The `data` commands: prepare and list image sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ltpll.cli.console import console, print_line
from ltpll.errors import InputError
from ltpll_research.cli.options import DataRoot, data_option

if TYPE_CHECKING:
    from ltpll_research.image_sets.prepared import Meta

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
    from ltpll_research.image_sets.prepared import prepare_image_set, read_meta

    try:
        folder = prepare_image_set(name, root, archive or ())
    except KeyboardInterrupt:
        console.print("Interrupted: nothing was changed. Rerun the command to start again.")
        raise typer.Exit(130) from None
    print_line(_described(folder, read_meta(folder)))


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
            print_line(_described(folder, read_meta(folder, verify=verify)))
        except InputError as error:
            damaged = True
            print_line(f"{name}: {error}")
    if damaged:
        raise typer.Exit(2)


def _described(folder: Path, meta: Meta) -> str:
    return (
        f"{meta.name}: {meta.n_train} training and {meta.n_test} test images of "
        f"{len(meta.classes)} classes in {folder}"
    )
