"""The train command: a table of one's own or one benchmark experiment, with live progress, resumable."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ltpll.cli.clean import source_of, train_on_table
from ltpll.cli.config_file import read_config
from ltpll.cli.console import console, say_error
from ltpll.cli.progress import interruptible, watch_epochs
from ltpll.errors import InputError
from ltpll.registry import unknown_name
from ltpll.runs.run import Run
from ltpll.validation import check_setting

if TYPE_CHECKING:
    from ltpll.training.distributed import World

Option = typer.Option
TABLES = (".csv", ".tsv", ".parquet", ".mat")
NOT_SETTINGS = ("engine", "sync_batch_norm", "measure_every", "data_root")  # they change how, not what
# Where an option is not called as what it sets.
OPTIONS = {
    "feature_file": "--features",
    "features": "--feature-column",
    "class_columns": "--class-column",
    "probability_columns": "--probability-column",
    "annotators": "--from-annotators",
}


OWN, BENCHMARK, BOTH = "Own data", "Benchmarks", "Training"


def own(help_: str, *names: str, **more: Any) -> Any:
    return Option(*names, help=help_, rich_help_panel=OWN, show_default=False, **more)


def benchmark(help_: str, *names: str) -> Any:
    return Option(*names, help=help_, rich_help_panel=BENCHMARK, show_default=False)


def both(help_: str, *names: str) -> Any:
    return Option(*names, help=help_, rich_help_panel=BOTH, show_default=False)


def train(
    data: Annotated[
        str | None, typer.Argument(help="A table of your own (.csv, .tsv, .parquet, .mat), or an image set that `ltpll data list` shows.")
    ] = None,
    images: Annotated[Path | None, own("Folder of the pictures that the table's column `path` (or `id`) names.")] = None,
    features: Annotated[Path | None, own("Features: .npy or .npz in the table's order, or a table with the same ids.")] = None,
    feature_column: Annotated[list[str] | None, own("A column of the table to learn from; default: all other columns of numbers.")] = None,
    candidates: Annotated[str | None, own("Column of the candidate sets: cat|fox, or a JSON list; default candidates.")] = None,
    separator: Annotated[str | None, own("Between the candidates of a set; default |.")] = None,
    class_column: Annotated[list[str] | None, own("Instead of sets: 0/1 columns, one a class; give each, or a prefix: 'is_*'.")] = None,
    probability_column: Annotated[list[str] | None, own("Instead of sets: a probability for each class; with --top-k or --mass.")] = None,
    top_k: Annotated[int | None, own("Candidates are the k likeliest classes.", min=1)] = None,
    mass: Annotated[float | None, own("Candidates are as few classes as hold this probability.")] = None,
    from_annotators: Annotated[str | None, own("A row is one annotation (task,worker,label): union, votes>=2 or top-3.")] = None,
    id_column: Annotated[str | None, own("Column of ids; default id.", "--id")] = None,
    path_column: Annotated[str | None, own("Column of paths below --images; default path.", "--path")] = None,
    label: Annotated[str | None, own("Column of true labels, for judging alone; default label.")] = None,
    split: Annotated[str | None, own("Column that says train or test; default split.")] = None,
    side: Annotated[int | None, own("Pictures are scaled to squares of this many pixels; default 32.", min=4)] = None,
    on_error: Annotated[str | None, own("What to do about pictures that cannot be read: stop (default) or skip.")] = None,
    folds: Annotated[int | None, own("Classifiers to judge rows that they were not trained on; default 5, 0: none.", min=0)] = None,
    workers: Annotated[int | None, own("Folds trained side by side on a CPU; default by the work and the cores.", min=1)] = None,
    model: Annotated[str | None, own("auto (default), mlp, small-cnn or resnet18.")] = None,
    imbalance: Annotated[float | None, benchmark("Largest class over smallest; default 100.")] = None,
    ambiguity: Annotated[float | None, benchmark("Probability that a wrong label joins a set; default 0.05.")] = None,
    superclass: Annotated[bool | None, benchmark("Eight times as ambiguous inside a superclass.", "--superclass/--uniform")] = None,
    width: Annotated[int | None, benchmark("Width of the ResNet-18's first stage; default 64.")] = None,
    engine: Annotated[str | None, benchmark("eager, captured, compiled, or auto: captured on CUDA, else eager.")] = None,
    sync_batch_norm: Annotated[bool | None, benchmark("Under torchrun: batch norm over all processes.", "--sync-batch-norm")] = None,
    measure_every: Annotated[int | None, benchmark("Epochs between looks at the test set; default 10.")] = None,
    data_root: Annotated[Path | None, benchmark("Where prepared data lie; default $LTPLL_DATA.")] = None,
    config: Annotated[Path | None, both("A YAML file with settings; the command line overrides it.")] = None,
    method: Annotated[str | None, both("See `ltpll list`; default corr.")] = None,
    rebalancer: Annotated[str | None, both("See `ltpll list`; default records for benchmarks, none for own data.")] = None,
    extra: Annotated[list[str] | None, both("See `ltpll list`; may be given several times.")] = None,
    views: Annotated[
        str | None, both("paper, flip-crop or crop (never mirrored); default paper for benchmarks, flip-crop for own pictures.")
    ] = None,
    epochs: Annotated[int | None, both("Default 800 for benchmarks; for own data chosen by the number of rows.")] = None,
    batch_size: Annotated[int | None, both("Default 256 for benchmarks; for own data chosen by the number of rows.")] = None,
    lr: Annotated[float | None, both("Default 0.01 for benchmarks, 0.05 for own data.")] = None,
    seed: Annotated[int | None, both("Decides everything that is drawn; default 0.")] = None,
    precision: Annotated[str | None, both("float32 or bfloat16; default bfloat16 for benchmarks on CUDA, else float32.")] = None,
    device: Annotated[str, Option(help="cpu, cuda, or auto.")] = "auto",
    on_nan: Annotated[str, Option(help="stop, or skip: drop batches whose numbers are not finite, and count them.")] = "stop",
    threads: Annotated[int | None, Option(help="On a CPU; default one or all, whichever is faster.", show_default=False, min=1)] = None,
    out: Annotated[Path | None, Option(help="Own data: the run's folder. Benchmarks: the folder for runs.", show_default=False)] = None,
    tensorboard: Annotated[bool, Option("--tensorboard", help="Write TensorBoard events beside the run.")] = False,
    fresh: Annotated[bool, Option("--fresh", help="Train again even if the run is finished or under way.")] = False,
) -> None:
    """Train on a table of your own, or one benchmark experiment; the same command again goes on where an interrupted one stopped."""
    training: dict[str, Any] = {
        "method": method,
        "rebalancer": rebalancer,
        "extras": tuple(extra) if extra else None,
        "views": views,
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "seed": seed,
        "precision": precision,
    }
    about_table = {
        "images": images,
        "feature_file": features,
        "features": feature_column,
        "candidates": candidates,
        "separator": separator,
        "class_columns": class_column,
        "probability_columns": probability_column,
        "top_k": top_k,
        "mass": mass,
        "annotators": from_annotators,
        "id": id_column,
        "path": path_column,
        "label": label,
        "split": split,
        "side": side,
        "on_error": on_error,
    }
    of_own = {"folds": folds, "model": model}
    of_benchmarks = {
        "imbalance": imbalance,
        "ambiguity": ambiguity,
        "superclass": superclass,
        "width": width,
        "engine": engine,
        "sync_batch_norm": sync_batch_norm,
        "measure_every": measure_every,
        "data_root": data_root,
    }
    settings = read_config(config)
    data = data or settings.pop("data", None)
    data = _checked_data(data)
    if _is_table(data):
        _refuse(of_benchmarks, "is for image sets", data)
        given = {name: value for name, value in (training | of_own).items() if value is not None}
        table = Path(data).expanduser()
        folder = out or Path("ltpll-runs") / table.stem
        how: dict[str, Any] = {
            "tensorboard": tensorboard,
            "fresh": fresh,
            "on_nan": on_nan,
            "workers": workers,
            "threads": threads or "auto",
        }
        with _processes(device) as (world, device):
            train_on_table(source_of(table, about_table), settings | given, folder, device=device, world=world, **how)
        return
    _refuse(about_table | of_own | {"workers": workers}, "is for a table of your own", data)
    drawn: dict[str, Any] = {name: value for name, value in of_benchmarks.items() if name not in NOT_SETTINGS}
    given = {name: value for name, value in (training | drawn).items() if value is not None}
    _train_benchmark(
        settings | {"data": data} | given,
        device=device,
        engine=engine or "auto",
        measure_every=10 if measure_every is None else measure_every,
        data_root=data_root,
        out=out or Path("ltpll-runs/images"),
        tensorboard=tensorboard,
        fresh=fresh,
        on_nan=on_nan,
        threads=threads or "auto",
        sync_batch_norm=bool(sync_batch_norm),
    )


def _checked_data(data: Any) -> str:
    """What to train on; refuses what is neither a table nor an image set, before anything else is said about it."""
    from ltpll.data.benchmarks.image_sets import IMAGE_SETS

    known = f"a table of your own ({', '.join(TABLES)}) or an image set ({', '.join(IMAGE_SETS)})"
    if data is None:
        raise InputError(f"There is nothing to train on: give {known}.")
    check_setting("data", "", data)
    if data not in IMAGE_SETS and not _is_table(data):
        if Path(data).expanduser().is_dir():
            raise InputError(f"{data} is a folder: give {known}; the folder of pictures goes with --images.")
        raise unknown_name("table or image set", data, IMAGE_SETS)
    return str(data)


def _is_table(data: str) -> bool:
    """A file, or something that can only be meant as one."""
    from ltpll.data.benchmarks.image_sets import IMAGE_SETS

    return data not in IMAGE_SETS and (Path(data).suffix.lower() in TABLES or Path(data).expanduser().is_file())


def _refuse(options: dict[str, Any], why: str, data: str) -> None:
    wrong = next((name for name, value in options.items() if value is not None), None)
    if wrong is not None:
        option = OPTIONS.get(wrong, f"--{wrong.replace('_', '-')}")
        raise InputError(f"{option} {why}, and {data} is not: leave it out.")


def _train_benchmark(
    settings: dict[str, Any],
    *,
    device: str,
    engine: str,
    measure_every: int,
    data_root: Path | None,
    out: Path,
    tensorboard: bool,
    fresh: bool,
    on_nan: str,
    threads: int | str,
    sync_batch_norm: bool,
) -> None:
    from ltpll.data.benchmarks.image_sets import load_image_set
    from ltpll.experiments.benchmark import Experiment, experiment_run
    from ltpll.experiments.benchmark import train as train_run
    from ltpll.training.cuda_graphs import chosen_engine
    from ltpll.validation import at_least, chosen_device

    at_least(measure_every, 1, "measure-every")
    with _processes(device) as (world, device):
        shown = f"{chosen_engine(engine, chosen_device(device), world)} steps"
        shown += "" if world.alone else f" of {world.size} processes"
        settings.setdefault("precision", "bfloat16" if device.startswith("cuda") else "float32")
        experiment = Experiment.from_mapping(settings)
        images = load_image_set(experiment.data, data_root)
        run = experiment_run(out, experiment)
        if world.first:
            if fresh:
                run.forget()
            run.reopen_if_damaged()
        world.wait()
        if world.agreed(run.done):
            console.print(f"This run was finished earlier (--fresh trains it again): {run.folder}", markup=False, soft_wrap=True)
            _print_result(run)
            return
        console.print(f"Run {run.key} on {device}: {experiment.precision}, {shown}; {run.folder}", markup=False, soft_wrap=True)
        watch, close = watch_epochs(run, experiment.epochs, tensorboard and world.first)
        how: dict[str, Any] = {"device": device, "engine": engine, "world": world, "sync_batch_norm": sync_batch_norm}
        with interruptible(run, close):
            train_run(run, images, measure_every=measure_every, on_epoch=watch, on_nan=on_nan, threads=threads, **how)
        world.leave()
        world.wait()
        _print_result(run)


@contextmanager
def _processes(device: str) -> Iterator[tuple[World, str]]:
    """Those that torchrun started, or this one alone, and the device of this one; the first one speaks for all."""
    from ltpll.training.distributed import world_of_torchrun
    from ltpll.validation import chosen_device

    def say(sentence: str) -> None:
        console.show_cursor()  # where progress is shown there is none
        say_error(sentence)

    with world_of_torchrun(str(chosen_device(device)), say) as (world, own_device):
        console.quiet = not world.first
        if not world.first:
            warnings.simplefilter("ignore")
        yield world, own_device


def _print_result(run: Run) -> None:
    result = run.result()
    for row in ("test", *result.get("posthoc", ())):
        last, best = result["last"][row], result["best"][row]
        name = result["config"]["rebalancer"] if row == "test" else row
        console.print(
            f"{name}: balanced accuracy {last['balanced_accuracy']:.2%} at the last epoch "
            f"(best {best[row]['balanced_accuracy']:.2%} at epoch {best.get('epoch', '?')}, chosen on the test set)"
        )
    if result.get("skipped"):
        console.print(f"{result['skipped']} batches were dropped, since their loss, outputs or gradients were not finite")
    if result["last"].get("target_recovery") is not None:
        console.print(f"target recovery {result['last']['target_recovery']:.2%}")
    console.print(f"{result.get('seconds', 0):.0f} s, {result.get('views_per_second', '?')} views/s in the median epoch")
