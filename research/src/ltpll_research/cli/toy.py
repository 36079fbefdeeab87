"""The toy command: the paper's study of four squares, with its figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.console import console, print_line
from ltpll.cli.outputs import PICTURES, check_outputs
from ltpll.runs.run import Run
from ltpll_research.cli.options import Fresh, training_option
from ltpll_research.cli.study import Out, Seeds, Workers, print_table, train_runs
from ltpll_research.summary import rows


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
    train_runs(runs, study.train, workers, fresh)
    print_table(rows([run.result() for run in runs]))
    study.draw([run for run in runs if run.config["seed"] == 0], figure)
    console.print()
    print_line(f"Figure (seed 0): {figure.resolve()}")
