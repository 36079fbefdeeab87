"""The benchmark command: one experiment on an image set that is made long-tailed and ambiguous."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import ltpll.cli.options as opt
from ltpll.cli.config_file import read_config
from ltpll.cli.console import console, print_line
from ltpll.cli.training import exit_on_interrupt, given, prepare_run, torchrun_processes
from ltpll.errors import InputError
from ltpll.formatting import command
from ltpll.registry import unknown_name_error
from ltpll.runs.run import Record, Run
from ltpll_research.cli import options as image_options
from ltpll_research.schema import check_record


def benchmark(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="IMAGE_SET",
            help="Prepared image set; `ltpll-research data list` shows them.",
            show_default=False,
        ),
    ] = None,
    imbalance: image_options.Imbalance = None,
    ambiguity: image_options.Ambiguity = None,
    superclass: image_options.Superclass = None,
    lacking: Annotated[
        float | None,
        opt.data_option(help="Share of candidate sets from which the true label is removed."),
    ] = None,
    draw: Annotated[
        str | None,
        opt.data_option(
            help="Subset and candidates: new ones for each seed, or those of the RECORDS paper's code.",
            metavar="seeded|authors",
        ),
    ] = None,
    data_root: image_options.DataRoot = None,
    recipe: Annotated[
        str,
        opt.part_option(
            help="Defaults of all settings: paper (the RECORDS paper's protocol) or best (anchor, mixup, balanced head, flip-crop, "
            "lr 0.03, 200 epochs). A config file and other options override them."
        ),
    ] = "paper",
    method: opt.Method = None,
    rebalancer: opt.Rebalancer = None,
    extra: opt.Extra = None,
    truth_missing: Annotated[
        float | None,
        opt.part_option(help="Share of sets that the training assumes to lack the true label."),
    ] = None,
    width: Annotated[
        int | None, opt.part_option(help="Channels of the first stage of the ResNet-18.")
    ] = None,
    views: Annotated[
        str | None, opt.part_option(help="Augmentation: paper, flip-crop or crop (never mirrored).")
    ] = None,
    config: opt.Config = None,
    epochs: opt.Epochs = None,
    batch_size: opt.BatchSize = None,
    lr: opt.LearningRate = None,
    schedule: Annotated[
        str | None,
        opt.training_option(
            help="How the learning rate falls: along a cosine, or to a tenth after each milestone.",
            metavar="cosine|step",
        ),
    ] = None,
    milestones: Annotated[
        list[int] | None,
        opt.training_option(
            help="With --schedule step: the learning rate falls to a tenth after each of these epochs, such as 700 800 900."
        ),
    ] = None,
    seed: opt.Seed = None,
    measure_every: Annotated[
        int,
        opt.training_option(
            min=1,
            help="Epochs between evaluations on the test set, of which the best epoch is reported.",
        ),
    ] = 1,
    on_nan: opt.OnNan = "stop",
    out: Annotated[Path, opt.output_option(help="Folder in which each run gets a folder.")] = Path(
        "ltpll-runs/images"
    ),
    tensorboard: opt.TensorBoard = False,
    fresh: opt.Fresh = False,
    device: opt.Device = "auto",
    engine: opt.Engine = "auto",
    precision: Annotated[
        str | None,
        opt.hardware_option(
            help="float32 or bfloat16.", show_default="bfloat16 on CUDA, float32 elsewhere"
        ),
    ] = None,
    threads: opt.Threads = None,
) -> None:
    """Train one benchmark experiment on an image set, by default with the RECORDS paper's protocol. Rerun the command to resume."""
    from ltpll.cli.progress import ProgressBar, TensorBoardEvents
    from ltpll.training.callbacks import Callback
    from ltpll.training.cuda_graphs import chosen_engine
    from ltpll.validation import chosen_device
    from ltpll_research.benchmark import FIRST_EDITION, Experiment, experiment_run, with_recipe
    from ltpll_research.benchmark import train as train_run
    from ltpll_research.image_sets.prepared import load_image_set

    settings = read_config(config)
    settings["data"] = _image_set(data or settings.get("data"))
    settings |= given(
        imbalance=imbalance,
        ambiguity=ambiguity,
        superclass=superclass,
        width=width,
        views=views,
        method=method,
    )
    settings |= given(
        rebalancer=rebalancer,
        extras=tuple(extra) if extra else None,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
    )
    if schedule not in (None, "step"):
        settings.pop("milestones", None)  # of the config file's schedule, which this one replaces
    settings |= given(schedule=schedule, milestones=tuple(milestones) if milestones else None)
    settings |= given(
        seed=seed, draw=draw, precision=precision, lacking=lacking, truth_missing=truth_missing
    )
    with torchrun_processes(device) as (world, own_device):
        settings.setdefault("precision", "bfloat16" if own_device.startswith("cuda") else "float32")
        experiment = Experiment.from_mapping(with_recipe(recipe, settings))
        steps = f"{chosen_engine(engine, chosen_device(own_device), world)} steps"
        images = load_image_set(experiment.data, data_root)
        run = experiment_run(out, experiment)
        if prepare_run(run, world, fresh=fresh):
            print_line(f"This run was finished earlier (--fresh trains it again): {run.folder}")
        else:
            processes = "" if world.alone else f" in {world.size} processes"
            print_line(
                f"Run {run.key} on {own_device}: {experiment.precision}, {steps}{processes}; {run.folder}"
            )
            earlier = experiment_run(out, replace(experiment, edition=FIRST_EDITION))
            if earlier.folder.exists():
                print_line(
                    f"The run {earlier.key} has the same settings but is of an earlier edition: it stays as it is."
                )
            progress = ProgressBar()
            callbacks: list[Callback] = [
                progress,
                *([TensorBoardEvents(run)] if tensorboard and world.first else []),
            ]
            how: dict[str, Any] = {
                "device": own_device,
                "engine": engine,
                "threads": threads or "auto",
            }
            with exit_on_interrupt(run, progress):
                train_run(
                    run,
                    images,
                    measure_every=measure_every,
                    callbacks=callbacks,
                    on_nan=on_nan,
                    **how,
                )
            world.wait()
        _print_result(run)


