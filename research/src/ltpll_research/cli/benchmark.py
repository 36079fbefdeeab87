"""The benchmark command: one experiment on an image set, made long-tailed and ambiguous."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import ltpll_research.cli.options as opt
from ltpll.cli.console import console, print_line
from ltpll.runs.run import Record, Run
from ltpll.settings import read_file
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
    imbalance: Annotated[
        float | None,
        opt.data_option(help="Size of the largest class over the smallest.", show_default="100.0"),
    ] = None,
    ambiguity: Annotated[
        float | None,
        opt.data_option(
            help="Probability that a wrong label joins a candidate set.", show_default="0.05"
        ),
    ] = None,
    superclass: Annotated[
        bool | None,
        opt.data_option(
            "--superclass/--uniform",
            help="Make labels of the same superclass eight times as ambiguous as others.",
            show_default="uniform",
        ),
    ] = None,
    data_root: opt.DataRoot = None,
    recipe: Annotated[
        str,
        opt.part_option(
            help="Defaults of all settings: paper (the RECORDS paper's protocol) or best (anchor, "
            "mixup, balanced head, flip-crop, lr 0.03, 200 epochs). A config file and other "
            "options override them."
        ),
    ] = "paper",
    method: Annotated[
        str | None,
        opt.part_option(
            help="How labels are disambiguated; see `ltpll list`.", show_default="corr"
        ),
    ] = None,
    rebalancer: Annotated[
        str | None,
        opt.part_option(
            help="How class imbalance is corrected; see `ltpll list`.", show_default="records"
        ),
    ] = None,
    extra: Annotated[
        list[str] | None,
        opt.part_option(help="Additional loss term; see `ltpll list`. May be repeated."),
    ] = None,
    config: Annotated[
        Path | None,
        opt.training_option(
            help="TOML file with settings; options on the command line override it."
        ),
    ] = None,
    epochs: Annotated[
        int | None, opt.training_option(help="Passes over the training data.", show_default="800")
    ] = None,
    seed: Annotated[
        int | None, opt.training_option(help="Seed of everything random.", show_default="0")
    ] = None,
    change: opt.Settings = None,
    measure_every: Annotated[
        int,
        opt.training_option(
            min=1,
            help="Epochs between evaluations on the test set, of which the best epoch is reported.",
        ),
    ] = 1,
    on_nan: Annotated[
        str,
        opt.training_option(
            help="On a NaN or infinite loss: stop, or skip (drop the batch and count it).",
            metavar="stop|skip",
        ),
    ] = "stop",
    out: Annotated[Path, opt.output_option(help="Folder in which each run gets a folder.")] = Path(
        "ltpll-runs/images"
    ),
    tensorboard: Annotated[
        bool,
        opt.output_option("--tensorboard", help="Write TensorBoard events to the run folder."),
    ] = False,
    fresh: opt.Fresh = False,
    device: opt.Device = "auto",
    engine: opt.Engine = "auto",
    threads: Annotated[
        int | None,
        opt.hardware_option(
            min=1, help="CPU threads.", show_default="one or all, whichever is faster"
        ),
    ] = None,
) -> None:
    """Train one experiment on an image set, by default with the RECORDS paper's protocol.

    Rerun the command to resume.
    """
    from ltpll.cli.progress import (
        ProgressBar,
        prepare_run,
        torchrun_processes,
    )
    from ltpll.training.cuda_graphs import chosen_engine
    from ltpll.validation import chosen_device
    from ltpll_research.benchmark import Experiment, experiment_run, with_recipe
    from ltpll_research.benchmark import train as train_run
    from ltpll_research.image_sets.prepared import load_image_set
    from ltpll_research.paper.grid import parse_settings
    from ltpll_research.recording import TensorBoardEvents

    settings = {} if config is None else read_file(config)
    others = parse_settings(" ".join(change or ()))
    if others.get("schedule", "step") != "step":
        settings.pop("milestones", None)  # of the config file's schedule, which is replaced
    settings |= others
    given = {
        "data": data,
        "imbalance": imbalance,
        "ambiguity": ambiguity,
        "superclass": superclass,
        "method": method,
        "rebalancer": rebalancer,
        "extras": extra or None,
        "epochs": epochs,
        "seed": seed,
    }
    settings |= {name: value for name, value in given.items() if value is not None}
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
                f"Run {run.key} on {own_device}: {experiment.precision}, {steps}{processes}; "
                f"{run.folder}"
            )
            events = [TensorBoardEvents(run)] if tensorboard and world.first else []
            with ProgressBar() as progress:
                train_run(
                    run,
                    images,
                    measure_every=measure_every,
                    callbacks=[progress, *events],
                    device=own_device,
                    engine=engine,
                    on_nan=on_nan,
                    threads=threads or "auto",
                )
            world.wait_for_all()
        _print_result(run)


def _print_result(run: Run) -> None:
    result: Record = run.result()
    check_record(result)
    for row in ("test", *result.get("posthoc", ())):
        last, best = result["last"][row], result["best"][row]
        name = result["config"]["rebalancer"] if row == "test" else row
        console.print(
            f"{name}: balanced accuracy {last['balanced_accuracy']:.2%} at the last epoch "
            f"(best {best[row]['balanced_accuracy']:.2%} at epoch {best.get('epoch', '?')}, "
            "chosen on the test set)"
        )
        if chosen := result.get("chosen"):
            console.print(
                f"{name}: {chosen[row]['balanced_accuracy']:.2%} at epoch {chosen['epoch']}, chosen "
                "without true labels"
            )
    if result.get("skipped"):
        console.print(
            "Batches that were skipped because their loss, outputs or gradients were not finite: "
            f"{result['skipped']}"
        )
    if result["last"].get("target_recovery") is not None:
        console.print(f"target recovery {result['last']['target_recovery']:.2%}")
    speed = result.get("views_per_second", "?")
    console.print(
        f"{result.get('seconds', 0):.0f} s in epochs, {speed} views/s in the median epoch, without "
        "evaluation"
    )
