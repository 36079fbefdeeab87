"""The train command: one benchmark experiment, with live progress, resumable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.config import read_config
from ltpll.cli.console import console
from ltpll.cli.progress import watch_epochs
from ltpll.report.shape import check_record
from ltpll.runs import Run

Option = typer.Option


def train(
    data: Annotated[str | None, typer.Argument(help="An image set that `ltpll data list` shows, such as cifar100.")] = None,
    config: Annotated[Path | None, Option(help="A YAML file with the settings below; the command line overrides it.")] = None,
    imbalance: Annotated[float | None, Option(help="Largest class over smallest; default 100.", show_default=False)] = None,
    ambiguity: Annotated[float | None, Option(help="Probability that a wrong label joins a set; default 0.05.", show_default=False)] = None,
    superclass: Annotated[bool | None, Option("--superclass/--uniform", help="Eight times as ambiguous inside a superclass.")] = None,
    method: Annotated[str | None, Option(help="See `ltpll list`; default corr.", show_default=False)] = None,
    rebalancer: Annotated[str | None, Option(help="See `ltpll list`; default records.", show_default=False)] = None,
    extra: Annotated[list[str] | None, Option(help="See `ltpll list`; may be given several times.", show_default=False)] = None,
    views: Annotated[str | None, Option(help="paper or flip-crop; default paper.", show_default=False)] = None,
    width: Annotated[int | None, Option(help="Width of the ResNet-18's first stage; default 64.", show_default=False)] = None,
    epochs: Annotated[int | None, Option(help="Default 800.", show_default=False)] = None,
    batch_size: Annotated[int | None, Option(help="Default 256.", show_default=False)] = None,
    lr: Annotated[float | None, Option(help="Default 0.01.", show_default=False)] = None,
    seed: Annotated[int | None, Option(help="Draws subset, candidates and training; default 0.", show_default=False)] = None,
    precision: Annotated[str, Option(help="float32, bfloat16, or auto: bfloat16 on CUDA.")] = "auto",
    engine: Annotated[str, Option(help="eager, captured, compiled, or auto: captured on CUDA, else eager.")] = "auto",
    device: Annotated[str, Option(help="cpu, cuda, or auto.")] = "auto",
    measure_every: Annotated[int, Option(min=1, help="Epochs between looks at the test set.")] = 10,
    data_root: Annotated[Path | None, Option(help="Where prepared data lie; default $LTPLL_DATA.", show_default=False)] = None,
    out: Annotated[Path, Option(help="Folder for runs.")] = Path("ltpll-runs/images"),
    tensorboard: Annotated[bool, Option("--tensorboard", help="Write TensorBoard events beside the run.")] = False,
    fresh: Annotated[bool, Option("--fresh", help="Train again even if the run is finished or under way.")] = False,
) -> None:
    """Train one benchmark experiment; the same command again goes on where an interrupted one stopped."""
    from ltpll.data.image_sets import load_image_set
    from ltpll.engine import chosen_engine
    from ltpll.experiment import Experiment, experiment_run
    from ltpll.experiment import train as train_run
    from ltpll.inputs import chosen_device

    place = chosen_device(device)
    device, engine = str(place), chosen_engine(engine, place)
    given = {
        "data": data,
        "imbalance": imbalance,
        "ambiguity": ambiguity,
        "superclass": superclass,
        "method": method,
        "rebalancer": rebalancer,
        "extras": tuple(extra) if extra else None,
        "views": views,
        "width": width,
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "seed": seed,
    }
    settings = read_config(config) | {name: value for name, value in given.items() if value is not None}
    if precision == "auto":
        precision = settings.get("precision", "bfloat16" if device.startswith("cuda") else "float32")
    experiment = Experiment.from_mapping(settings | {"precision": precision})
    images = load_image_set(experiment.data, data_root)
    run = experiment_run(out, experiment)
    if fresh:
        run.forget()
    if run.done:
        console.print(f"This run was finished earlier (--fresh trains it anew): {run.folder}", markup=False, soft_wrap=True)
        _print_result(run)
        return
    console.print(f"Run {run.key} on {device}: {experiment.precision}, {engine} steps; {run.folder}", markup=False, soft_wrap=True)
    watch, close = watch_epochs(run, experiment.epochs, tensorboard)
    try:
        train_run(run, images, device=device, engine=engine, measure_every=measure_every, on_epoch=watch)
    except KeyboardInterrupt:
        close()  # before anything is printed below it; closing twice does nothing
        console.print(f"Interrupted after {run.epochs_logged()} epochs: the same command goes on from the last checkpoint.")
        raise typer.Exit(130) from None
    finally:
        close()
    _print_result(run)


def _print_result(run: Run) -> None:
    result = run.result()
    check_record(result)
    for row in ("test", *result.get("posthoc", ())):
        last, best = result["last"][row], result["best"][row]
        name = result["config"]["rebalancer"] if row == "test" else row
        console.print(
            f"{name}: balanced accuracy {last['balanced_accuracy']:.2%} at the last epoch "
            f"(best {best[row]['balanced_accuracy']:.2%} at epoch {best.get('epoch', '?')}, chosen on the test set)"
        )
    if result["last"].get("target_recovery") is not None:
        console.print(f"target recovery {result['last']['target_recovery']:.2%}")
    console.print(f"{result.get('seconds', 0):.0f} s, {result.get('views_per_second', '?')} views/s in the median epoch")
