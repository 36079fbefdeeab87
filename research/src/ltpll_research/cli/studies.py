"""The demo and toy commands: small studies, with a page and a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from ltpll.cli.console import console, print_line
from ltpll.cli.outputs import PAGES, PICTURES, check_outputs
from ltpll.formatting import are, counted
from ltpll.runs.run import Record, Run
from ltpll_research.cli.options import Fresh, hardware_option, output_option, training_option
from ltpll_research.summary import Figure, Row, difference, rows

Out = Annotated[Path, output_option(help="Folder for runs and results.")]
Workers = Annotated[
    int | None,
    hardware_option(
        min=0,
        help="Training runs in parallel; 0 trains in this process.",
        show_default="one per core",
    ),
]
Seeds = Annotated[
    int, training_option(min=1, help="Number of seeds; each has its own data and training.")
]


def demo(
    context: typer.Context,
    out: Out = Path("ltpll-runs"),
    seeds: Seeds = 5,
    workers: Workers = None,
    fresh: Fresh = False,
) -> None:
    """See the effect in about a minute, on long-tailed, ambiguous digits.

    Two methods are trained without and with two rebalancers.
    """
    from ltpll_research.report.study_page import write_page
    from ltpll_research.studies import digits

    page = out / "demo.html"
    check_outputs(context, page, suffixes=PAGES, makes_folder=True)
    console.print(" ".join(digits.INTRO))
    runs = [Run(out / "digits", config) for config in digits.configs(seeds)]
    _train_runs(runs, digits.train, workers, fresh)
    records = [run.result() for run in runs]
    table = rows(records)
    _print_table(table, shots=records[0]["shots"])
    for row in table:
        gain = difference(row, table)
        if gain and row.rebalancer != "none" and not row.posthoc:
            figure, error = gain
            console.print(
                f"{row.label} gains {100 * figure.mean:+.1f} ± {100 * error:.1f} points over "
                f"{row.method} (paired, ± std. error)."
            )
    write_page(page, records, title="Digits, long-tailed and ambiguous", intro=digits.INTRO)
    console.print()
    print_line(f"Report: {page.resolve()}")


def toy(
    context: typer.Context,
    out: Out = Path("ltpll-runs"),
    seeds: Seeds = 8,
    cosine: Annotated[
        bool,
        training_option(
            "--cosine",
            help="Use the image experiments' cosine schedule, not a constant learning rate.",
        ),
    ] = False,
    workers: Workers = None,
    fresh: Fresh = False,
) -> None:
    """Run the paper's toy study: PRODEN on four squares, with three rebalancers."""
    from ltpll_research.studies import toy as study

    figure = out / ("toy-cosine.png" if cosine else "toy.png")
    check_outputs(context, figure, suffixes=PICTURES, makes_folder=True)
    runs = [Run(out / "toy", config) for config in study.configs(seeds, cosine=cosine)]
    _train_runs(runs, study.train, workers, fresh)
    _print_table(rows([run.result() for run in runs]))
    study.draw([run for run in runs if run.config["seed"] == 0], figure)
    console.print()
    print_line(f"Figure (seed 0): {figure.resolve()}")


def _train_runs(
    runs: Sequence[Run], train: Callable[[Run], None], workers: int | None, fresh: bool
) -> None:
    """Train the missing runs with a progress bar; Ctrl-C keeps the finished ones."""
    from ltpll.cli.progress import ProgressBar
    from ltpll.training.job import Part, Stage
    from ltpll_research.studies import run_missing

    # Fails before training if the folder cannot be written.
    runs[0].root.mkdir(parents=True, exist_ok=True)
    for run in runs:
        if fresh:
            run.delete_run()
        run.reopen_if_damaged()
    finished, total = sum(run.done for run in runs), counted(len(runs), "run")
    if finished:
        console.print(
            f"{finished} of {total} {'was' if finished == 1 else 'were'} finished earlier and "
            f"{are(finished)} reused (--fresh trains all runs again)."
        )
    if finished == len(runs):
        return
    epochs, done = sum(run.config["epochs"] for run in runs), sum(map(Run.epochs_logged, runs))
    everything = Part(total, epochs, done=done)
    with ProgressBar() as progress:
        progress.plan_stages([Stage([everything])])
        progress.start_part(everything)
        run_missing(runs, train, workers, progress.report_epochs)
        progress.report_epochs(everything.epochs)


def _print_table(table: Sequence[Row], shots: Record | None = None) -> None:
    """Print balanced accuracy and what explains it, one row per method and rebalancer."""

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
        shown.add_row(
            row.label,
            accuracy.percent() if accuracy else "–",
            *groups,
            recovery.percent() if recovery else "–",
        )
    console.print(shown)
    least, most = min(row.n for row in table), max(row.n for row in table)
    seeds = counted(least, "seed") if least == most else f"{least} to {most} seeds"
    console.print(
        f"Mean ± standard deviation over {seeds}, at the last epoch. accuracy: balanced test "
        "accuracy."
    )
    if shots:
        console.print(
            f"many / few: classes with more than {shots['many']} / fewer than {shots['few']} "
            "training examples."
        )
    console.print(
        "recovery: share of training examples whose most probable target is the true label."
    )
