"""The benchmark command: one experiment on an image set, made long-tailed and ambiguous."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ltpll_research.cli.options as opt
from ltpll.cli.console import print_line
from ltpll.errors import InputError
from ltpll.formatting import counted
from ltpll.runs.run import Record, Run
from ltpll.settings import read_file
from ltpll_research.cli.compare import show_comparison
from ltpll_research.schema import check_record

if TYPE_CHECKING:
    from ltpll.training.distributed import World
    from ltpll_research.benchmark import Experiment
    from ltpll_research.image_sets.prepared import ImageSet


def benchmark(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="IMAGE_SET",
            help="Prepared image set, which `ltpll-research data list` shows, or the folder of one.",
            show_default=False,
        ),
    ] = None,
    imbalance: Annotated[
        str | None,
        opt.data_option(
            help="Size of the largest class over the smallest; natural takes all images.",
            show_default="100.0",
        ),
    ] = None,
    ambiguity: Annotated[
        str | None,
        opt.data_option(
            help="Probability that a wrong label joins a candidate set.", show_default="0.05"
        ),
    ] = None,
    sets: Annotated[
        str | None,
        opt.data_option(
            help="Where candidate sets come from: random, instance (labels that a network finds "
            "likely) or own (those of the image set, on a long-tailed subset).",
            show_default="random",
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
    within_superclass: Annotated[
        bool | None,
        opt.data_option(
            "--within-superclass",
            help="Let labels of the same superclass join only, as in CIFAR-100H.",
        ),
    ] = None,
    data_root: opt.DataRoot = None,
    recipe: Annotated[
        str,
        opt.part_option(
            help="Defaults of all settings: paper (the RECORDS paper's protocol), best (anchor, "
            "mixup, balanced head, flip-crop, lr 0.03, 200 epochs), or another paper's protocol, "
            "such as solar or htc. A config file and other options override them."
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
        str | None,
        opt.training_option(help="Passes over the training data.", show_default="800"),
    ] = None,
    seed: Annotated[
        str | None,
        opt.training_option(
            "--seed",
            "--seeds",
            help="Seed of everything random, or several, such as 0-4.",
            show_default="0",
        ),
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
    """Train on an image set, by default with the RECORDS paper's protocol.

    Options with several values, such as `--method corr,proden --seeds 0-4`, train every combination
    and compare them. Rerun the command to resume.
    """
    from ltpll.cli.progress import torchrun_processes
    from ltpll_research.benchmark import Experiment, experiment_run, with_recipe
    from ltpll_research.cli.many_runs import train_missing
    from ltpll_research.image_sets.prepared import folder_of_image_set, load_image_set
    from ltpll_research.paper.grid import parse_grid, with_protocol
    from ltpll_research.paper.protocols import PROTOCOLS

    given = {
        "imbalance": imbalance,
        "ambiguity": ambiguity,
        "sets": sets,
        "superclass": None if superclass is None else str(superclass).lower(),
        "within_superclass": "true" if within_superclass else None,
        "method": method,
        "rebalancer": rebalancer,
        "extras": ",".join(extra) if extra else None,
        "epochs": epochs,
        "seed": seed,
    }
    words = [f"{name}={one}" for name, one in given.items() if one is not None]
    fixed = {} if config is None else read_file(config)
    fixed |= {} if data is None else {"data": data}
    if isinstance(name := fixed.get("data"), str):
        folder = folder_of_image_set(name, data_root)
        fixed["data"], data_root = folder.name, folder.parent
    with torchrun_processes(device) as (world, own_device):
        fixed.setdefault("precision", "bfloat16" if own_device.startswith("cuda") else "float32")
        wanted = []
        for chosen in parse_grid(" ".join([*(change or ()), *words])):
            settings = dict(fixed)
            if chosen.get("schedule", "step") != "step":
                settings.pop("milestones", None)  # of the file's schedule, which is replaced
            settings |= chosen
            if recipe in PROTOCOLS:  # as the paper of a method trains it, and shorter if asked to
                usual = {"method": settings.get("method", Experiment.method)}
                usual |= PROTOCOLS[recipe].settings_for(settings.get("data", ""))
                settings = with_protocol(usual, settings)
            else:
                settings = with_recipe(recipe, settings)
            wanted.append(Experiment.from_mapping(settings))
        if len({one.data for one in wanted}) > 1:
            raise InputError("There are several image sets: give one, as the argument.")
        images = load_image_set(wanted[0].data, data_root)
        wanted = [replace(one, content=images.content) for one in wanted]
        how = {"measure_every": measure_every, "on_nan": on_nan, "threads": threads or "auto"}
        how |= {"device": own_device, "engine": engine}
        if len(wanted) == 1:
            _train_one(wanted[0], images, world, out, tensorboard=tensorboard, fresh=fresh, how=how)
        elif not world.alone:
            raise InputError(
                "torchrun shares one training run among processes: give every setting one value."
            )
        else:
            runs = [experiment_run(out, experiment) for experiment in wanted]
            for run in runs if fresh else ():
                run.delete_run()
            missing = [one for one, run in zip(wanted, runs, strict=True) if not run.done]
            print_line(f"{len(runs) - len(missing)} of {counted(len(runs), 'run')} done.")
            failed = train_missing(missing, out, data_root, tensorboard=tensorboard, **how)
            show_comparison([run.result() for run in runs if run.done])
            if failed:
                print_line(f"{failed} runs failed. Rerun the command to try them again.")
                raise typer.Exit(1)


def _train_one(
    experiment: Experiment,
    images: ImageSet,
    world: World,
    out: Path,
    *,
    tensorboard: bool,
    fresh: bool,
    how: dict[str, Any],
) -> None:
    """Train an experiment, perhaps in several processes, and print its result."""
    from ltpll.cli.progress import ProgressBar, prepare_run
    from ltpll.training.cuda_graphs import chosen_engine
    from ltpll.validation import chosen_device
    from ltpll_research.benchmark import experiment_run, train
    from ltpll_research.recording import TensorBoardEvents

    steps = f"{chosen_engine(how['engine'], chosen_device(how['device']), world)} steps"
    run = experiment_run(out, experiment)
    if prepare_run(run, world, fresh=fresh):
        print_line(f"This run was finished earlier (--fresh trains it again): {run.folder}")
    else:
        processes = "" if world.alone else f" in {world.size} processes"
        print_line(
            f"Run {run.key} on {how['device']}: {experiment.precision}, {steps}{processes}; "
            f"{run.folder}"
        )
        events = [TensorBoardEvents(run)] if tensorboard and world.first else []
        with ProgressBar() as progress:
            train(run, images, callbacks=[progress, *events], **how)
        world.wait_for_all()
    _print_result(run)


def _print_result(run: Run) -> None:
    result: Record = run.result()
    check_record(result)
    show_comparison([result])
    if chosen := result.get("chosen"):
        print_line(
            f"Chosen without true labels: {chosen['test']['balanced_accuracy']:.2%} at epoch "
            f"{chosen['epoch']}"
        )
    if result.get("skipped"):
        print_line(
            "Batches that were skipped because their loss, outputs or gradients were not finite: "
            f"{result['skipped']}"
        )
    speed = result.get("views_per_second", "?")
    print_line(
        f"{result.get('seconds', 0):.0f} s in epochs, {speed} views/s in the median epoch, without "
        "evaluation"
    )
