"""The probe and tsne commands: how good the features of a finished benchmark run are."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ltpll_research.cli.options as opt
from ltpll.cli.console import console, print_line
from ltpll.cli.outputs import PICTURES, check_outputs
from ltpll.errors import InputError
from ltpll.files import write_atomically

if TYPE_CHECKING:
    from ltpll.runs.run import Run
    from ltpll.training.trainer import PartialLabelTrainer
    from ltpll_research.image_sets.prepared import ImageSet

BenchmarkRun = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder of a benchmark run, with its checkpoint.")
]
ProbeSeed = Annotated[
    int, opt.training_option("--seed", help="Seed of the choice of examples and of the training.")
]


def probe(
    folder: BenchmarkRun,
    shots: Annotated[
        str,
        opt.data_option(
            help="Examples per class, for one classifier each: numbers, or full for the largest "
            "balanced set."
        ),
    ] = "full 100 50",
    data_root: opt.DataRoot = None,
    epochs: Annotated[
        int,
        opt.training_option(min=1, help="Epochs of each linear classifier; the paper uses 500."),
    ] = 500,
    seed: ProbeSeed = 0,
    device: opt.Device = "auto",
) -> None:
    """Train linear classifiers on the features of a run with balanced labels, as the paper does.

    The result is kept in the run folder.
    """
    from rich import box
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table

    from ltpll_research.probe import probe as probe_features

    sizes = [_parse_shots(word) for word in shots.split()]
    run, images, trainer = _reopened(folder, data_root, device)
    columns = (TextColumn("linear classifiers"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=epochs * len(sizes))
        count = partial(progress.update, task, advance=1)
        results = probe_features(trainer, images, sizes, seed=seed, epochs=epochs, on_epoch=count)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("shots", "examples", "top-1 (%)", "top-5 (%)"):
        table.add_column(name, justify="right")
    for result in results:
        name = "full" if result["shots"] is None else str(result["shots"])
        accuracies = (f"{100 * result[top]:.2f}" for top in ("top1", "top5"))
        table.add_row(name, f"{result['examples']:,}", *accuracies)
    console.print(table)
    record = {"run": run.key, "epoch": trainer.epoch, "probe_epochs": epochs, "seed": seed}
    path = run.folder / "probe.json"
    text = json.dumps(record | {"results": results}, indent=1)
    write_atomically(path, f"{text}\n".encode())
    print_line(f"Kept: {path.resolve()}")


def tsne(
    context: typer.Context,
    folder: BenchmarkRun,
    out: Annotated[
        Path | None,
        opt.output_option(help="Picture to write.", show_default="tsne.png in the run folder"),
    ] = None,
    most: Annotated[int, opt.data_option(min=10, help="Number of test examples to draw.")] = 2000,
    data_root: opt.DataRoot = None,
    seed: ProbeSeed = 0,
    device: opt.Device = "auto",
) -> None:
    """Draw a t-SNE plot of the features of test examples, coloured by class."""
    from ltpll_research.probe import draw_tsne

    path = out or folder / "tsne.png"
    check_outputs(context, path, suffixes=PICTURES, makes_folder=True)
    _, images, trainer = _reopened(folder, data_root, device)
    draw_tsne(trainer, images, path, most=most, seed=seed)
    print_line(f"Picture: {path.resolve()}")


def _reopened(
    folder: Path, data_root: Path | None, device: str
) -> tuple[Run, ImageSet, PartialLabelTrainer]:
    """The run in a folder, its image set, and its trainer."""
    from ltpll.runs.run import Run
    from ltpll.runs.schema import Kind
    from ltpll.validation import chosen_device
    from ltpll_research.benchmark import Experiment, reopen_trainer
    from ltpll_research.image_sets.prepared import load_image_set

    run = Run.open(folder, Kind.BENCHMARK)
    images = load_image_set(Experiment.from_config(run.config).data, data_root)
    trainer = reopen_trainer(run, images, str(chosen_device(device)))
    return run, images, trainer


def _parse_shots(word: str) -> int | None:
    if word == "full":
        return None
    if not word.isdigit() or int(word) < 1:
        raise InputError(
            f"{word!r} is not a number of examples: give whole numbers of at least 1, or full."
        )
    return int(word)
