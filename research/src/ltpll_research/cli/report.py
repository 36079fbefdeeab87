"""The report command: benchmark runs and studies as one HTML page that opens offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.console import print_line
from ltpll.cli.outputs import PAGES, check_outputs
from ltpll.errors import InputError
from ltpll.formatting import counted
from ltpll.runs.run import Record, read_result
from ltpll_research.records import finished_runs
from ltpll_research.schema import check_record

RunPaths = Annotated[
    list[Path],
    typer.Argument(metavar="RUN…", help="Run folders, folders of runs, or result files."),
]


def report(
    context: typer.Context,
    paths: RunPaths,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("ltpll-report.html"),
    title: Annotated[
        str | None, typer.Option(help="The heading of the page.", show_default=False)
    ] = None,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper", help="Show the numbers of the RECORDS paper beside those of its experiments."
        ),
    ] = False,
) -> None:
    """Write a page of tables and curves per setting; it opens offline."""
    from ltpll_research.report.study_page import write_page

    check_outputs(context, out, suffixes=PAGES, makes_folder=True)
    records = records_of(paths)
    for record in records:
        check_record(record)
    compared = []
    if paper:
        from ltpll_research.paper.grid import Finished
        from ltpll_research.paper.layout import comparison_tables

        seeds = 1 + max(record["config"]["seed"] for record in records)
        compared = comparison_tables(Finished(records), seeds)
    write_page(out, records, title=title or "Runs", intro=[], comparisons=compared)
    print_line(f"{counted(len(records), 'run')}: {out.resolve()}")


def records_of(paths: Sequence[Path]) -> list[Record]:
    """The records of runs in these folders and files, each once."""
    return list({record["key"]: record for path in paths for record in _records(path)}.values())


def _records(path: Path) -> list[Record]:
    if not path.is_dir() or (path / "config.json").exists():
        return [read_result(path)]
    found = finished_runs(path)
    if not found:
        raise InputError(
            f"There are no finished runs in {path}: give a run folder, or a folder of runs."
        )
    return found
