"""The demo command: the example table, trained on, cleaned and shown on a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.clean import clean
from ltpll.cli.console import print_line
from ltpll.cli.data import example
from ltpll.cli.options import Fresh, output_option
from ltpll.cli.report import report
from ltpll.cli.train import train
from ltpll.formatting import command


def demo(
    context: typer.Context,
    out: Annotated[Path, output_option(help="Folder for the table, the run and its page.")] = Path(
        "ltpll-runs/demo"
    ),
    fresh: Fresh = False,
) -> None:
    """Clean an example table in about a minute: train on it, write its labels, and a page about them."""
    table, run, cleaned, page = (
        out / name for name in ("digits.csv", "run", "cleaned.csv", "report.html")
    )
    if not table.exists():  # an earlier demo is continued
        example(context, out)
    for does, words in (
        (lambda: train(context, str(table), out=run, fresh=fresh), ("train", table, "--out", run)),
        (lambda: clean(context, run, out=cleaned), ("clean", run, "--out", cleaned)),
        (lambda: report(context, run, out=page), ("report", run, "--out", page)),
    ):
        print_line(f"$ {command('ltpll', *words)}")
        does()
