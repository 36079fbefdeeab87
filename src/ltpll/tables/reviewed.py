"""Reviewed: the answers of people, read from a table and put in the place of candidate sets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ltpll.candidates.cells import KNOWN_SEPARATORS, SEPARATOR, parse_cell, unknown_class_error
from ltpll.errors import InputError, shown
from ltpll.formatting import are, counted, format_names
from ltpll.tables.columns import id_key, read_texts
from ltpll.tables.opening import open_table
from ltpll.tables.read_tables import LabelTable

ANSWER, CANDIDATES = ("answer", "label"), "candidates"
NO_ANSWER = ("", "?", "skip", "none", "unknown")
Answers = dict[str, tuple[int, ...]]
"""For each id, the class numbers that were answered."""


def read_answers(
    paths: Iterable[Path],
    table: LabelTable,
    *,
    id_column: str | None = None,
    separator: str = SEPARATOR,
) -> Answers:
    """Read the class numbers that were answered for some ids of a table.

    A file, such as a filled-in queue of `ltpll review`, has a column `id` (or `id_column`) and a
    column `answer` (or else `label`) with one class, or several as in `fox|jackal`, or with the
    separator of the table between them; `|` separates unless it is in the name of a class. Answers
    that are empty, `?`, `skip`, `none` or `unknown` are ignored, unless a class has that name.

    Raises:
        InputError: An id is unknown, an answer is not a class, an id has two different answers,
            or the table has no ids and other candidates in a row than the column `candidates`.
    """
    assert table.candidates is not None
    number = {str(name): i for i, name in enumerate(table.candidates.classes)}
    known = {id_key(name): name for name in table.ids.tolist()}
    also = separator if any(SEPARATOR in name for name in number) else SEPARATOR
    answers: Answers = {}
    files = list(paths)
    for path in files:
        file = open_table(path)
        ids = "id" if "id" in file.names or id_column is None else id_column
        answer = next((name for name in ANSWER if name in file.names), ANSWER[0])
        asked = [CANDIDATES] if CANDIDATES in file.names else []
        keys, cells, *sets = read_texts(file, [ids, answer, *asked])
        unknown = [shown(key) for key in keys if id_key(key) not in known]
        if unknown:
            raise InputError(
                f"{len(unknown)} of {counted(len(keys), 'id')} of {path} {are(len(unknown))} not "
                f"in the table ({format_names(unknown, 3)}): correct or remove these rows."
            )
        given = [known[id_key(key)] for key in keys]
        row = file.describe_row
        if asked and not {"id", "path", "task"} & table.columns.keys():
            _check_same_rows(table, dict(zip(given, sets[0], strict=True)), separator, path)
        for i, (name, cell) in enumerate(zip(given, cells, strict=True)):
            if cell not in number and cell.lower() in NO_ANSWER:
                continue
            names = [cell]
            if cell not in number:
                names = list(parse_cell(cell.replace(also, separator), separator, i, row).entries)
            wrong = next((one for one in names if one not in number), None)
            if wrong is not None:
                problem = unknown_class_error(wrong, list(number))
                raise InputError(
                    f"{row(i)} has the answer {problem}; write ? or nothing to give no answer."
                )
            found = tuple(sorted({number[one] for one in names}))
            if found and answers.setdefault(name, found) != found:
                raise InputError(
                    f"{row(i)} answers {shown(cell)} for {shown(name)}, and something else "
                    "was answered before: keep one."
                )
    if not answers:
        where = format_names([str(path) for path in files])
        raise InputError(f"There are no answers in {where}: fill in the column answer.")
    return answers


def _check_same_rows(
    table: LabelTable, asked: Mapping[str, str], separator: str, path: Path
) -> None:
    """Refuse answers by row number if a row lacks a candidate that was asked about.

    A row of the table may have more candidates than were asked about.
    """
    assert table.candidates is not None
    classes = [str(name) for name in table.candidates.classes]
    if table.ids.tolist() != [str(i + 1) for i in range(len(table))]:
        return
    separators = "|".join(map(re.escape, (separator, *KNOWN_SEPARATORS)))
    for name, cell in asked.items():
        names = {one.strip() for one in re.split(separators, cell)}
        own = {classes[c] for c in table.candidates.row(int(name) - 1)}
        if names <= {*classes} and not names <= own:
            now = shown(SEPARATOR.join(sorted(own)))
            raise InputError(
                f"{path} asked about {shown(cell)} in row {name}, which has the candidates {now}: "
                "give the table in the order in which it was trained on, since it has no column "
                "of ids."
            )


def with_answers(table: LabelTable, answers: Mapping[str, Iterable[int]]) -> LabelTable:
    """A copy of the table with these answers as candidate sets; `reviewed` marks their rows."""
    assert table.candidates is not None
    reviewed = np.asarray([name in answers for name in table.ids.tolist()], dtype=bool)
    rows = np.flatnonzero(reviewed)
    candidates = table.candidates.with_answers(rows, [answers[table.ids[i]] for i in rows])
    return replace(table, candidates=candidates, reviewed=reviewed)
