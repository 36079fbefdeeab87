"""Reviewed: the answers of people, read from a table and put in the place of candidate sets."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ltpll.candidates.cells import (
    KNOWN_SEPARATORS,
    SEPARATOR,
    RowName,
    parse_cell,
    unknown_class_error,
)
from ltpll.errors import InputError, InputWarning, shown
from ltpll.formatting import are, counted, format_names
from ltpll.tables.columns import id_key, read_texts
from ltpll.tables.label_table import LabelTable
from ltpll.tables.opening import open_table

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
    """Read the answers for some examples of a table, such as a filled-in queue of `ltpll review`.

    A file has a column `id` and a column `answer` (or else `label`) with one class, or several as
    in `fox|jackal`, or with the separator of the table between them. Answers that are empty, `?`,
    `skip`, `none` or `unknown` are ignored, unless a class has that name. A column `candidates`
    says which sets were asked about; a warning says how many of them the table no longer has.

    Args:
        paths: .csv, .tsv or .parquet files.
        table: The table that was asked about.
        id_column: The column of ids, if it has another name than `id`.
        separator: What separates the classes of an answer, besides `|`, which does unless it is
            in the name of a class.

    Returns:
        For each answered id, class numbers.

    Raises:
        InputError: An id is unknown, an answer is not a class, an id has two different answers,
            or the table has no ids and other candidates in a row that was asked about.

    Examples:
        >>> from ltpll.tables.read_tables import read_table
        >>> table = read_table(Path("birds.csv"))
        >>> _ = Path("queue.csv").write_text("id,answer\\nrow0,a\\nrow1,b|c\\n")
        >>> read_answers([Path("queue.csv")], table)
        {'row0': (0,), 'row1': (1, 2)}
    """
    assert table.candidates is not None
    classes = [str(name) for name in table.candidates.classes]
    number = {name: i for i, name in enumerate(classes)}
    known = {id_key(name): name for name in table.ids.tolist()}
    also = separator if any(SEPARATOR in name for name in classes) else SEPARATOR
    answers: Answers = {}
    files = list(paths)
    for path in files:
        file = open_table(path)
        ids = "id" if "id" in file.names or id_column is None else id_column
        answer = next((name for name in ANSWER if name in file.names), ANSWER[0])
        asked = [CANDIDATES] if CANDIDATES in file.names else []
        keys, cells, *sets = read_texts(file, [ids, answer, *asked])
        keys = [id_key(key) for key in keys]
        unknown = [shown(key) for key in keys if key not in known]
        if unknown:
            raise InputError(
                f"{len(unknown)} of {counted(len(keys), 'id')} of {path} {are(len(unknown))} not "
                f"in the table ({format_names(unknown, 3)}): correct or remove these rows."
            )
        given = [known[key] for key in keys]
        if asked:
            _check_sets_asked_about(path, table, given, sets[0], separator, file.describe_row)
        for i, (name, cell) in enumerate(zip(given, cells, strict=True)):
            found = _answered_classes(
                cell.replace(also, separator), number, separator, file.describe_row, i
            )
            if found and answers.setdefault(name, found) != found:
                first, second = (
                    shown(SEPARATOR.join(classes[c] for c in one)) for one in (answers[name], found)
                )
                raise InputError(
                    f"{file.describe_row(i)} answers {second} for {shown(name)}, and {first} was "
                    "answered before: keep one."
                )
    if not answers:
        names = format_names([str(path) for path in files])
        raise InputError(f"There are no answers in {names}: fill in the column answer.")
    return answers


def _check_sets_asked_about(
    path: Path,
    table: LabelTable,
    ids: Sequence[str],
    cells: Sequence[str],
    separator: str,
    row: RowName,
) -> None:
    """Warn of sets of a queue that the table does not have; refuse them if its rows have no names.

    A row of the table may have more candidates, which pruning removed from the set that was asked.
    """
    assert table.candidates is not None
    position = {name: i for i, name in enumerate(table.ids.tolist())}
    classes = [str(name) for name in table.candidates.classes]
    known = frozenset(classes)
    own = [[classes[c] for c in table.candidates.row(position[name])] for name in ids]
    different = [
        i
        for i, cell in enumerate(cells)
        if not _names_asked_about(cell, known, separator) <= set(own[i])
    ]
    if not different:
        return
    first = different[0]
    numbers = [str(i + 1) for i in range(len(table))]
    if not {"id", "path", "task"} & table.columns.keys() and table.ids.tolist() == numbers:
        now = f"row {ids[first]} has the candidates {shown(SEPARATOR.join(own[first]))}"
        raise InputError(
            f"{row(first)} was asked about {shown(cells[first])}, but {now}: give the table in the "
            "order in which it was trained on, since it has no column of ids."
        )
    warnings.warn(
        f"{counted(len(different), 'row')} of {path} {are(len(different))} about other candidates "
        f"than the table has now ({row(first)} first): check these answers.",
        InputWarning,
        stacklevel=3,
    )


def _names_asked_about(cell: str, classes: Container[str], separator: str) -> set[str]:
    """The names in the cell of a queue, whatever separates them; none if not all are classes."""
    for one in (separator, *KNOWN_SEPARATORS):
        names = {name.strip() for name in cell.split(one)}
        if all(name in classes for name in names):
            return names
    return set()


def _answered_classes(
    cell: str, number: Mapping[str, int], separator: str, row: Callable[[int], str], i: int
) -> tuple[int, ...]:
    """The sorted class numbers of an answer; none if the person did not answer."""
    cell = cell.strip()
    if cell in number:
        return (number[cell],)
    if cell.lower() in NO_ANSWER:
        return ()
    names = parse_cell(cell, separator, i, row).entries
    for name in names:
        if name not in number:
            problem = unknown_class_error(name, list(number))
            raise InputError(
                f"{row(i)} has the answer {problem}; write ? or nothing to give no answer."
            )
    return tuple(sorted({number[name] for name in names}))


def with_answers(table: LabelTable, answers: Mapping[str, Iterable[int]]) -> LabelTable:
    """The table with these answers as candidate sets.

    Args:
        table: A table with candidate sets.
        answers: For each id, class numbers, from `read_answers`.

    Returns:
        A copy, whose `reviewed` marks the answered rows.

    Examples:
        >>> from ltpll.tables.read_tables import read_table
        >>> table = read_table(Path("birds.csv"))
        >>> with_answers(table, {"row0": (2,)}).candidates.row(0)
        [2]
    """
    assert table.candidates is not None
    rows = np.asarray(
        [i for i, name in enumerate(table.ids.tolist()) if name in answers], dtype=np.int64
    )
    reviewed = np.zeros(len(table), dtype=bool)
    reviewed[rows] = True
    candidates = table.candidates.with_answers(rows, [answers[table.ids[i]] for i in rows])
    return replace(table, candidates=candidates, reviewed=reviewed)
