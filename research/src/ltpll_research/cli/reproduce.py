"""The reproduce command: train the runs that a table or figure of the paper needs, and compare them with the published numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from ltpll.cli.console import console, print_line
from ltpll.cli.options import Device, hardware_option, output_option, training_option
from ltpll.cli.outputs import PICTURES, check_outputs
from ltpll.errors import InputError
from ltpll.formatting import format_duration
from ltpll.runs.run import Run
from ltpll_research.cli.options import DataRoot
from ltpll_research.records import finished_runs


def reproduce(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="ITEM", help="Table or figure, such as main or table1; --list shows all."
        ),
    ] = None,
    show: Annotated[
        bool,
        output_option(
            "--list", help="List all tables and figures, with their finished and missing runs."
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        output_option(
            "--dry-run", help="List the missing runs and show the results so far; train nothing."
        ),
    ] = False,
    out: Annotated[Path, output_option(help="Folder for runs.")] = Path("ltpll-runs/images"),
    results: Annotated[
        list[Path] | None,
        output_option(help="Folder of further finished results to include. May be repeated."),
    ] = None,
    only: Annotated[
        str,
        training_option(
            help="Train only some runs, such as 'dataset=cifar10 imbalance=100'.",
            show_default=False,
        ),
    ] = "",
    seeds: Annotated[
        int,
        training_option(
            min=1,
            help="Number of seeds, from 0; each draws its own subset, candidates and training; with --set draw=authors, only its training.",
        ),
    ] = 1,
    epochs: Annotated[
        int | None,
        training_option(min=1, help="Epochs per run.", show_default="those of the paper"),
    ] = None,
    change: Annotated[
        list[str] | None,
        training_option(
            "--set", help="Deviate from the paper's settings, such as width=16. May be repeated."
        ),
    ] = None,
    data_root: DataRoot = None,
    device: Device = "auto",
    per_gpu: Annotated[
        int, hardware_option(min=1, help="Runs in parallel per GPU; faster only with NVIDIA MPS.")
    ] = 1,
    launcher: Annotated[
        str,
        hardware_option(
            help="local, or ray: one Ray task per run (pip install 'ltpll-research\\[ray]').",
            metavar="local|ray",
        ),
    ] = "local",
    ray_address: Annotated[
        str | None,
        hardware_option(
            help="Address of a Ray cluster, such as auto.", show_default="start Ray on this machine"
        ),
    ] = None,
) -> None:
    """Train the missing runs of a table or figure of the RECORDS paper, and compare the results with the published numbers.

    Rerun the command to resume. Several processes on one folder share the work.
    """
    from ltpll.runs.environment import environment
    from ltpll.validation import chosen_device
    from ltpll_research.image_sets.prepared import load_image_set
    from ltpll_research.paper.catalog import ITEMS, find_item
    from ltpll_research.paper.duration import Pace
    from ltpll_research.paper.figures import PLOTTERS
    from ltpll_research.paper.grid import Finished, experiments, parse_settings
    from ltpll_research.plotting import require_matplotlib

    if launcher not in ("local", "ray"):
        raise InputError(f"There is no launcher {launcher!r}: choose local or ray.")
    place = str(chosen_device(device))
    changes = parse_settings(" ".join(change or ()))
    if epochs is not None:
        changes["epochs"] = epochs
    folders = [out, *(results or ())]
    for folder in results or ():
        if not folder.is_dir():
            raise InputError(f"There is no results folder {folder}.")
        if not finished_runs(folder, skip_damaged=True):
            raise InputError(
                f"There are no results directly in {folder}: give the folder that holds them, such as results/images."
            )
    finished = Finished.under(*folders)
    pace = Pace.of(finished, environment(place)["hardware"])
    chosen = parse_settings(only)
    if show or name is None:
        _show_list(
            ITEMS.values(), lambda item: experiments(item, seeds, changes, chosen), finished, pace
        )
        return
    item = find_item(name)
    if item.instead:
        console.print(f"{item.where}, {item.title}: {item.instead}.")
        return
    picture = out.parent / f"{item.name}.png"
    check_outputs(context, picture, suffixes=PICTURES, makes_folder=True)
    changes["precision"] = "bfloat16" if place.startswith("cuda") else "float32"
    wanted = experiments(item, seeds, changes, chosen)
    if not wanted:
        raise InputError(
            f"No run of {item.name} matches {only!r}: ltpll-research reproduce {item.name} --dry-run lists all of them."
        )
    missing = [experiment for experiment in wanted if experiment not in finished]
    console.print(
        f"{item.where}, {item.title}: {len(wanted) - len(missing)} of {len(wanted)} runs done{_left(missing, pace)}."
    )
    failed = 0
    if dry_run:
        for experiment in missing:
            print_line(f"  missing: {_name(experiment)}")
    else:
        if item.name in PLOTTERS:
            require_matplotlib()
        for data in dict.fromkeys(experiment.data for experiment in missing):
            load_image_set(
                data, data_root, mmap=True
            )  # a missing image set fails here once, not in every run
        failed = _train(missing, out, data_root, place, per_gpu, launcher, ray_address)
    _show(
        item,
        Finished.under(*folders),
        seeds,
        {key: value for key, value in changes.items() if key != "precision"},
        chosen,
        picture,
    )
    if failed:
        console.print(
            f"{failed} of {len(missing)} runs failed. Rerun the command to try them again."
        )
        raise typer.Exit(1)


def _show(
    item: Any,
    finished: Any,
    seeds: int,
    protocol: Mapping[str, Any],
    chosen: Mapping[str, Any],
    picture: Path,
) -> None:
    from ltpll_research.paper.figures import PLOTTERS, draw_figure

    if item.name in PLOTTERS and draw_figure(item, finished, protocol, picture):
        print_line(f"Figure: {picture.resolve()}")
    if item.name not in PLOTTERS or item.name == "ablation-m":
        _show_table(item, finished, seeds, protocol, chosen)
    if protocol:
        console.print(
            f"Deviates from the paper's protocol: {', '.join(f'{key} = {value}' for key, value in protocol.items())}."
        )


def _train(
    missing: Sequence[Any],
    out: Path,
    data_root: Path | None,
    device: str,
    per_gpu: int,
    launcher: str,
    ray_address: str | None,
) -> int:
    """Train the missing runs, and return how many failed."""
    from ltpll.cli.progress import ProgressBar
    from ltpll.training.job import Part, Stage
    from ltpll_research.benchmark import experiment_run
    from ltpll_research.paper.duration import pixels_processed
    from ltpll_research.paper.launch import launch, launch_in_processes
    from ltpll_research.paper.on_ray import launch_on_ray

    progress = ProgressBar()
    parts = [
        Part(
            f"run {number} of {len(missing)}",
            each.epochs,
            pixels_processed(each.config()) / each.epochs,
        )
        for number, each in enumerate(missing, 1)
    ]
    runs = [experiment_run(out, experiment) for experiment in missing]

    def watch(number: int, experiment: Any, run: Run) -> ProgressBar:
        print_line(f"[{number + 1}/{len(missing)}] {_name(experiment)}  {run.folder}")
        progress.start(parts[number])
        return progress

    def show() -> None:
        progress.update(sum(run.epochs_logged() for run in runs))

    try:
        if per_gpu > 1 or launcher == "ray":
            everything = Part(
                f"{len(runs)} runs",
                sum(part.epochs for part in parts),
                done=sum(run.epochs_logged() for run in runs),
            )
            progress.plan([Stage([everything])])
            progress.start(everything)
            if launcher == "ray":
                outcomes = launch_on_ray(
                    missing,
                    out,
                    data_root=data_root,
                    device=device,
                    per_gpu=per_gpu,
                    address=ray_address,
                    on_wait=show,
                )
            else:
                outcomes = launch_in_processes(
                    missing, out, workers=per_gpu, data_root=data_root, device=device, on_wait=show
                )
        else:
            progress.plan([Stage(parts)])
            outcomes = launch(missing, out, data_root=data_root, device=device, on_start=watch)
        progress.finish()
    except KeyboardInterrupt:
        progress.close()  # before anything is printed below it
        console.print("Interrupted: rerun the command to resume from the last checkpoint.")
        raise typer.Exit(130) from None
    finally:
        progress.close()
    failures = [outcome for outcome in outcomes if outcome.reason]
    for outcome in failures:
        print_line(f"failed: {_name(outcome.experiment)}: {outcome.reason}")
    return len(failures)


def _show_list(
    items: Any, runs_of: Callable[[Any], Sequence[Any]], finished: Any, pace: Any
) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("item", no_wrap=True)
    for column in ("runs done", "time left"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("what")
    for item in items:
        runs = runs_of(item)
        missing = [run for run in runs if run not in finished]
        if item.instead:
            table.add_row(item.name, "–", "–", f"{item.where}: {item.title} ({item.instead})")
            continue
        left = pace.seconds(missing) if missing else 0.0
        table.add_row(
            item.name,
            f"{len(runs) - len(missing)}/{len(runs)}",
            format_duration(left),
            f"{item.where}: {item.title}",
        )
    console.print(table)
    console.print("Items share runs; rows whose method is not implemented are not counted.")
    if pace.speed is not None:
        print_line(f"Times are estimated from finished runs on {pace.hardware}.")


def _show_table(
    item: Any, finished: Any, seeds: int, protocol: Mapping[str, Any], chosen: Mapping[str, Any]
) -> None:
    from ltpll_research.paper.catalog import with_equal_lengths
    from ltpll_research.paper.compare import cell_text, compare

    compared = compare(item, finished, seeds, protocol)
    if "epochs" in protocol:
        item = with_equal_lengths(item)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("setting")
    table.add_column("row")
    for column in ("ours, last epoch (%)", "paper", "difference"):
        table.add_column(column, justify="right")
    marked: dict[str, str] = {}  # the protocols of rows that depart from the paper's
    for number, column in enumerate(item.columns):
        for line, cells in zip(item.lines, compared, strict=True):
            cell = cells[number]
            if cell.last is None and not (cell.missing_parts and not chosen):
                continue
            difference = "–" if cell.difference is None else f"{cell.difference:+.2f}"
            if line.protocol.mark:
                marked[line.protocol.mark] = line.protocol.summary
            colour = "" if cell.difference is None else "[yellow]" if cell.is_far else "[green]"
            table.add_row(
                column,
                line.label,
                cell_text(cell),
                "–" if cell.published is None else f"{cell.published:.2f}",
                colour + difference,
            )
    console.print(table if table.row_count else "No runs yet.")
    for mark, summary in marked.items():
        print_line(f"{mark}: {summary}.")


def _name(experiment: Any) -> str:
    from ltpll_research.paper.catalog import column_label, row_label

    setting = {"data": experiment.data, "superclass": experiment.superclass}
    if experiment.data != "voc2007":
        setting |= {"imbalance": experiment.imbalance, "ambiguity": experiment.ambiguity}
    options = "".join(f" {part} {dict(values)}" for part, values in experiment.options.items())
    parts = row_label(experiment.method, experiment.rebalancer, "", experiment.extras)
    changed = [
        name
        for name in ("epochs", "views", "schedule", "draw")
        if getattr(experiment, name) != getattr(type(experiment), name)
    ]
    how = "".join(f", {name} {getattr(experiment, name)}" for name in changed)
    return f"{column_label(setting)}, {parts}{options}{how}, seed {experiment.seed}"


def _left(missing: Sequence[Any], pace: Any) -> str:
    seconds = pace.seconds(missing)
    return f", about {format_duration(seconds)} left on {pace.hardware}" if seconds else ""
