"""The report command: a finished run on a table as one HTML page that opens offline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ltpll.cli.console import print_line
from ltpll.cli.options import FalseDiscoveries
from ltpll.cli.outputs import PAGES, check_outputs
from ltpll.errors import InputError
from ltpll.runs.run import read_result
from ltpll.runs.schema import Kind, kind_of_run

Out = Annotated[Path, typer.Option(help="The page to write.")]
Title = Annotated[str | None, typer.Option(help="The heading of the page.", show_default=False)]


def report(
    context: typer.Context,
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder written by `ltpll train TABLE --out RUN`.")
    ],
    out: Out = Path("ltpll-report.html"),
    title: Title = None,
    false_discoveries: FalseDiscoveries = None,
) -> None:
    """Write a page of the classes and examples of a run on a table; it opens offline."""
    check_outputs(context, out, suffixes=PAGES, makes_folder=True)
    check_is_table_run(run, read_result(run)["config"], "report")
    from ltpll.cleaning.stored_tables import read_cleaned
    from ltpll.report.cleaning_page import write_cleaning_page

    write_cleaning_page(out, read_cleaned(run, false_discoveries), title)
    print_line(f"Report: {out.resolve()}")


def check_is_table_run(run: Path, config: Mapping[str, Any], command: str) -> None:
    """Refuse a run of research, for which the package ltpll-research has a command of the same
    name.
    """
    kind = kind_of_run(config)
    if kind in (Kind.BENCHMARK, Kind.STUDY):
        raise InputError(
            f"{run} is {kind}: use `ltpll-research {command}`, which the package "
            "ltpll-research installs."
        )
