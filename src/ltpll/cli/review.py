"""The review command: ask a person about rows of a trained run."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ltpll.cleaning.settings import TrainJob
from ltpll.cli.console import print_line
from ltpll.cli.options import OwnRun, output_option
from ltpll.cli.outputs import PAGES, check_outputs
from ltpll.errors import InputError
from ltpll.formatting import command, counted
from ltpll.runs.run_files import RunFile

if TYPE_CHECKING:
    from ltpll.cleaning.results import CleanedTable

PAGE = Path("ltpll-review.html")


def review(
    context: typer.Context,
    run: OwnRun,
    out: Annotated[Path, output_option(help="Page to write: .html.")] = PAGE,
    n: Annotated[int, output_option("--n", help="Number of rows.", min=1)] = 60,
    audit: Annotated[
        int, output_option(help="How many of them are drawn at random for the audit.", min=0)
    ] = 30,
    serve: Annotated[
        bool,
        output_option("--serve", help="Serve the page here, and store answers as they are given."),
    ] = False,
) -> None:
    """Ask a person about some rows: a random sample, suspicious sets and doubtful labels.

    Answers say how good the labels are (`ltpll audit`), make confidences and flags better, and
    replace candidate sets in the next training (`ltpll train --reviewed`).
    """
    from ltpll.cleaning.audit import answers_of_page, store_answers, stored_answers
    from ltpll.cleaning.review import choose_questions
    from ltpll.cleaning.stored_tables import read_cleaned
    from ltpll.cli.review_server import ReviewServer
    from ltpll.report import templates
    from ltpll.report.review_page import pictures_of_rows, render_review_page

    if not serve:
        check_outputs(context, out, suffixes=PAGES, makes_folder=True)
    table = read_cleaned(run, answered=False)
    questions, answers = choose_questions(table, n, audit), stored_answers(run, table)
    if not len(questions.rows):
        raise InputError("There is nothing to review: every row was reviewed, or was held out.")
    pictures = pictures_of_rows(table, questions.rows)
    page = render_review_page(table, questions, answers, pictures=pictures, served=serve)
    if serve:

        def store(given: Any) -> None:
            store_answers(run, table, answers_of_page(table, questions, answers, given))

        with ReviewServer(page, store) as server, suppress(KeyboardInterrupt):
            print_line(f"Open {server.url} and press Ctrl-C here when you are done.")
            server.serve_forever()
        print_line("Next:")
        print_next(run, table, run / RunFile.ANSWERS)
        return
    templates.write(out, page)
    print_line(f"Review page: {out.resolve()}")
    print_line(f"Next: answer {counted(len(questions.rows), 'row')}, download answers.csv; then")
    print_next(run, table, Path("answers.csv"))


def print_next(run: Path, table: CleanedTable, answers: Path) -> None:
    """Print the commands that use answers."""
    print_line(command("ltpll", "audit", run, *([] if answers.parent == run else [answers])))
    earlier = [] if table.reviewed is None else ["--reviewed", "EARLIER_ANSWERS"]
    words = TrainJob.of_record(table.record).words()
    # From the answers in its folder, the next training finds the run to start from.
    words = [*earlier, "--reviewed", str(run / RunFile.ANSWERS), "--out", "NEW_RUN", *words]
    print_line(command("ltpll", "train", table.record["source"]["table"], *words))
