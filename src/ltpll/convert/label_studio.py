"""Label Studio: exported tasks whose choices become the votes of annotators, and the paths of their pictures."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np

from ltpll.candidates.votes import AnnotatorVotes, drop_repeated_votes, voted_candidates
from ltpll.convert.json_examples import (
    JsonExamples,
    checked_names,
    class_numbers,
    known_classes,
    member,
    skipped,
)
from ltpll.convert.json_stream import json_items
from ltpll.errors import InputError, shown
from ltpll.formatting import format_names
from ltpll.pictures.files import SUFFIXES
from ltpll.tables.streaming import ReadProgress

PICTURE = "image"  # the usual name of the picture in the data of a task
OBJECT = "image"  # the usual name of what is labelled, in the labelling interface
CONTROL = "choice"  # the usual name of the question, in the labelling interface
# What a minimal export (JSON-MIN) has beside the data of a task and the answers.
OF_EXPORT = {
    "id",
    "annotator",
    "annotation_id",
    "created_at",
    "updated_at",
    "lead_time",
    "agreement",
}
PEEKED = 1000  # entries of a minimal export by which its question is found


def read_label_studio(
    path: Path,
    *,
    control: str | None,
    picture: str | None,
    rule: str,
    vote_weights: str,
    classes: Sequence[Any] | None,
    needs_candidates: bool,
    pictures: bool = True,
    on_progress: ReadProgress | None = None,
) -> JsonExamples:
    """Read an export in the format JSON or JSON-MIN, or the same tasks one per line.

    Args:
        path: The file.
        control: The question whose choices are read, as the interface calls it (`from_name`); None if there is only one.
        picture: The member of a task's data that holds the picture; None for `image`, or the only one that looks like a picture.
        rule: Which labels become candidates, as for tables of annotations.
        vote_weights: How votes weight the candidates.
        classes: The classes in order; None for the names that occur.
        needs_candidates: Whether tasks without labels are skipped; otherwise all tasks are returned, with candidates if all have some.
        pictures: Whether the paths of pictures are read at all.
        on_progress: Called with the number of bytes read so far and the total.

    Returns:
        The tasks; annotations that are marked as ground truth are true labels, and no votes.

    Raises:
        InputError: The file cannot be read, or has no choices or several questions.
    """
    wanted = None if control is None else control.partition(":")[0]
    tasks = _Tasks(path, picture, pictures)
    with closing(json_items(path, on_progress)) as items:
        for item in items:
            if not isinstance(item.value, dict) or item.key:
                raise InputError(
                    f"Entry {item.number} of {path} is not a task of Label Studio: export the project again as JSON."
                )
            if any(name in item.value for name in ("data", "annotations", "completions")):
                tasks.add_task(item.number, item.value)
            else:
                tasks.question = tasks.question or wanted or _question(path, picture)
                tasks.add_answer(item.number, item.value)
    return tasks.examples(wanted, rule, vote_weights, classes, needs_candidates)


def local_path(url: str) -> str:
    """The path inside a folder of pictures that belongs to what a task calls its picture.

    `/data/local-files/?d=photos/fox.jpg` is `photos/fox.jpg`. `/data/upload/3/abc-fox.jpg` is `3/abc-fox.jpg`, a file in Label Studio's
    folder `media/upload`. Of other addresses, such as `s3://bucket/photos/fox.jpg`, the path is taken; everything else is a path already.
    """
    is_address = "://" in url
    try:
        parts = urlsplit(url)
        named = (
            parse_qs(parts.query).get("d", [])
            if parts.path.rstrip("/").endswith("data/local-files")
            else []
        )
    except ValueError:  # an address that is not one
        return url
    if named:
        return named[0]
    if is_address or url.startswith("/data/upload/"):
        return unquote(parts.path).lstrip("/").removeprefix("data/upload/")
    return url


@dataclass
class _Votes:
    """The answers to one question, as numbers."""

    object: str = OBJECT
    rows: array[int] = field(default_factory=lambda: array("q"))
    annotators: array[int] = field(default_factory=lambda: array("q"))
    labels: array[int] = field(default_factory=lambda: array("q"))
    true: dict[int, int] = field(default_factory=dict)


class _Tasks:
    """Collects the tasks of a file one by one."""

    def __init__(self, path: Path, picture: str | None, pictures: bool) -> None:
        self.path, self.picture, self.has_pictures, self.wants_pictures = (
            path,
            picture,
            picture is not None,
            pictures,
        )
        self.question: str | None = None  # of a minimal export
        self.row_of: dict[str, int] = {}
        self.urls: list[str] = []
        self.votes: dict[str, _Votes] = {}
        self.annotators: dict[str, int] = {}
        self.names: dict[str, int] = {}
        self.other_types: set[str] = set()
        self.cancelled = self.empty = 0

    def add_task(self, number: int, task: dict[str, Any]) -> None:
        """Add a task with all its annotations."""
        name = _name(task.get("id"), f"task {number}")
        if name in self.row_of:
            raise InputError(
                f"{self.path} has the task {shown(name)} twice: export every task once."
            )
        row = self._add_row(name, task.get("data"))
        annotations = task.get("annotations", task.get("completions")) or []
        if not isinstance(annotations, list):
            raise InputError(
                f"{self._task(name)} has annotations that are not a list: export the project again as JSON."
            )
        for position, annotation in enumerate(annotations):
            if not isinstance(annotation, dict) or not isinstance(
                annotation.get("result") or [], list
            ):
                raise InputError(
                    f"{self._task(name)} has an annotation without a list of results: export the project again as JSON."
                )
            if annotation.get("was_cancelled") is True:
                self.cancelled += 1
                continue
            by = annotation.get("completed_by")
            annotator = _name(
                by if not isinstance(by, dict) else by.get("email", by.get("id")),
                f"annotator {position + 1}",
            )
            found = False
            for result in annotation.get("result") or []:
                found |= self._add_result(
                    row, name, annotator, result, annotation.get("ground_truth") is True
                )
            self.empty += not found

    def add_answer(self, number: int, answer: dict[str, Any]) -> None:
        """Add an entry of a minimal export: a task with one annotation."""
        name = _name(answer.get("id"), f"task {number}")
        row = self.row_of.get(name)
        if row is None:
            row = self._add_row(name, answer)
        given = answer.get(self.question or CONTROL)
        choices: list[Any] = []
        for one in given if isinstance(given, list) else [given]:
            choices += (
                (member(one, "choices", list) or [])
                if isinstance(one, dict)
                else []
                if one in (None, "")
                else [one]
            )
        annotator = _name(answer.get("annotator"), "annotator 1")
        self.empty += not choices
        if choices:
            self._add_choices(
                self.votes.setdefault(self.question or CONTROL, _Votes()),
                row,
                name,
                annotator,
                choices,
                False,
            )

    def _add_row(self, name: str, data: Any) -> int:
        row = self.row_of[name] = len(self.row_of)
        if not row and self.picture is None and self.wants_pictures:
            self.picture = _picture_member(self.path, data)
            self.has_pictures = self.picture is not None
        if self.has_pictures:
            url = member(data, self.picture or PICTURE, str)
            if url is None:
                raise InputError(
                    f"{self._task(name)} has no text {shown(self.picture)} in its data, which holds the picture: give it one, or name "
                    "another member with --path."
                )
            self.urls.append(url)
        return row

    def _add_result(self, row: int, name: str, annotator: str, result: Any, is_true: bool) -> bool:
        """Add the choices of a result; False if it has none."""
        choices = member(member(result, "value", dict), "choices", list)
        if choices is None:
            self.other_types.add(member(result, "type", str) or "something else")
            return False
        question = member(result, "from_name", str) or CONTROL
        votes = self.votes.setdefault(question, _Votes(member(result, "to_name", str) or OBJECT))
        self._add_choices(votes, row, name, annotator, choices, is_true)
        return bool(choices)

    def _add_choices(
        self, votes: _Votes, row: int, name: str, annotator: str, choices: list[Any], is_true: bool
    ) -> None:
        wrong = [choice for choice in choices if not isinstance(choice, str) or not choice.strip()]
        if wrong:
            raise InputError(
                f"{self._task(name)} has the choice {shown(wrong[0])}, which is not a name: export the project again as JSON."
            )
        numbers = [self.names.setdefault(choice.strip(), len(self.names)) for choice in choices]
        if is_true:
            if len({*numbers, votes.true.setdefault(row, numbers[0])} if numbers else {0}) > 1:
                raise InputError(
                    f"{self._task(name)} has several ground truths: a task has one true label; correct it in Label Studio."
                )
            return
        by = self.annotators.setdefault(annotator, len(self.annotators))
        for number in numbers:
            votes.rows.append(row)
            votes.annotators.append(by)
            votes.labels.append(number)

    def _task(self, name: str) -> str:
        return f"The task {shown(name)} of {self.path}"

    # ---- all tasks ----------------------------------------------------------------------------------------------------

    def examples(
        self,
        wanted: str | None,
        rule: str,
        vote_weights: str,
        classes: Sequence[Any] | None,
        needs_candidates: bool,
    ) -> JsonExamples:
        if not self.row_of:
            raise InputError(f"{self.path} has no tasks: export a project with at least one.")
        question = self._chosen(wanted, needs_candidates)
        votes = self.votes.get(question, _Votes()) if question else _Votes()
        rows = np.asarray(votes.rows, dtype=np.int64)
        labelled = np.unique(rows)
        n = len(self.row_of)
        kept = labelled if needs_candidates else np.arange(n)
        voted = {*votes.labels}
        used = voted | {*votes.true.values()}
        names = [name for name, number in self.names.items() if number in used]
        chosen = known_classes(
            [name for name, number in self.names.items() if number in voted], classes
        )
        candidates, given, true = None, None, None
        # New examples need no labels, so that labels which are not classes do not matter.
        if needs_candidates or (len(labelled) == n and {*names} <= {*chosen}):
            number = np.full(len(self.names), -1, dtype=np.int64)
            number[[self.names[name] for name in names]] = class_numbers(self.path, names, chosen)
            position = np.full(n, -1, dtype=np.int64)
            position[kept] = np.arange(len(kept))
            entries = (
                position[rows],
                np.asarray(votes.annotators, dtype=np.int64),
                number[np.asarray(votes.labels, dtype=np.int64)],
            )
            checked_names(self.path, list(self.annotators), "annotator")
            given = AnnotatorVotes(*drop_repeated_votes(*entries), tuple(self.annotators))
            tasks = list(self.row_of)
            candidates = voted_candidates(
                given, len(kept), chosen, rule, vote_weights, lambda i: self._task(tasks[kept[i]])
            )
            if votes.true:
                true = np.asarray(
                    [number[votes.true[row]] if row in votes.true else -1 for row in kept.tolist()],
                    dtype=np.int64,
                )
        ids = checked_names(self.path, list(self.row_of), "task")
        urls = [self.urls[row] for row in kept] if self.has_pictures else None
        return JsonExamples(
            ids=[ids[row] for row in kept],
            paths=None if urls is None else [local_path(url) for url in urls],
            candidates=candidates,
            labels=true,
            votes=given,
            urls=urls,
            notes=self._notes(n, n - len(kept)),
            fields={
                **(
                    {"path": self.picture} if self.picture is not None and self.has_pictures else {}
                ),
                **({"control": f"{question}:{votes.object}"} if question else {}),
            },
        )

    def _chosen(self, wanted: str | None, needs_candidates: bool) -> str | None:
        """The question whose answers are read; None if there are no answers and none are needed."""
        found = [question for question, votes in self.votes.items() if votes.rows or votes.true]
        if wanted is not None and (wanted in found or not needs_candidates):
            return wanted
        if wanted is not None and found:
            raise InputError(
                f"{self.path} has no choices for {shown(wanted)}: it has {format_names(found)}; name one with --control."
            )
        if len(found) > 1 and needs_candidates:
            raise InputError(
                f"{self.path} has choices for several questions ({format_names(found)}): name one with --control."
            )
        if found and not any(self.votes[question].rows for question in found) and needs_candidates:
            raise InputError(
                f"All annotations of {self.path} are ground truth, which is only for evaluation: export others as well."
            )
        if not found and needs_candidates:
            what = (
                f"hold {format_names(sorted(self.other_types))}"
                if self.other_types
                else "are missing, empty or cancelled"
            )
            raise InputError(
                f"The tasks of {self.path} have no choices to learn from (their annotations {what}): export a project in which "
                "annotators chose labels."
            )
        return found[0] if len(found) == 1 else None

    def _notes(self, n: int, n_skipped: int) -> tuple[str, ...]:
        notes = []
        if self.cancelled or self.empty:
            parts = [
                f"{count:,} {kind}"
                for count, kind in ((self.cancelled, "cancelled"), (self.empty, "empty"))
                if count
            ]
            notes.append(
                f"{' and '.join(parts)} {'annotation was' if self.cancelled + self.empty == 1 else 'annotations were'} ignored."
            )
        return (*notes, *skipped(n_skipped, n, "task", "no label"))


def _name(value: Any, otherwise: str) -> str:
    plain = isinstance(value, (int, str)) and not isinstance(value, bool)
    return (
        str(value).strip() if plain and abs(value if isinstance(value, int) else 0) < 10**30 else ""
    ) or otherwise


def _looks_like_picture(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    return (
        "://" in value
        or value.startswith("/data/")
        or Path(value[-1000:].replace("\0", "")).suffix.lower() in SUFFIXES
    )


def _picture_member(path: Path, data: Any) -> str | None:
    """The member of a task's data that holds the picture; None if there is none."""
    if member(data, PICTURE, str) is not None:
        return PICTURE
    found = (
        [name for name, value in data.items() if _looks_like_picture(value)]
        if isinstance(data, dict)
        else []
    )
    if len(found) > 1:
        raise InputError(
            f"Several members of the tasks of {path} may hold the picture ({format_names(found)}): name one with --path."
        )
    return found[0] if found else None


def _question(path: Path, picture: str | None) -> str:
    """The member of the entries of a minimal export that holds the answers."""
    answers: dict[str, None] = {}
    texts: dict[str, None] = {}
    with closing(json_items(path)) as items:
        for item in islice(items, PEEKED):
            for name, value in item.value.items() if isinstance(item.value, dict) else ():
                if name in OF_EXPORT or name == picture:
                    continue
                if member(value, "choices", list) is not None:
                    answers[name] = None
                elif isinstance(value, str) and not _looks_like_picture(value):
                    texts[name] = None
    found = list(answers) or list(texts)
    if len(found) == 1 or CONTROL in found:
        return CONTROL if CONTROL in found else found[0]
    if not found:
        raise InputError(
            f"The tasks of {path} have no choices to learn from: export a project in which annotators chose labels."
        )
    raise InputError(
        f"Several members of the tasks of {path} may hold the labels ({format_names(found)}): name one with --control."
    )
