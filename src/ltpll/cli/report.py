"""The report command: anybody's own finished runs as one HTML page that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.console import console
from ltpll.errors import InputError
from ltpll.files import parse_json
from ltpll.runs.checksums import MARKER
from ltpll.runs.run import Record, check_not_of_run, finished_in, read_result
from ltpll.runs.schema import check_record

Option = typer.Option


def report(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders, folders of runs, or result files.")],
    out: Annotated[Path, Option(help="The page to write.")] = Path("ltpll-report.html"),
    title: Annotated[str | None, Option(help="Its heading.", show_default=False)] = None,
    paper: Annotated[bool, Option("--paper", help="Put the numbers of the RECORDS paper beside those of its experiments.")] = False,
) -> None:
    """A page that opens offline: of a run on own data its classes and examples, of others tables and curves, one part for each setting."""
    from ltpll.report.study_page import write_page

    check_not_of_run(out)
    if any(_is_own(path) for path in paths):
        if len(paths) > 1 or paper:
            raise InputError("A run on own data has a page of its own: give it alone.")
        from ltpll.report.cleaning_page import page_of, write_own_page

        write_own_page(out, page_of(paths[0], title))
        console.print(f"Report: {out.resolve()}", markup=False, soft_wrap=True)
        return
    records = [record for path in paths for record in _records(path)]
    for record in records:
        check_record(record)
    unique = {record["key"]: record for record in records}
    compared = []
    if paper:
        from ltpll.experiments.paper.compare import comparison_tables
        from ltpll.experiments.paper.grid import Finished

        compared = comparison_tables(Finished(unique.values()), 1 + max(record["config"]["seed"] for record in unique.values()))
    write_page(out, list(unique.values()), title=title or "Runs", intro=[], comparisons=compared)
    console.print(f"{len(unique)} runs: {out.resolve()}", markup=False, soft_wrap=True)


def _is_own(path: Path) -> bool:
    """Whether a folder holds a run on own data, finished or not."""
    try:
        config = parse_json((path / "config.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("experiment") == "own"


def _records(path: Path) -> list[Record]:
    if path.is_file():
        return [read_result(path)]
    if not path.is_dir():
        raise InputError(f"There is no run {path}.")
    if (path / "config.json").exists():
        if not (path / MARKER).exists():
            raise InputError(f"The run {path} is not finished: rerun the command that started it.")
        return [read_result(path / "result.json")]
    found = finished_in(path)
    if not found:
        raise InputError(f"There are no finished runs in {path}.")
    return found
