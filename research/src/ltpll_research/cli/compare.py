"""The compare command: runs of several seeds as tables with paired differences, page or picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ltpll.cli.console import console, print_line
from ltpll.cli.outputs import PAGES, PICTURES, check_outputs
from ltpll.errors import InputError
from ltpll.files import write_atomically
from ltpll.runs.run import Record, read_result
from ltpll.runs.schema import Kind, kind_of_run
from ltpll_research.cli.options import output_option
from ltpll_research.records import finished_runs
from ltpll_research.schema import check_record

if TYPE_CHECKING:
    from ltpll_research.comparing.systems import Problem

# With their deviations; those of the others would need a wide terminal.
SPREAD = ("balanced", "accuracy", "recovered", "information")


def compare(
    context: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="RUN…", help="Run folders, folders of runs, or result files."),
    ],
    against: Annotated[
        str | None,
        output_option(
            help="Label of the system that others are compared with.",
            show_default="the first without a rebalancer",
        ),
    ] = None,
    out: Annotated[
        Path, output_option(help="Page (.html) or figure (.png, .svg, .pdf) to write.")
    ] = Path("ltpll-compare.html"),
    title: Annotated[str, output_option(help="The heading of the page.")] = "Comparison",
) -> None:
    """Compare finished runs, of benchmarks or on tables: mean ± deviation over seeds, and paired.

    Runs that differ in their seed alone are one system.
    """
    from ltpll_research.comparing.page import write_page
    from ltpll_research.comparing.pictures import draw_problems

    check_outputs(context, out, suffixes=[*PAGES, *PICTURES], makes_folder=True)
    records = {record["key"]: record for path in paths for record in _records(path)}
    for record in records.values():
        if kind_of_run(record["config"]) is not Kind.TABLE:
            check_record(record)
    problems = show_comparison(list(records.values()), against)
    if out.suffix in PAGES:
        write_page(out, problems, title=title)
    else:
        write_atomically(out, draw_problems(problems, out.suffix[1:]))
    print_line(f"Written: {out.resolve()}")


def _records(path: Path) -> list[Record]:
    if not path.is_dir() or (path / "config.json").exists():
        return [read_result(path)]
    found = finished_runs(path)
    if not found:
        raise InputError(
            f"There are no finished runs in {path}: give a run folder, or a folder of runs."
        )
    return found


def show_comparison(records: Sequence[Record], against: str | None = None) -> Sequence[Problem]:
    """Print a table for each problem."""
    from rich import box
    from rich.table import Table

    from ltpll_research.comparing.systems import compare_systems

    problems = compare_systems(records, against)
    for problem in problems:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        table.add_column("system", overflow="fold", min_width=16)
        same_n = len({system.row.n for system in problem.systems}) == 1
        several = len(records) > 1  # a single run has room for its best epoch
        twice = {"accuracy"} if "balanced" in problem.measures else set()
        twice |= {"best epoch"} if several else set()
        shown = [one for one in problem.measures if one not in twice]
        for heading in (*([] if same_n else ["seeds"]), *shown, "gain"):
            table.add_column(heading, justify="right", no_wrap=True)
        for system in problem.systems:
            n = [] if same_n else [str(system.row.n)]
            texts = [system.text(measure) for measure in shown]
            brief = [
                text if measure in SPREAD else text.split(" ")[0]
                for measure, text in zip(shown, texts, strict=True)
            ]
            table.add_row(system.label, *n, *brief, problem.gain(system))
        print_line(problem.title)
        console.print(table)
    for note in dict.fromkeys(problem.note for problem in problems):
        print_line(note)
    return problems
