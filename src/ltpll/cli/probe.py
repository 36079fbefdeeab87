"""Commands that look at what a finished run has learned: probe and tsne."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ltpll.cli.console import console
from ltpll.errors import InputError

Option = typer.Option
Folder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, with its checkpoint.")]
Device = Annotated[str, Option(help="cpu, cuda, or auto.")]
DataRoot = Annotated[Path | None, Option(help="Where prepared data lie; default $LTPLL_DATA.", show_default=False)]
Seed = Annotated[int, Option(help="Draws the examples and the training of the classifier.")]


def probe(
    folder: Folder,
    shots: Annotated[str, Option(help="Examples of every class: numbers, or full for all that are balanced.")] = "full 100 50",
    epochs: Annotated[int, Option(min=1, help="Epochs of the linear classifier; the paper's are 500.")] = 500,
    seed: Seed = 0,
    device: Device = "auto",
    data_root: DataRoot = None,
) -> None:
    """Train linear classifiers on a run's features with balanced labels, as the paper does, and keep the result in the run's folder."""
    from ltpll.data.benchmarks.image_sets import load_image_set
    from ltpll.experiments.benchmark import Experiment
    from ltpll.experiments.probe import ProbeRecipe, reopened
    from ltpll.experiments.probe import probe as probe_features
    from ltpll.files import write_atomically
    from ltpll.runs.run import Run
    from ltpll.runs.schema import Kind
    from ltpll.validation import chosen_device

    wanted = [_shots(word) for word in shots.split()]
    run = Run.open(folder, Kind.BENCHMARK)
    images = load_image_set(Experiment.from_config(run.config).data, data_root)
    trainer = reopened(run, images, str(chosen_device(device)))
    columns = (TextColumn("linear classifiers"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=epochs * len(wanted))
        found = probe_features(
            trainer, images, wanted, seed=seed, recipe=ProbeRecipe(epochs=epochs), on_epoch=lambda: progress.update(task, advance=1)
        )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("shots", "examples", "top-1 (%)", "top-5 (%)"):
        table.add_column(name, justify="right")
    for one in found:
        name = "full" if one["shots"] is None else str(one["shots"])
        table.add_row(name, f"{one['examples']:,}", f"{100 * one['top1']:.2f}", f"{100 * one['top5']:.2f}")
    console.print(table)
    record = {"run": run.key, "epoch": trainer.epoch, "probe_epochs": epochs, "seed": seed, "results": found}
    path = run.folder / "probe.json"
    write_atomically(path, (json.dumps(record, indent=1) + "\n").encode())
    console.print(f"Kept: {path.resolve()}", markup=False, soft_wrap=True)


def tsne(
    folder: Folder,
    out: Annotated[Path | None, Option(help="The picture; default tsne.png in the run's folder.", show_default=False)] = None,
    most: Annotated[int, Option(min=10, help="Test examples to draw.")] = 2000,
    seed: Seed = 0,
    device: Device = "auto",
    data_root: DataRoot = None,
) -> None:
    """Draw a run's features of test examples in the plane by t-SNE, a colour for each class."""
    from ltpll.data.benchmarks.image_sets import load_image_set
    from ltpll.experiments.benchmark import Experiment
    from ltpll.experiments.plotting import require_matplotlib
    from ltpll.experiments.probe import reopened
    from ltpll.experiments.tsne import draw_tsne
    from ltpll.runs.run import Run
    from ltpll.runs.schema import Kind
    from ltpll.validation import chosen_device

    require_matplotlib()
    run = Run.open(folder, Kind.BENCHMARK)
    images = load_image_set(Experiment.from_config(run.config).data, data_root)
    path = out or run.folder / "tsne.png"
    draw_tsne(reopened(run, images, str(chosen_device(device))), images, path, most=most, seed=seed)
    console.print(f"Picture: {path.resolve()}", markup=False, soft_wrap=True)


def _shots(word: str) -> int | None:
    if word == "full":
        return None
    if not word.isdigit() or int(word) < 1:
        raise InputError(f"{word!r} is no number of examples: give numbers of at least 1, or full.")
    return int(word)
