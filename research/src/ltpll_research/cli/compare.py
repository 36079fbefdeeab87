"""The compare command: runs of several seeds as a table with paired differences, and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ltpll.cli.console import console, print_line
from ltpll.cli.outputs import PICTURES, check_outputs
from ltpll.formatting import counted
from ltpll_research.cli.options import output_option
from ltpll_research.cli.report import RunPaths, records_of

if TYPE_CHECKING:
    from ltpll.runs.run import Record
    from ltpll_research.comparison import Problem


def compare(
    context: typer.Context,
    paths: RunPaths,
    against: Annotated[
        str | None,
        output_option(
            help="Label of the system that others are compared with.",
            show_default="the first without a rebalancer",
        ),
    ] = None,
    out: Annotated[Path, output_option(help="Figure to write.")] = Path("ltpll-compare.png"),
) -> None:
    """Compare finished runs, of benchmarks or on tables: mean ± deviation over seeds, and paired.

    Runs that differ in their seed alone are one system.
    """
    from ltpll_research.comparison import draw_comparison

    check_outputs(context, out, suffixes=PICTURES, makes_folder=True)
    problems = show_comparison(records_of(paths), against)
    draw_comparison(problems, out)
    print_line(f"Figure: {out.resolve()}")


def show_comparison(records: Sequence[Record], against: str | None = None) -> Sequence[Problem]:
    """Print a table for each problem."""
    from rich import box
    from rich.table import Table

    from ltpll_research.comparison import compare_systems

    problems = compare_systems(records, against)
    for problem in problems:
        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, title=problem.title, title_justify="left"
        )
        table.add_column("system", overflow="fold", min_width=16)
        for heading in ("seeds", *problem.measures, f"gain over {problem.reference.label}"):
            table.add_column(heading, justify="right")
        for system in problem.systems:
            figures = [system.figure(measure) for measure in problem.measures]
            gain = "–"
            if problem.measures and system is not problem.reference:
                found = system.difference(problem.reference, problem.measures[0])
                if found is not None:
                    figure, error = found
                    pairs = "" if figure.n == system.row.n else f" (n = {figure.n})"
                    gain = f"{100 * figure.mean:+.1f} ± {100 * error:.1f}{pairs}"
            shown = ["–" if figure is None else figure.percent() for figure in figures]
            table.add_row(system.label, str(system.row.n), *shown, gain)
        console.print(table)
    first = problems[0].measures[0] if problems[0].measures else "the first measure"
    console.print(
        f"{counted(len(records), 'run')}, last epoch: mean ± standard deviation over seeds. Last "
        f"column: {first}, difference of runs with the same seed ± its standard error."
    )
    return problems
