"""The reproduce command: the runs behind a table or figure, beside the published numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from ltpll.cli.console import console, print_line
from ltpll.cli.outputs import PICTURES, check_outputs
from ltpll.errors import InputError
from ltpll.files import write_atomically
from ltpll_research.cli.many_runs import name_of, train_missing
from ltpll_research.cli.options import DataRoot, Device, Settings, output_option, training_option
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
            help="Number of seeds, from 0; each draws its own subset, candidates and training; "
            "with --set draw=authors, only its training.",
        ),
    ] = 1,
    epochs: Annotated[
        int | None,
        training_option(min=1, help="Epochs per run.", show_default="those of the paper"),
    ] = None,
    change: Settings = None,
    data_root: DataRoot = None,
    device: Device = "auto",
) -> None:
    """Train the missing runs of a table or figure, and compare them with the published numbers.

    Rerun the command to resume. Several processes on one folder share the work.
    """
    from ltpll.validation import chosen_device
    from ltpll_research.comparing.pictures import draw_problems
    from ltpll_research.comparing.systems import compare_systems
    from ltpll_research.image_sets.prepared import load_image_set
    from ltpll_research.paper.catalog import ITEMS, find_item
    from ltpll_research.paper.compare import PARTS, WHAT
    from ltpll_research.paper.grid import Finished, experiments, parse_settings

    place = str(chosen_device(device))
    changes = parse_settings(" ".join(change or ()))
    if other := sorted(changes.keys() & {*WHAT, *PARTS} - {"precision", "options"}):
        raise InputError(
            f"--set {other[0]} would be another row or column of the paper: --set changes how runs "
            f"are trained, and --only {other[0]}=VALUE chooses among them."
        )
    if epochs is not None:
        changes["epochs"] = epochs
    for folder in results or ():
        if not folder.is_dir() or not finished_runs(folder, skip_damaged=True):
            raise InputError(
                f"There are no results directly in {folder}: give the folder that holds them, such "
                "as results/images."
            )
    folders = [out, *(results or ())]
    finished = Finished.under(*folders)
    chosen = parse_settings(only)
    if show or name is None:
        items = ITEMS.values()
        runs = [(item, experiments(item, seeds, changes, chosen)) for item in items]
        _show_list(runs, finished)
        return
    item = find_item(name)
    if item.instead:
        console.print(f"{item.where}, {item.title}: {item.instead}.")
        return
    picture = out.parent / f"{item.name}.png"
    check_outputs(context, picture, suffixes=PICTURES, makes_folder=True)
    protocol = dict(changes)
    changes["precision"] = "bfloat16" if place.startswith("cuda") else "float32"
    wanted = experiments(item, seeds, changes, chosen)
    if not wanted:
        raise InputError(
            f"No run of {item.name} matches {only!r}: ltpll-research reproduce {item.name} "
            "--dry-run lists all of them."
        )
    missing = [experiment for experiment in wanted if experiment not in finished]
    done = f"{len(wanted) - len(missing)} of {len(wanted)} runs done"
    console.print(f"{item.where}, {item.title}: {done}.")
    failed = 0
    if dry_run:
        for experiment in missing:
            print_line(f"  missing: {name_of(experiment)}")
    else:
        for data in dict.fromkeys(experiment.data for experiment in missing):
            load_image_set(data, data_root, mmap=True)  # a missing one fails here once, not per run
        failed = train_missing(missing, out, data_root, device=place)
        finished = Finished.under(*folders)
    is_figure = item.where.startswith("Figure")
    records = finished.newest(wanted) if is_figure else []
    if records:
        write_atomically(picture, draw_problems(compare_systems(records)))
        print_line(f"Figure: {picture.resolve()}")
    if not is_figure or item.name == "ablation-m":
        _show_table(item, finished, seeds, protocol, chosen)
    if protocol:
        settings = ", ".join(f"{key} = {value}" for key, value in protocol.items())
        console.print(f"Deviates from the paper's protocol: {settings}.")
    if failed:
        console.print(
            f"{failed} of {len(missing)} runs failed. Rerun the command to try them again."
        )
        raise typer.Exit(1)


def _show_list(items: Sequence[tuple[Any, Sequence[Any]]], finished: Any) -> None:
    table = Table("item", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("runs done", justify="right", no_wrap=True)
    table.add_column("what")
    for item, runs in items:
        done = f"{sum(run in finished for run in runs)}/{len(runs)}"
        what = f"{item.where}: {item.title}"
        if item.instead:
            done, what = "–", f"{what} ({item.instead})"
        table.add_row(item.name, done, what)
    console.print(table)
    console.print("Items share runs; rows whose method is not implemented are not counted.")


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
    for heading in ("ours, last epoch (%)", "paper", "difference"):
        table.add_column(heading, justify="right")
    marked: dict[str, str] = {}  # the protocols of rows that depart from the paper's
    for number, column in enumerate(item.columns):
        for line, cells in zip(item.lines, compared, strict=True):
            cell = cells[number]
            if cell.last is None and not (cell.missing_parts and not chosen):
                continue
            if line.protocol.mark:
                marked[line.protocol.mark] = line.protocol.summary
            difference = "–"
            if cell.difference is not None:
                difference = f"{'[yellow]' if cell.is_far else '[green]'}{cell.difference:+.2f}"
            published = "–" if cell.published is None else f"{cell.published:.2f}"
            table.add_row(column, line.label, cell_text(cell), published, difference)
    console.print(table if table.row_count else "No runs yet.")
    for mark, summary in marked.items():
        print_line(f"{mark}: {summary}.")
