"""The demo and toy commands: small studies, with a page and a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.console import console, print_line
from ltpll.cli.outputs import PAGES, PICTURES, check_outputs
from ltpll.formatting import are, counted
from ltpll.runs.run import Run
from ltpll_research.cli.compare import show_comparison
from ltpll_research.cli.options import Fresh, hardware_option, output_option, training_option

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
    from ltpll_research.comparing.page import write_page
    from ltpll_research.studies import digits

    page = out / "demo.html"
    check_outputs(context, page, suffixes=PAGES, makes_folder=True)
    console.print(" ".join(digits.INTRO))
    runs = [Run(out / "digits", config) for config in digits.configs(seeds)]
    _train_runs(runs, digits.train, workers, fresh)
    problems = show_comparison([run.result() for run in runs])
    title = "Digits, long-tailed and ambiguous"
    write_page(page, problems, title=title, intro=digits.INTRO)
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
    show_comparison([run.result() for run in runs])
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
