"""Label Studio: exported tasks whose choices become the votes of annotators, with their pictures."""

from __future__ import annotations

from array import array
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np

from ltpll.candidates.votes import AnnotatorVotes, drop_repeated_votes, voted_candidates
from ltpll.convert.json_examples import (
    Numbered,
    as_label_table,
    check_distinct,
    labelled_examples,
    listed,
    member,
    skipped,
)
from ltpll.convert.json_stream import json_items
from ltpll.errors import InputError, shown
from ltpll.formatting import format_names
from ltpll.pictures.files import SUFFIXES
from ltpll.tables.label_table import LabelTable
from ltpll.tables.reading import Reading
from ltpll.tables.streaming import ReadProgress

PICTURE = "image"  # the usual name of the picture in the data of a task
OBJECT = "image"  # the usual name of what is labelled, in the labelling interface
CONTROL = "choice"  # the usual name of the question, in the labelling interface
# What a minimal export (JSON-MIN) has beside the data of a task and the answers.
OF_EXPORT = frozenset(
    ["id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement"]
)
PEEKED = 1000  # entries of a minimal export by which its question is found


def read_label_studio(
    path: Path,
    reading: Reading,
    *,
    needs_candidates: bool,
    on_progress: ReadProgress | None = None,
) -> LabelTable:
    """Read an export in the format JSON or JSON-MIN, or the same tasks one per line.

    Annotations that are marked as ground truth are true labels, and no votes.

    Raises:
        InputError: The file cannot be read, or has no choices or several questions.
    """
    tasks = _Tasks(path, reading)
    for key, number, entry in json_items(path, on_progress):
        if not isinstance(entry, dict) or key:
            raise InputError(
                f"Entry {number} of {path} is not a task of Label Studio: export the project again "
                "as JSON."
            )
        if entry.keys() & {"data", "annotations", "completions"}:
            tasks.add_task(number, entry)
        else:
            tasks.add_answer(number, entry)
    return tasks.table(needs_candidates)


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

    def __init__(self, path: Path, reading: Reading) -> None:
        self.path, self.reading = path, reading
        self.named_picture = reading.path if reading.path != Reading.path else None
        self.picture: str | None = None
        self.wanted = None if reading.control is None else reading.control.partition(":")[0]
        self.question: str | None = None  # of a minimal export
        self.row_of, self.annotators = Numbered(), Numbered()
        self.urls: list[str] = []
        self.answers: dict[str, _Answers] = {}
        self.other_types: set[str] = set()
        self.n_cancelled = self.n_empty = 0

    def add_task(self, number: int, task: dict[str, Any]) -> None:
        """Add a task with all its annotations."""
        name = _name(task.get("id"), f"task {number}")
        if name in self.row_of:
            raise InputError(
                f"{self.path} has the task {shown(name)} twice: export every task once."
            )
        row, where = self._new_row(name, task.get("data")), self._task(name)
        key = "annotations" if "annotations" in task else "completions"
        for position, annotation in enumerate(listed(where, task, key)):
            results = listed(where, annotation, "result")
            if annotation.get("was_cancelled") is True:
                self.n_cancelled += 1
                continue
            by = annotation.get("completed_by")
            by = by.get("email", by.get("id")) if isinstance(by, dict) else by
            annotator = _name(by, f"annotator {position + 1}")
            is_true = annotation.get("ground_truth") is True
            found = False
            for result in results:
                choices = member(member(result, "value", dict), "choices", list)
                if choices is None:
                    self.other_types.add(member(result, "type", str) or "something else")
                    continue
                question = member(result, "from_name", str) or CONTROL
                about = member(result, "to_name", str) or OBJECT
                self._add_choices(question, about, row, where, annotator, choices, is_true)
                found |= bool(choices)
            self.n_empty += not found

    def add_answer(self, number: int, answer: dict[str, Any]) -> None:
        """Add an entry of a minimal export: a task with one annotation."""
        if self.question is None:
            self.question = self.wanted or _question(self.path, self.named_picture)
        name = _name(answer.get("id"), f"task {number}")
        row = self.row_of[name] if name in self.row_of else self._new_row(name, answer)
        given = answer.get(self.question)
        choices: list[Any] = []
        for one in given if isinstance(given, list) else [given]:
            if isinstance(one, dict):
                choices += member(one, "choices", list) or []
            elif one not in (None, ""):
                choices.append(one)
        self.n_empty += not choices
        if choices:
            annotator = _name(answer.get("annotator"), "annotator 1")
            self._add_choices(
                self.question, OBJECT, row, self._task(name), annotator, choices, False
            )

    def _new_row(self, name: str, data: Any) -> int:
        row = self.row_of[name]
        if row == 0 and self.reading.path is not None:
            self.picture = self.named_picture or _picture_member(self.path, data)
        if self.picture is not None:
            url = member(data, self.picture, str)
            if url is None:
                raise InputError(
                    f"{self._task(name)} has no text {shown(self.picture)} in its data, which "
                    "holds the picture: give it one, or name another member with --path."
                )
            self.urls.append(url)
        return row

    def _add_choices(
        self,
        question: str,
        about: str,
        row: int,
        where: str,
        annotator: str,
        choices: list[Any],
        is_true: bool,
    ) -> None:
        answers = self.answers.setdefault(question, _Answers(about))
        for choice in choices:
            if not isinstance(choice, str) or not choice.strip():
                raise InputError(
                    f"{where} has the choice {shown(choice)}, which is not a name: export the "
                    "project again as JSON."
                )
            number = answers.names[choice.strip()]
            if not is_true:
                answers.rows.append(row)
                answers.annotators.append(self.annotators[annotator])
                answers.labels.append(number)
            elif answers.true.setdefault(row, number) != number:
                raise InputError(
                    f"{where} has several ground truths: a task has one true label; correct it in "
                    "Label Studio."
                )

    def _task(self, name: str) -> str:
        return f"The task {shown(name)} of {self.path}"

    # ---- all tasks ----------------------------------------------------------------------------

    def table(self, needs_candidates: bool) -> LabelTable:
        path, n = self.path, len(self.row_of)
        if not n:
            raise InputError(f"{path} has no tasks: export a project with at least one.")
        question = self._chosen_question(needs_candidates)
        answers = self.answers.get(question or "", _Answers())
        codes = np.asarray(answers.labels, dtype=np.int64)
        found = labelled_examples(
            path,
            answers.rows,
            codes,
            list(answers.names),
            n,
            classes=self.reading.classes,
            needs_candidates=needs_candidates,
        )
        tasks, annotators = list(self.row_of), list(self.annotators)
        check_distinct(path, tasks, "task")
        kept = found.kept.tolist()
        candidates, votes, true = None, None, None
        if found.numbers is not None:
            check_distinct(path, annotators, "annotator")
            by = np.asarray(answers.annotators, dtype=np.int64)
            given = drop_repeated_votes(found.rows, by, found.numbers[codes])
            votes = AnnotatorVotes(*given, tuple(annotators))
            candidates = voted_candidates(
                votes,
                len(kept),
                found.classes,
                self.reading.annotators or "union",
                self.reading.vote_weights,
                lambda i: self._task(tasks[kept[i]]),
            )
            if answers.true:
                numbers = {row: found.numbers[code] for row, code in answers.true.items()}
                true = np.asarray([numbers.get(row, -1) for row in kept], dtype=np.int64)
        urls = None if self.picture is None else [self.urls[row] for row in kept]
        columns = {"path": self.picture} if self.picture is not None else {}
        if question:
            columns["control"] = f"{question}:{answers.about}"
        return as_label_table(
            [tasks[row] for row in kept],
            None if urls is None else [local_path(url) for url in urls],
            candidates,
            labels=true,
            votes=votes,
            urls=urls,
            columns=columns,
            notes=(*self._ignored(), *skipped(n - len(kept), n, "task", "no label")),
        )

    def _chosen_question(self, needs_candidates: bool) -> str | None:
        """The question whose answers are read; None if there is none and none is needed."""
        found = [one for one, answers in self.answers.items() if answers.rows or answers.true]
        chosen = self.wanted or (found[0] if len(found) == 1 else None)
        if not needs_candidates:
            return chosen
        if not found:
            what = "are missing, empty or cancelled"
            if self.other_types:
                what = f"hold {format_names(sorted(self.other_types))}"
            raise InputError(
                f"The tasks of {self.path} have no choices to learn from (their annotations "
                f"{what}): export a project in which annotators chose labels."
            )
        if chosen not in found:
            what = "choices for several questions"
            if chosen is not None:
                what = f"no choices for {shown(chosen)}, only for others"
            raise InputError(
                f"{self.path} has {what} ({format_names(found)}): name one with --control."
            )
        if not self.answers[chosen].rows:
            raise InputError(
                f"All annotations of {self.path} are ground truth, which is only for evaluation: "
                "export others as well."
            )
        return chosen

    def _ignored(self) -> list[str]:
        """A sentence about the annotations that were ignored, if there are any."""
        counts = {"cancelled": self.n_cancelled, "empty": self.n_empty}
        parts = [f"{n:,} {kind}" for kind, n in counts.items() if n]
        are = "annotation was" if sum(counts.values()) == 1 else "annotations were"
        return [f"{' and '.join(parts)} {are} ignored."] if parts else []


