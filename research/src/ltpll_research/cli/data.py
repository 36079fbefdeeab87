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


@app.command()
def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder of one folder per class, of idx files or of SVHN's .mat files; an .npz "
            "archive; or, with --labels, a prepared image set.",
        ),
    ],
    name: Annotated[
        str | None, data_option(help="Name of the set.", show_default="that of the source")
    ] = None,
    side: Annotated[
        int | None,
        data_option(
            min=4, help="Scale pictures to squares of so many pixels.", show_default="32 to 128"
        ),
    ] = None,
    test_share: Annotated[
        float, data_option(help="Share of each class to hold out where there is no test folder.")
    ] = 0.2,
    labels: Annotated[
        Path | None,
        data_option(help="Labels of people, which become candidate sets: .npy, .npz or .json."),
    ] = None,
    combine: Annotated[
        str,
        data_option(
            help="What becomes of the sets of several people: their union, or the largest.",
            metavar="union|largest",
        ),
    ] = "union",
    root: DataRoot = None,
) -> None:
    """Make an image set of what you have, for `ltpll-research benchmark NAME`."""
    from ltpll_research.image_sets.convert import check_name, read_images, with_labels_of_people
    from ltpll_research.image_sets.prepared import (
        IMAGE_SETS,
        folder_of_image_set,
        load_image_set,
        read_meta,
        write_image_set,
    )

    prepared = folder_of_image_set(source, root)
    is_prepared = source in IMAGE_SETS or (prepared / "meta.json").is_file()
    stem = Path(source).expanduser().resolve().stem
    chosen = check_name(name or (f"{stem}-{labels.stem}" if labels else stem))
    if is_prepared and labels is None:
        raise InputError(f"{source} is an image set already: use it, or give --labels.")
    if is_prepared:
        images = load_image_set(source, root)._replace(name=chosen)
    else:
        images = read_images(Path(source).expanduser(), chosen, side=side, test_share=test_share)
    if labels is not None:
        images = with_labels_of_people(images, labels, combine)
    folder = write_image_set(images, root)
    print_line(_described(folder, read_meta(folder)))


@app.command("list")
def data_list(
    root: DataRoot = None,
    verify: Annotated[
        bool, data_option("--verify", help="Verify the checksum of every file.")
    ] = False,
) -> None:
    """Show which image sets are prepared."""
    from ltpll_research.image_sets.prepared import IMAGE_SETS, META, data_root, read_meta

    damaged = False
    converted = sorted(path.parent.name for path in data_root(root).glob(f"*/{META}"))
    for name in dict.fromkeys([*IMAGE_SETS, *converted]):
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
    if meta.n_train is None:
        return f"{folder.name}: {len(meta.classes)} classes in {folder}"
    return (
        f"{folder.name}: {meta.n_train} training and {meta.n_test} test images of "
        f"{len(meta.classes)} classes in {folder}"
    )
