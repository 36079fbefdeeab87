"""Audit of a cleaned table: what follows from people's answers about some of its rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.cleaning.results import MORE_ANSWERS, CleanedLabels, CleanedTable, Flags, Numbers
from ltpll.cleaning.review import AUDIT, Questions, askable_rows
from ltpll.evaluation.audit import (
    CONFIDENCES,
    CONTRADICTIONS,
    Estimate,
    estimate_share,
    is_rare,
    narrowing,
    recalibrated,
    weighted_share,
)
from ltpll.runs.run_files import RunFile
from ltpll.tables.writers import write_table

LEAST = 3  # answers from which there is an estimate for a class, or for flags


class Answers(NamedTuple):
    """What people answered about some rows, and why they were asked."""

    rows: Numbers
    sets: list[tuple[int, ...]]  # class numbers; none of them if no class fits
    asked: npt.NDArray[np.object_]
    probability: npt.NDArray[np.float64]

    def select(self, chosen: Flags) -> Answers:
        """Some of the answers."""
        sets = [one for one, own in zip(self.sets, chosen.tolist(), strict=True) if own]
        return Answers(self.rows[chosen], sets, self.asked[chosen], self.probability[chosen])


class Audit(NamedTuple):
    """Estimates from the answers about a random sample, and about flagged sets."""

    answers: int
    right: Estimate | None  # the share of rows whose label is right
    rare: Estimate | None  # the same for rare classes
    by_class: dict[int, Estimate]
    lacking: Estimate | None  # the share of sets that lack the true label
    flagged: Estimate | None  # the share of flagged sets that do
    narrowing: float  # of the interval of `right`, by MORE_ANSWERS


# ---- answers -----------------------------------------------------------------------------------


def read_answers_about(table: CleanedTable, paths: Sequence[Path]) -> Answers:
    """Read answers from files; of several about a row, the last one counts.

    Raises:
        InputError: A file has unknown ids, or an answer is not a class.
    """
    place: dict[str, int] = {name: i for i, name in enumerate(table.ids.tolist())}
    found: dict[int, tuple[tuple[int, ...], str, float]] = {}
    for path in paths:
        from ltpll.tables.reviewed import read_answer_file  # imports torch, as reports do not

        names = table.classes.tolist()
        for one in read_answer_file(path, place, names, separator=table.separator):
            if one.classes is not None:
                found[place[one.id]] = one.classes, one.asked, one.probability
    sets, asked, probability = zip(*found.values(), strict=True) if found else ((), (), ())
    return Answers(
        np.asarray(list(found), dtype=np.int64),
        list(sets),
        np.asarray(asked, dtype=object),
        np.asarray(probability, dtype=np.float64),
    )


def store_answers(folder: Path, table: CleanedTable, answers: Answers) -> None:
    """Write answers into the folder of a run, as a table that `ltpll train --reviewed` reads, too."""
    from ltpll.tables.reviewed import NO_CLASS

    names, sets = table.classes.tolist(), table.sets()
    cells = [[names[c] for c in one] for one in answers.sets]
    nothing = "?" if NO_CLASS in names else NO_CLASS
    columns = {
        "id": table.ids[answers.rows],
        "candidates": [sets[i] for i in answers.rows.tolist()],
        "answer": [json.dumps(one) if len(one) > 1 else (one or [nothing])[0] for one in cells],
        "asked": answers.asked,
        "probability": answers.probability.round(6),
    }
    write_table(folder / RunFile.ANSWERS, columns)


def stored_answers(folder: Path, table: CleanedTable, newer: Sequence[Path] = ()) -> Answers:
    """The answers in the folder of a run, if there are any, and those of newer files."""
    path = folder / RunFile.ANSWERS
    return read_answers_about(table, [*([path] if path.exists() else []), *newer])


def answers_of_page(
    table: CleanedTable, questions: Questions, earlier: Answers, given: Any
) -> Answers:
    """What a review page sends: pairs of a question and class numbers, None for a skipped row.

    Earlier answers about rows that the page does not show are kept.

    Raises:
        ValueError: It is something else.
    """
    n, n_classes = len(questions.rows), len(table.classes)
    for question, classes in given:
        numbers = [(question, n), *((c, n_classes) for c in classes or ())]
        if not all(type(one) is int and 0 <= one < end for one, end in numbers):
            raise ValueError("an answer is not one of this page")
    sets = {question: tuple(classes) for question, classes in given if classes is not None}
    asked, kept = list(sets), earlier.select(~np.isin(earlier.rows, questions.rows))
    return Answers(
        np.concatenate([kept.rows, questions.rows[asked]]),
        [*kept.sets, *sets.values()],
        np.concatenate([kept.asked, questions.asked[asked]]),
        np.concatenate([kept.probability, questions.probability[asked]]),
    )


# ---- what follows from them --------------------------------------------------------------------


def shares_of_answers(
    table: CleanedTable, answers: Answers
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """How far each answer says that the label is right, and that the set lacks the true label.

    An answer that leaves k classes open counts as a k-th of each of them.
    """
    right, lacks = np.zeros(len(answers.rows)), np.ones(len(answers.rows))
    for k, (i, classes) in enumerate(zip(answers.rows.tolist(), answers.sets, strict=True)):
        own = table.candidates[table.offsets[i] : table.offsets[i + 1]]
        right[k] = (table.labels.label[i] in classes) / max(len(classes), 1)
        lacks[k] = 1 - np.isin(classes, own).sum() / max(len(classes), 1)
    return right, lacks


def with_answers_applied(table: CleanedTable, answers: Answers) -> CleanedTable:
    """The table with estimates, and with labels, confidences and suspicions that know the answers.

    Answered rows have the answered label, and all others the probabilities of `calibrated`.
    """
    # Training has seen the answers about all other rows.
    answers = answers.select(np.isin(answers.rows, askable_rows(table.labels, table.reviewed)))
    if not len(answers.rows):
        return table
    labels = calibrated(table, answers)
    return replace(_answered(table, labels, answers), audit=_estimates(table, labels, answers))


def calibrated(table: CleanedTable, answers: Answers) -> CleanedLabels:
    """Confidences and suspicions that follow the answers, however these rows were chosen.

    The fewer answers there are, the closer they stay to what they were without any. Sets are
    flagged by the new suspicions.
    """
    before, stays, rare = table.labels, table.in_set, _rare_rows(table)
    right, lacks = shares_of_answers(table, answers)
    suspicion = recalibrated(before.contradicted, answers.rows, lacks, CONTRADICTIONS, [rare])
    suspicion[(before.judged_by == "own") | (before.outside < 0)] = 0
    inside = before.confidence / np.maximum(1 - before.suspicion, 1e-6)
    share = np.where(stays, inside * (1 - suspicion), before.confidence)
    groupings = [before.label, rare]
    confidence = recalibrated(share, answers.rows, right, CONFIDENCES, groupings)
    confidence = np.where(stays, np.minimum(confidence, 1 - suspicion), confidence)
    if table.reviewed is not None:
        suspicion[table.reviewed] = 0
        confidence[table.reviewed] = before.confidence[table.reviewed]
    return replace(
        before,
        confidence=confidence.astype(np.float32),
        suspicion=suspicion.astype(np.float32),
        judged=before.judged_by != "own",
    )


def _rare_rows(table: CleanedTable) -> Flags:
    """Whether the label of each row is of a class that is rare among the rows of an audit."""
    label, asked = table.labels.label, askable_rows(table.labels, table.reviewed)
    return np.isin(label, label[asked][is_rare(label[asked])])


def _estimates(table: CleanedTable, labels: CleanedLabels, answers: Answers) -> Audit:
    right, lacks = shares_of_answers(table, answers)
    asked, label = askable_rows(table.labels, table.reviewed), table.labels.label
    rare, within = _rare_rows(table), answers.asked == AUDIT
    of_rare = rare[answers.rows]
    strata = [within & of_rare, within & ~of_rare]
    sizes = [int(rare[asked].sum()), int((~rare[asked]).sum())]
    rights = [right[stratum] for stratum in strata]
    of_class = {}
    for c in np.unique(label[answers.rows[within]]).tolist():
        found = right[within & (label[answers.rows] == c)]
        one = estimate_share([found], [int((label[asked] == c).sum())])
        if one is not None and len(found) >= LEAST:
            of_class[c] = one
    issue = np.flatnonzero(labels.issue[answers.rows])
    flagged = None
    if len(issue) >= LEAST:
        flagged = weighted_share(lacks[issue], answers.probability[issue])
    return Audit(
        answers=len(answers.rows),
        right=estimate_share(rights, sizes),
        rare=estimate_share(rights[:1], sizes[:1]),
        by_class=of_class,
        lacking=estimate_share([lacks[stratum] for stratum in strata], sizes),
        flagged=flagged,
        narrowing=narrowing(rights, sizes, MORE_ANSWERS),
    )


def _answered(table: CleanedTable, labels: CleanedLabels, answers: Answers) -> CleanedTable:
    """The table with the labels, in which answered classes replace those of their rows."""
    names = "label", "runner_up", "confidence", "margin", "suspicion"
    columns = {name: getattr(labels, name).copy() for name in names}
    for i, classes in zip(answers.rows.tolist(), answers.sets, strict=True):
        own, share = columns["label"][i], 1 / len(classes) if classes else 0
        chosen = own if own in classes or not classes else classes[0]
        found = chosen, classes[-1] if classes else chosen, share, share, float(not classes)
        for name, value in zip(names, found, strict=True):
            columns[name][i] = value
    reviewed = np.zeros(len(table.ids), dtype=bool) if table.reviewed is None else table.reviewed
    reviewed = reviewed | np.isin(np.arange(len(table.ids)), answers.rows)
    return replace(table, labels=replace(labels, **columns), reviewed=reviewed)