def _name(value: Any, otherwise: str) -> str:
    return (str(value).strip() if type(value) in (int, str) else "") or otherwise


def _looks_like_picture(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    is_address = "://" in value or value.startswith("/data/")
    return is_address or Path(value[-1000:].replace("\0", "")).suffix.lower() in SUFFIXES


def _picture_member(path: Path, data: Any) -> str | None:
    """The member of a task's data that holds the picture; None if there is none."""
    if member(data, PICTURE, str) is not None or not isinstance(data, dict):
        return PICTURE if isinstance(data, dict) else None
    found = [name for name, value in data.items() if _looks_like_picture(value)]
    if len(found) > 1:
        raise InputError(
            f"Several members of the tasks of {path} may hold the picture ({format_names(found)}): "
            "name one with --path."
        )
    return found[0] if found else None


def _question(path: Path, picture: str | None) -> str:
    """The member of the entries of a minimal export that holds the answers."""
    answers: dict[str, None] = {}
    texts: dict[str, None] = {}
    for item in islice(json_items(path), PEEKED):
        for name, value in item.value.items() if isinstance(item.value, dict) else ():
            if name in OF_EXPORT or name == picture:
                continue
            if member(value, "choices", list) is not None:
                answers[name] = None
            elif isinstance(value, str) and not _looks_like_picture(value):
                texts[name] = None
    found = list(answers or texts)
    if CONTROL in found or len(found) == 1:
        return CONTROL if CONTROL in found else found[0]
    what = f"{format_names(found)} may all hold the labels" if found else "there are no choices"
    raise InputError(
        f"It is unclear which member of the tasks of {path} holds the labels ({what}): name it "
        "with --control."
    )
