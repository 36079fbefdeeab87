"""The audit command: how good the labels of a run are, as answers of people show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.console import print_line, print_table
from ltpll.cli.options import OwnRun
from ltpll.errors import InputError
from ltpll.formatting import command, counted


def audit(
    run: OwnRun,
    answers: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[ANSWERS]...", help="Files of answers to store in the run first."),
    ] = None,
) -> None:
    """Say how many labels are right, by what people answered about a random sample of them.

    Answers are stored in the run. From then on, `clean` and `report` use them for confidences,
    suspicions and flags.
    """
    from ltpll.cleaning.audit import store_answers, stored_answers, with_answers_applied
    from ltpll.cleaning.results import findings, said_of_answers
    from ltpll.cleaning.stored_tables import read_cleaned

    before = read_cleaned(run, answered=False)
    given = stored_answers(run, before, answers or ())
    if answers:
        store_answers(run, before, given)
    table = with_answers_applied(before, given)
    if table.audit is None:
        advice = f"run {command('ltpll', 'review', run)}, and answer some rows"
        raise InputError(f"{run} has no answers to audit: {advice}.")
    sentences = said_of_answers(table) or ["None of the answers is about the random sample."]
    for sentence in [counted(table.audit.answers, "answer") + ".", *sentences, *findings(table)]:
        print_line(sentence)
    rows = [(str(table.classes[c]), str(one)) for c, one in table.audit.by_class.items()]
    if rows:
        print_table(["class", "labels that are right"], rows, left=(0,))
    print_line(f"Next: {command('ltpll', 'clean', run, '--out', 'cleaned.csv')}")
