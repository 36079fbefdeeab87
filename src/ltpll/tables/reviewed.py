"""Reviewed: the answers of people, read from a table and put in the place of candidate sets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ltpll.candidates.cells import KNOWN_SEPARATORS, SEPARATOR, parse_cell, unknown_class_error
from ltpll.errors import InputError, shown
from ltpll.formatting import are, counted, format_names
from ltpll.tables.columns import id_key, read_texts
from ltpll.tables.opening import open_table
from ltpll.tables.read_tables import LabelTable

ANSWER, BESIDE = ("answer", "label"), ("candidates", "asked", "probability")
NO_CLASS = "none"  # no class fits
NO_ANSWER = ("", "?", "skip", NO_CLASS, "unknown")
Answers = dict[str, tuple[int, ...]]
"""For each id, the class numbers that were answered."""


class GivenAnswer(NamedTuple):
    """The answer of one row of a file."""

    id: str
    classes: tuple[int, ...] | None  # none of them if no class fits; None without an answer
    candidates: str
    asked: str  # why the row was asked about, and with which probability
    probability: float


def read_answer_file(
    path: Path,
    ids: Iterable[str],
    classes: Iterable[str],
    *,
    id_column: str | None = None,
    separator: str = SEPARATOR,
) -> list[GivenAnswer]:
    """Read a file of answers about rows with some of these ids, as `read_answers` describes it.

    Raises:
        InputError: An id is unknown, an answer is not a class, or a probability is none.
    """
    number = {str(name): i for i, name in enumerate(classes)}
    known = {id_key(name): name for name in ids}
    also = separator if any(SEPARATOR in name for name in number) else SEPARATOR
    file = open_table(path)
    key = "id" if "id" in file.names or id_column is None else id_column
    answer = next((name for name in ANSWER if name in file.names), ANSWER[0])
    beside = [name for name in BESIDE if name in file.names]
    keys, cells, *others = read_texts(file, [key, answer, *beside])
    unknown = [shown(one) for one in keys if id_key(one) not in known]
    if unknown:
        raise InputError(
            f"{len(unknown)} of {counted(len(keys), 'id')} of {path} {are(len(unknown))} not "
            f"in the table ({format_names(unknown, 3)}): correct or remove these rows."
        )
    found = []
    for i, (name, cell) in enumerate(zip(keys, cells, strict=True)):
        row = file.describe_row
        told = {one: column[i] for one, column in zip(beside, others, strict=True)}
        names = [cell] if cell in number else []
        if cell not in number and cell.lower() not in NO_ANSWER:
            names = list(parse_cell(cell.replace(also, separator), separator, i, row).entries)
        wrong = next((one for one in names if one not in number), None)
        if wrong is not None:
            problem = unknown_class_error(wrong, list(number))
            raise InputError(
                f"{row(i)} has the answer {problem}; write ? or nothing to give no answer."
            )
        try:
            probability = float(told.get("probability") or 1)
        except ValueError:
            probability = -1
        if not 0 < probability <= 1:
            what = f"the probability {shown(told['probability'])}, which is not between 0 and 1"
            raise InputError(f"{row(i)} has {what}: leave the column as `ltpll review` wrote it.")
        about = (told.get("candidates", ""), told.get("asked", ""), probability)
        answered = names or cell.lower() == NO_CLASS
        chosen = tuple(sorted({number[one] for one in names})) if answered else None
        found.append(GivenAnswer(known[id_key(name)], chosen, *about))
    return found


def read_answers(
    paths: Iterable[Path],
    table: LabelTable,
    *,
    id_column: str | None = None,
    separator: str = SEPARATOR,
) -> Answers:
    """Read the class numbers that were answered for some ids of a table.

    A file, such as one that the page of `ltpll review` lets people download, has a column `id` (or
    `id_column`) and a column `answer` (or else `label`) with one class, or several as in
    `fox|jackal`, or with the separator of the table between them; `|` separates unless it is in the
    name of a class. Answers that are empty, `?`, `skip`, `none` or `unknown` are ignored, unless a
    class has that name.

    Raises:
        InputError: An id is unknown, an answer is not a class, an id has two different answers,
            or the table has no ids and other candidates in a row than the column `candidates`.
    """
    assert table.candidates is not None
    classes = [str(name) for name in table.candidates.classes]
    answers: Answers = {}
    files = list(paths)
    by_number = not {"id", "path", "task"} & table.columns.keys()
    for path in files:
        how: Any = {"id_column": id_column, "separator": separator}
        given = read_answer_file(path, table.ids.tolist(), classes, **how)
        if by_number:
            _check_same_rows(table, given, separator, path)
        for one in given:
            if one.classes and answers.setdefault(one.id, one.classes) != one.classes:
                names = shown(SEPARATOR.join(classes[c] for c in one.classes))
                raise InputError(
                    f"{path} answers {names} for {shown(one.id)}, and something else was answered "
                    "before: keep one."
                )
    if not answers:
        where = format_names([str(path) for path in files])
        raise InputError(f"There are no answers in {where}: fill in the column answer.")
    return answers


def _check_same_rows(
    table: LabelTable, given: Iterable[GivenAnswer], separator: str, path: Path
) -> None:
    """Refuse answers by row number if a row lacks a candidate that was asked about.

    A row of the table may have more candidates than were asked about.
    """
    assert table.candidates is not None
    classes = [str(name) for name in table.candidates.classes]
    if table.ids.tolist() != [str(i + 1) for i in range(len(table))]:
        return
    separators = "|".join(map(re.escape, (separator, *KNOWN_SEPARATORS)))
    for one in given:
        names = {name.strip() for name in re.split(separators, one.candidates)}
        own = {classes[c] for c in table.candidates.row(int(one.id) - 1)}
        if names <= {*classes} and not names <= own:
            now, cell = shown(SEPARATOR.join(sorted(own))), shown(one.candidates)
            raise InputError(
                f"{path} asked about {cell} in row {one.id}, which has the candidates {now}: "
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