def _image_set(name: Any) -> str:
    """The name of an image set; anything else is refused."""
    from ltpll.validation import check_setting
    from ltpll_research.image_sets.prepared import IMAGE_SETS

    if name is None:
        raise InputError(
            f"There is nothing to train on: give an image set ({', '.join(IMAGE_SETS)})."
        )
    check_setting("data", "", name)
    if name not in IMAGE_SETS and Path(name).expanduser().is_file():
        raise InputError(
            f"{name} is a file, and `ltpll-research benchmark` is for image sets ({', '.join(IMAGE_SETS)}): "
            f"use `{command('ltpll', 'train', name)}`."
        )
    if name not in IMAGE_SETS:
        raise unknown_name_error("image set", name, IMAGE_SETS)
    return str(name)


def _print_result(run: Run) -> None:
    result: Record = run.result()
    check_record(result)
    for row in ("test", *result.get("posthoc", ())):
        last, best = result["last"][row], result["best"][row]
        name = result["config"]["rebalancer"] if row == "test" else row
        console.print(
            f"{name}: balanced accuracy {last['balanced_accuracy']:.2%} at the last epoch "
            f"(best {best[row]['balanced_accuracy']:.2%} at epoch {best.get('epoch', '?')}, chosen on the test set)"
        )
    if result.get("skipped"):
        console.print(
            f"Batches that were skipped because their loss, outputs or gradients were not finite: {result['skipped']}"
        )
    if result["last"].get("target_recovery") is not None:
        console.print(f"target recovery {result['last']['target_recovery']:.2%}")
    console.print(
        f"{result.get('seconds', 0):.0f} s in epochs, {result.get('views_per_second', '?')} views/s in the median epoch, without evaluation"
    )
