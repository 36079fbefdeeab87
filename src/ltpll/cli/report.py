"""The report command: finished runs as one HTML page that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.console import console
from ltpll.cli.options import FalseDiscoveries
from ltpll.cli.outputs import PAGES, check_outputs
from ltpll.errors import InputError
from ltpll.formatting import counted
from ltpll.runs.run import Record, Run, finished_runs, read_result
from ltpll.runs.schema import Kind, check_record, kind_of_run

Option = typer.Option


def report(
    context: typer.Context,
    paths: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders, folders of runs, or result files.")],
    out: Annotated[Path, Option(help="The page to write.")] = Path("ltpll-report.html"),
    title: Annotated[str | None, Option(help="The heading of the page.", show_default=False)] = None,
    false_discoveries: FalseDiscoveries = None,
    paper: Annotated[bool, Option("--paper", help="Show the numbers of the RECORDS paper beside those of its experiments.")] = False,
) -> None:
    """Write a page that opens offline: for a run on a table its classes and examples, for other runs tables and curves per setting."""
    check_outputs(context, out, suffixes=PAGES, makes_folder=True)
    if any(_is_table_run(path) for path in paths):
        if len(paths) > 1 or paper:
            raise InputError("The page of a run on a table shows that run only: give no other runs, and leave --paper out.")
        from ltpll.report.cleaning_page import page_contents, write_cleaning_page

        write_cleaning_page(out, page_contents(paths[0], title, false_discoveries))
        console.print(f"Report: {out.resolve()}", markup=False, soft_wrap=True)
        return
    from ltpll.report.study_page import write_page

    unique = {record["key"]: record for path in paths for record in _records(path)}
    for record in unique.values():
        check_record(record)
    compared = []
    if paper:
        from ltpll.experiments.paper.grid import Finished
        from ltpll.experiments.paper.layout import comparison_tables

        compared = comparison_tables(Finished(unique.values()), 1 + max(record["config"]["seed"] for record in unique.values()))
    write_page(out, list(unique.values()), title=title or "Runs", intro=[], comparisons=compared)
    console.print(f"{counted(len(unique), 'run')}: {out.resolve()}", markup=False, soft_wrap=True)


def _is_table_run(path: Path) -> bool:
    return (path / "config.json").exists() and kind_of_run(Run.open(path).config) is Kind.TABLE


def _records(path: Path) -> list[Record]:
    if not path.is_dir() or (path / "config.json").exists():
        return [read_result(path)]
    found = finished_runs(path)
    if not found:
        raise InputError(f"There are no finished runs in {path}: give a run folder, or a folder of runs.")
    return found
