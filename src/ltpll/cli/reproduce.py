"""The reproduce command: the paper's tables and figures, what is still to run for them, and the results beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ltpll.cli.console import console
from ltpll.cli.progress import watch_epochs
from ltpll.errors import InputError
from ltpll.runs.run import Record, Run

Option = typer.Option


def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="ITEM", help="A table or figure that --list names, such as main or table1.")] = None,
    show: Annotated[bool, Option("--list", help="Show every table and figure and what is done of it.")] = False,
    only: Annotated[str, Option(help="Only some runs, such as 'dataset=cifar10 imbalance=100'.", show_default=False)] = "",
    seeds: Annotated[int, Option(min=1, help="Seeds 0, 1, …: each draws subset, candidates and training anew.")] = 1,
    epochs: Annotated[int | None, Option(min=1, help="Instead of the paper's 800.", show_default=False)] = None,
    change: Annotated[list[str] | None, Option("--set", help="Another setting than the paper's, such as width=16.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would be run, show what is there, and run nothing.")] = False,
    per_gpu: Annotated[int, Option(min=1, help="Runs side by side: pays under NVIDIA's MPS server, costs without it.")] = 1,
    launcher: Annotated[str, Option(help="local, or ray: a task for each run, on a cluster too (pip install 'ltpll[ray]').")] = "local",
    ray_address: Annotated[str | None, Option(help="Of a Ray cluster, such as auto; default: this machine.", show_default=False)] = None,
    device: Annotated[str, Option(help="cpu, cuda, or auto.")] = "auto",
    data_root: Annotated[Path | None, Option(help="Where prepared data lie; default $LTPLL_DATA.", show_default=False)] = None,
    out: Annotated[Path, Option(help="Folder for runs.")] = Path("ltpll-runs/images"),
    results: Annotated[list[Path] | None, Option(help="Folders of finished results to count in.", show_default=False)] = None,
) -> None:
    """Run what is missing of one of the paper's tables or figures, and show it beside what was published.

    Interrupt it at any time: the same command goes on. Two of them on one folder share the work.
    """
    from ltpll.data.benchmarks.image_sets import load_image_set
    from ltpll.experiments.paper.catalog import ITEMS, find_item
    from ltpll.experiments.paper.duration import Pace
    from ltpll.experiments.paper.figures import PLOTTERS
    from ltpll.experiments.paper.grid import Finished, experiments, parse_choice
    from ltpll.experiments.plotting import require_matplotlib
    from ltpll.runs.environment import environment
    from ltpll.validation import chosen_device

    if launcher not in ("local", "ray"):
        raise InputError(f"There is no launcher {launcher!r}: give local or ray.")
    place = str(chosen_device(device))
    changes = parse_choice(" ".join(change or ()))
    if epochs is not None:
        changes["epochs"] = epochs
    folders = [out, *(results or ())]
    for folder in results or ():
        if not folder.is_dir():
            raise InputError(f"There is no folder {folder} of results.")
    finished = Finished.under(*folders)
    pace = Pace.of(finished, environment(place)["hardware"])
    chosen = parse_choice(only)
    if show or name is None:
        _show_list(ITEMS.values(), lambda item: experiments(item, seeds, changes, chosen), finished, pace)
        return
    item = find_item(name)
    if item.instead:
        console.print(f"{item.where}, {item.title}: {item.instead}.")
        return
    changes["precision"] = "bfloat16" if place.startswith("cuda") else "float32"
    wanted = experiments(item, seeds, changes, chosen)
    if not wanted:
        raise InputError(f"No run of {item.name} fits {only!r}: look at ltpll reproduce {item.name} --dry-run without --only.")
    missing = [one for one in wanted if one not in finished]
    console.print(f"{item.where}, {item.title}: {len(wanted) - len(missing)} of {len(wanted)} runs done{_left(missing, pace)}.")
    failed = 0
    if dry_run:
        for one in missing:
            console.print(f"  missing: {_name(one)}", markup=False)
    else:
        if item.name in PLOTTERS:
            require_matplotlib()
        for data in dict.fromkeys(one.data for one in missing):
            load_image_set(data, data_root, mmap=True)  # rather refused now than once for every run
        failed = _run(missing, out, data_root, place, per_gpu, launcher, ray_address)
    _show(item, Finished.under(*folders), seeds, {key: value for key, value in changes.items() if key != "precision"}, chosen, out.parent)
    if failed:
        console.print(f"{failed} of {len(missing)} runs failed; the same command tries them again.")
        raise typer.Exit(1)


def _show(item: Any, finished: Any, seeds: int, protocol: Mapping[str, Any], chosen: Mapping[str, Any], folder: Path) -> None:
    from ltpll.experiments.paper.figures import PLOTTERS, draw_figure

    if item.name in PLOTTERS:
        picture = folder / f"{item.name}.png"
        if draw_figure(item, finished, protocol, picture):
            console.print(f"Figure: {picture.resolve()}", markup=False, soft_wrap=True)
    if item.name not in PLOTTERS or item.name == "ablation-m":
        _show_table(item, finished, seeds, protocol, chosen)
    if protocol:
        console.print(f"Not the paper's protocol: {', '.join(f'{key} = {value}' for key, value in protocol.items())}.")


def _run(
    missing: Sequence[Any], out: Path, data_root: Path | None, device: str, per_gpu: int, launcher: str, ray_address: str | None
) -> int:
    """How many failed."""
    from ltpll.experiments.benchmark import experiment_run
    from ltpll.experiments.paper.launch import launch, launch_in_processes
    from ltpll.experiments.paper.on_ray import launch_on_ray

    def watch(number: int, experiment: Any, run: Run) -> tuple[Callable[[Record], None], Callable[[], None]]:
        console.print(f"[{number + 1}/{len(missing)}] {_name(experiment)}  {run.folder}", markup=False, soft_wrap=True)
        return watch_epochs(run, experiment.epochs, False)

    try:
        if per_gpu > 1 or launcher == "ray":
            runs = [experiment_run(out, experiment) for experiment in missing]
            with Progress(TextColumn("{task.fields[said]}"), BarColumn(), TimeRemainingColumn(), console=console) as progress:
                task = progress.add_task("", total=sum(experiment.epochs for experiment in missing), said="starting")

                def show() -> None:
                    done = sum(run.done for run in runs)
                    progress.update(task, completed=sum(run.epochs_logged() for run in runs), said=f"{done} of {len(runs)} runs done")

                if launcher == "ray":
                    outcomes = launch_on_ray(
                        missing, out, data_root=data_root, device=device, per_gpu=per_gpu, address=ray_address, on_wait=show
                    )
                else:
                    outcomes = launch_in_processes(missing, out, workers=per_gpu, data_root=data_root, device=device, on_wait=show)
        else:
            outcomes = launch(missing, out, data_root=data_root, device=device, on_start=watch)
    except KeyboardInterrupt:
        console.print("Interrupted: the same command goes on from the last checkpoint.")
        raise typer.Exit(130) from None
    failures = [one for one in outcomes if one.reason]
    for one in failures:
        console.print(f"failed: {_name(one.experiment)}: {one.reason}", markup=False, soft_wrap=True)
    return len(failures)


def _show_list(items: Any, runs_of: Callable[[Any], Sequence[Any]], finished: Any, pace: Any) -> None:
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
        table.add_row(item.name, f"{len(runs) - len(missing)}/{len(runs)}", _duration(left), f"{item.where}: {item.title}")
    console.print(table)
    console.print("Runs are shared between items; rows whose method is not built yet are not counted.")
    if pace.speed is not None:
        console.print(f"Times are those of finished runs on {pace.hardware}.", markup=False)


def _show_table(item: Any, finished: Any, seeds: int, protocol: Mapping[str, Any], chosen: Mapping[str, Any]) -> None:
    from ltpll.experiments.paper.compare import LARGE_DIFFERENCE, cell_text, compare

    compared = compare(item, finished, seeds, protocol)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("setting")
    table.add_column("row")
    for column in ("ours, last epoch (%)", "paper", "difference"):
        table.add_column(column, justify="right")
    for number, column in enumerate(item.columns):
        for line, cells in zip(item.lines, compared, strict=True):
            cell = cells[number]
            if cell.last is None and not (cell.unbuilt and not chosen):
                continue
            difference = "–" if cell.difference is None else f"{cell.difference:+.2f}"
            colour = "" if cell.difference is None else "[green]" if abs(cell.difference) <= LARGE_DIFFERENCE else "[yellow]"
            table.add_row(
                column, line.label, cell_text(cell), "–" if cell.published is None else f"{cell.published:.2f}", colour + difference
            )
    console.print(table if table.row_count else "No runs yet.")


def _name(experiment: Any) -> str:
    from ltpll.experiments.paper.catalog import column_label, row_label

    setting = {"data": experiment.data, "superclass": experiment.superclass}
    if experiment.data != "voc2007":
        setting |= {"imbalance": experiment.imbalance, "ambiguity": experiment.ambiguity}
    options = "".join(f" {part} {dict(values)}" for part, values in experiment.options.items())
    what = row_label(experiment.method, experiment.rebalancer, "", experiment.extras)
    return f"{column_label(setting)}, {what}{options}, seed {experiment.seed}"


def _left(missing: Sequence[Any], pace: Any) -> str:
    seconds = pace.seconds(missing)
    return f", about {_duration(seconds)} left on {pace.hardware}" if seconds else ""


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
