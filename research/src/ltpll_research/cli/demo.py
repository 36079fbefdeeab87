"""The demo command: a small study of long-tailed, ambiguous digits, with a page of results."""

from __future__ import annotations

from pathlib import Path

import typer

from ltpll.cli.console import console, print_line
from ltpll.cli.outputs import PAGES, check_outputs
from ltpll.runs.run import Run
from ltpll_research.cli.options import Fresh
from ltpll_research.cli.study import Out, Seeds, Workers, print_differences, print_table, train_runs
from ltpll_research.summary import rows


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
    from ltpll_research.report.study_page import write_page
    from ltpll_research.studies import digits

    page = out / "demo.html"
    check_outputs(context, page, suffixes=PAGES, makes_folder=True)
    console.print(" ".join(digits.INTRO))
    runs = [Run(out / "digits", config) for config in digits.configs(seeds)]
    train_runs(runs, digits.train, workers, fresh)
    records = [run.result() for run in runs]
    table = rows(records)
    print_table(table, shots=records[0]["shots"])
    print_differences(table, "records", "anchor")
    write_page(page, records, title="Digits, long-tailed and ambiguous", intro=digits.INTRO)
    console.print()
    print_line(f"Report: {page.resolve()}")
