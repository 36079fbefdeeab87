"""The report command: a finished run on a table as one HTML page that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.console import print_line
from ltpll.cli.options import FalseDiscoveries, OwnRun
from ltpll.cli.outputs import PAGES, check_outputs


def report(
    context: typer.Context,
    run: OwnRun,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("ltpll-report.html"),
    title: Annotated[
        str | None, typer.Option(help="The heading of the page.", show_default=False)
    ] = None,
    false_discoveries: FalseDiscoveries = None,
) -> None:
    """Write a page of the classes and examples of a run on a table; it opens offline."""
    from ltpll.cleaning.stored_tables import read_cleaned
    from ltpll.report.cleaning_page import write_cleaning_page

    check_outputs(context, out, suffixes=PAGES, makes_folder=True)
    write_cleaning_page(out, read_cleaned(run, false_discoveries), title)
    print_line(f"Report: {out.resolve()}")
