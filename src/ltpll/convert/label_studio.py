"""Label Studio: exported tasks, whose choices become the votes of annotators."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np

from ltpll.candidates.votes import AnnotatorVotes, drop_repeated_votes, voted_candidates
from ltpll.convert.json_examples import (
    JsonFile,
    Numbered,
    as_label_table,
    listed,
    member,
    required,
    skipped,
)
from ltpll.errors import InputError, shown
from ltpll.formatting import counted, format_names
from ltpll.pictures.files import SUFFIXES
from ltpll.tables.label_table import LabelTable
from ltpll.tables.reading import Reading

PICTURE = "image"  # the usual name of the picture in the data of a task
OBJECT = "image"  # the usual name of what is labelled, in the labelling interface
CONTROL = "choice"  # the usual name of the question, in the labelling interface


def read_label_studio(source: JsonFile) -> LabelTable:
    """Read an export in the format JSON or JSON-MIN, or the same tasks one per line.

    Annotations that are marked as ground truth are true labels, and no votes.

    Raises:
        InputError: The file cannot be read, or has no choices or several questions.
    """
    tasks = _Tasks(source)
    for key, number, entry in source.items():
        if not isinstance(entry, dict) or key:
            raise InputError(
                f"Entry {number} of {source.path} is not a task of Label Studio: export the "
                "project again as JSON."
            )
        name = _name(entry.get("id"), f"task {number}")
        if entry.keys() & {"data", "annotations", "completions"}:
            tasks.add_task(name, entry)
        else:
            tasks.add_answer(name, entry)
    return tasks.table()


def local_path(url: str) -> str:
    """The path inside a folder of pictures that belongs to what a task calls its picture.

    `/data/local-files/?d=photos/fox.jpg` is `photos/fox.jpg`. `/data/upload/3/abc-fox.jpg` is
    `3/abc-fox.jpg`, a file in Label Studio's folder `media/upload`. Of other addresses, such as
    `s3://bucket/photos/fox.jpg`, the path is taken; everything else is a path already.
    """
    try:
        parts = urlsplit(url)
        local = parts.path.rstrip("/").endswith("data/local-files")
        named = parse_qs(parts.query).get("d", []) if local else []
    except ValueError:  # an address that is not one
        return url
    if named:
        return named[0]
    if "://" in url or url.startswith("/data/upload/"):
        return unquote(parts.path).lstrip("/").removeprefix("data/upload/")
    return url


class _Answers:
    """The answers to one question, as numbers."""

    def __init__(self, about: str = OBJECT) -> None:
        self.about = about
        self.rows, self.annotators, self.labels = array("q"), array("q"), array("q")
        self.names = Numbered()
        self.true: dict[int, int] = {}  # the true label of some rows


class _Tasks:
    """Collects the tasks of a file one by one."""

    def __init__(self, source: JsonFile) -> None:
        self.source, reading = source, source.reading
        self.picture = reading.path if reading.path != Reading.path else None
        self.wanted = None if reading.control is None else reading.control.partition(":")[0]
        self.row_of, self.annotators = Numbered(), Numbered()
        self.urls: list[str] = []
        self.answers: dict[str, _Answers] = {}
        self.n_ignored = 0
        self.row, self.where = 0, ""  # of the current task

    def add_task(self, name: str, task: dict[str, Any]) -> None:
        """Add a task with all its annotations."""
        if name in self.row_of:
            raise InputError(
                f"{self.source.path} has the task {shown(name)} twice: export every task once."
            )
        self._begin_task(name, task.get("data"))
        key = "annotations" if "annotations" in task else "completions"
        for position, annotation in enumerate(listed(self.where, task, key)):
            found = False
            for result in listed(self.where, annotation, "result"):
                choices = member(member(result, "value", dict), "choices", list)
                if choices and annotation.get("was_cancelled") is not True:
                    by = annotation.get("completed_by")
                    by = by.get("email", by.get("id")) if isinstance(by, dict) else by
                    by = _name(by, f"annotator {position + 1}")
                    question = member(result, "from_name", str) or CONTROL
                    about = member(result, "to_name", str) or OBJECT
                    answers = self.answers.setdefault(question, _Answers(about))
                    is_true = annotation.get("ground_truth") is True
                    self._add_choices(answers, None if is_true else by, choices)
                    found = True
            self.n_ignored += not found

    def add_answer(self, name: str, answer: dict[str, Any]) -> None:
        """Add an entry of a minimal export: a task with one annotation."""
        self._begin_task(name, answer)
        question = self.wanted or CONTROL
        given = answer.get(question)
        choices: list[Any] = []
        for one in given if isinstance(given, list) else [given]:
            if isinstance(one, dict):
                choices += member(one, "choices", list) or []
            elif one not in (None, ""):
                choices.append(one)
        self.n_ignored += not choices
        if choices:
            answers = self.answers.setdefault(question, _Answers())
            self._add_choices(answers, _name(answer.get("annotator"), "annotator 1"), choices)

    def _begin_task(self, name: str, data: Any) -> None:
        is_new = name not in self.row_of
        self.row, self.where = self.row_of[name], f"The task {shown(name)} of {self.source.path}"
        wants_pictures = self.source.reading.path is not None
        if is_new and self.row == 0 and wants_pictures and self.picture is None:
            self.picture = _picture_member(self.source.path, data)
        if is_new and self.picture is not None:
            self.urls.append(required(self.where, data, **{self.picture: str})[0])

    def _add_choices(self, answers: _Answers, annotator: str | None, choices: list[Any]) -> None:
        """Add the choices of an annotator, or the true label if it is None."""
        for choice in choices:
            if not isinstance(choice, str) or not choice.strip():
                raise InputError(
                    f"{self.where} has the choice {shown(choice)}, which is not a name: export the "
                    "project again as JSON."
                )
            number = answers.names[choice.strip()]
            if annotator is not None:
                answers.rows.append(self.row)
                answers.annotators.append(self.annotators[annotator])
                answers.labels.append(number)
            elif answers.true.setdefault(self.row, number) != number:
                raise InputError(
                    f"{self.where} has several ground truths: a task has one true label; correct "
                    "it in Label Studio."
                )

    def table(self) -> LabelTable:
        """All tasks, or those that have labels."""
        source, n = self.source, len(self.row_of)
        if not n:
            raise InputError(f"{source.path} has no tasks: export a project with at least one.")
        question = self._chosen_question()
        answers = _Answers() if question is None else self.answers.get(question, _Answers())
        codes = np.asarray(answers.labels, dtype=np.int64)
        found = source.labelled(n, answers.rows, codes, list(answers.names))
        kept, tasks = found.kept.tolist(), list(self.row_of)
        source.check_distinct(tasks, "task")
        columns: dict[str, Any] = {"ids": [tasks[row] for row in kept], "columns": {}}
        if self.picture is not None:
            columns["urls"] = [self.urls[row] for row in kept]
            columns["paths"] = [local_path(url) for url in columns["urls"]]
            columns["columns"]["path"] = self.picture
        if question is not None:
            columns["columns"]["control"] = f"{question}:{answers.about}"
        candidates = None
        if found.numbers is not None:
            annotators = list(self.annotators)
            source.check_distinct(annotators, "annotator")
            by = np.asarray(answers.annotators, dtype=np.int64)
            given = drop_repeated_votes(found.rows, by, found.numbers[codes])
            columns["votes"] = votes = AnnotatorVotes(*given, tuple(annotators))
            rule, weights = source.reading.annotators or "union", source.reading.vote_weights

            def called(i: int) -> str:
                return f"The task {shown(tasks[kept[i]])} of {source.path}"

            candidates = voted_candidates(votes, len(kept), found.classes, rule, weights, called)
            if answers.true:
                true = {row: found.numbers[code] for row, code in answers.true.items()}
                labels = [true.get(row, -1) for row in kept]
                columns["labels"] = np.asarray(labels, dtype=np.int64)
        notes = skipped(n - len(kept), n, "task", "no label")
        if self.n_ignored:
            ignored = counted(self.n_ignored, "annotation")
            notes = (f"Ignored {ignored}: cancelled, or without a choice.", *notes)
        return as_label_table(candidates, notes=notes, **columns)

    def _chosen_question(self) -> str | None:
        """The question whose answers are read; None if there is none and none is needed."""
        found = [question for question, answers in self.answers.items() if answers.rows]
        chosen = self.wanted or (found[0] if len(found) == 1 else None)
        if not self.source.needs_candidates or chosen in found:
            return chosen
        if not found:
            raise InputError(
                f"The tasks of {self.source.path} have no choices to learn from (annotations are "
                "missing, empty, cancelled, of another kind, or ground truth, which is only for "
                "evaluation): export a project in which annotators chose labels, or name the "
                "question of a minimal export with --control."
            )
        what = "choices for several questions"
        if chosen is not None:
            what = f"no choices for {shown(chosen)}, only for others"
        raise InputError(
            f"{self.source.path} has {what} ({format_names(found)}): name one with --control."
        )


def _name(value: Any, otherwise: str) -> str:
    return (str(value).strip() if type(value) in (int, str) else "") or otherwise


def _looks_like_picture(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    is_address = "://" in value or value.startswith("/data/")
    return is_address or Path(value[-1000:].replace("\0", "")).suffix.lower() in SUFFIXES


def _picture_member(path: Path, data: Any) -> str | None:
    """The member of a task's data that holds the picture; None if there is none."""
    if member(data, PICTURE, str) is not None:
        return PICTURE
    members = data.items() if isinstance(data, dict) else ()
    found = [name for name, value in members if _looks_like_picture(value)]
    if len(found) > 1:
        raise InputError(
            f"Several members of the tasks of {path} may hold the picture ({format_names(found)}): "
            "name one with --path."
        )
    return found[0] if found else None
