"""Commands of the two studies that run anywhere, and the list of parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ltpll.cli.console import console
from ltpll.runs.run import Record, Run
from ltpll.runs.summary import Figure, Row, difference, rows

Out = Annotated[Path, typer.Option(help="Folder for runs and results.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Train again even what an earlier call has finished.")]
Workers = Annotated[
    int | None, typer.Option(min=0, help="Trainings side by side (default: one per core; 0: in this process).", show_default=False)
]


def demo(
    out: Out = Path("ltpll-runs"),
    seeds: Annotated[int, typer.Option(min=1, help="How many times to draw data and training anew.")] = 5,
    workers: Workers = None,
    fresh: Fresh = False,
) -> None:
    """See the effect in a minute: real digits made long-tailed and ambiguous, two methods with and without rebalancing."""
    from ltpll.experiments.studies import digits
    from ltpll.report.study_page import write_page

    console.print(" ".join(digits.INTRO))
    runs = [Run(out / "digits", config) for config in digits.configs(seeds)]
    _train(runs, digits.train, workers, fresh)
    records = [run.result() for run in runs]
    table = rows(records)
    _print_table(table, shots=records[0]["shots"])
    _print_differences(table, "records")
    page = out / "demo.html"
    write_page(page, records, title="Digits, long-tailed and ambiguous", intro=digits.INTRO)
    console.print(f"\nReport: {page.resolve()}", soft_wrap=True, markup=False)


def toy(
    out: Out = Path("ltpll-runs"),
    seeds: Annotated[int, typer.Option(min=1, help="How many times to draw data and training anew.")] = 8,
    cosine: Annotated[bool, typer.Option("--cosine", help="The schedule of the image experiments instead of a constant rate.")] = False,
    workers: Workers = None,
    fresh: Fresh = False,
) -> None:
    """The paper's toy study: four squares, PRODEN without rebalancing, with the oracle's prior and with RECORDS."""
    from ltpll.experiments.plotting import require_matplotlib
    from ltpll.experiments.studies import toy as study

    require_matplotlib()
    runs = [Run(out / "toy", config) for config in study.configs(seeds, cosine=cosine)]
    _train(runs, study.train, workers, fresh)
    _print_table(rows([run.result() for run in runs]))
    figure = out / ("toy-cosine.png" if cosine else "toy.png")
    study.draw([run for run in runs if run.config["seed"] == 0], figure)
    console.print(f"\nFigure (seed 0): {figure.resolve()}", soft_wrap=True, markup=False)


def list_parts() -> None:
    """Show every method, rebalancer and extra."""
    from ltpll.parts import describe_parts

    table = Table(box=box.SIMPLE, pad_edge=False)
    for heading in ("kind", "name", "what it does"):
        table.add_column(heading)
    for part in describe_parts():
        table.add_row(part.kind, part.name, part.idea)
    console.print(table)


# ---- what the commands share ----------------------------------------------------------------------------------------


def _train(runs: Sequence[Run], train: Callable[[Run], None], workers: int | None, fresh: bool) -> None:
    """Train what is missing under a progress bar; an interrupt keeps what is finished."""
    from ltpll.experiments.studies.runner import run_missing

    runs[0].root.mkdir(parents=True, exist_ok=True)  # so that a folder that cannot be written is said before anything starts
    for run in runs:
        if fresh:
            run.forget()
        run.reopen_if_damaged()
    found = sum(run.done for run in runs)
    if found:
        console.print(f"{found} of {len(runs)} runs were finished earlier and are used again (--fresh trains them anew).")
    total = sum(run.config["epochs"] for run in runs)
    columns = (
        TextColumn(f"training {len(runs)} runs"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    try:
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("", total=total)
            run_missing(runs, train, workers=workers, on_progress=lambda epochs: progress.update(task, completed=epochs))
            progress.update(task, completed=total)
    except KeyboardInterrupt:
        done = sum(run.done for run in runs)
        console.print(f"Interrupted: {done} of {len(runs)} runs are finished and kept; the same command goes on from there.")
        raise typer.Exit(130) from None


def _print_table(table: Sequence[Row], shots: Record | None = None) -> None:
    """Balanced accuracy and what explains it, a line for each method and rebalancer."""

    def plain(figure: Figure | None) -> str:
        return "–" if figure is None else f"{100 * figure.mean:.1f}"

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    shown.add_column("%")
    for heading in ("accuracy", *(("many", "medium", "few") if shots else ()), "recovery"):
        shown.add_column(heading, justify="right", no_wrap=True)
    previous = ""
    for row in table:
        if previous not in ("", row.method):
            shown.add_section()
        previous = row.method
        accuracy, recovery = row.last("balanced_accuracy"), row.target_recovery
        groups = [plain(row.last(name)) for name in ("many", "medium", "few")] if shots else []
        shown.add_row(row.label, accuracy.percent() if accuracy else "–", *groups, recovery.percent() if recovery else "–")
    console.print(shown)
    console.print(f"Mean ± standard deviation over {_seeds(table)}, at the last epoch. accuracy: balanced test accuracy.")
    if shots:
        console.print(f"many / few: classes with more than {shots['many']} / fewer than {shots['few']} training examples.")
    console.print("recovery: share of training examples whose true label is believed most.")


def _seeds(table: Sequence[Row]) -> str:
    counts = sorted({row.n for row in table})
    return " to ".join(str(n) for n in (counts if len(counts) == 1 else [counts[0], counts[-1]])) + " seeds"


def _print_differences(table: Sequence[Row], rebalancer: str) -> None:
    """What the rebalancer gains over the bare method, seed by seed."""
    for row in table:
        gain = difference(row, table) if row.rebalancer == rebalancer and not row.posthoc else None
        if gain:
            figure, error = gain
            console.print(
                f"{row.label} gains {100 * figure.mean:+.1f} ± {100 * error:.1f} points over {row.method} (paired, ± std. error)."
            )
