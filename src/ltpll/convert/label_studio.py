"""Label Studio: choices of exported tasks are votes of annotators; labels as pre-annotations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from ltpll.convert.examples import Converted, JsonFile, listed, member, required, skipped
from ltpll.errors import InputError, shown
from ltpll.files import write_when_complete
from ltpll.formatting import counted, format_names
from ltpll.tables.json_stream import json_items
from ltpll.tables.reading import Reading

PICTURE = "image"  # the usual name of the picture in the data of a task
OBJECT = "image"  # the usual name of what is labelled, in the labelling interface
CONTROL = "choice"  # the usual name of the question, in the labelling interface
TASK = {"data", "annotations", "completions"}  # of which a task has one


# ---- exports -------------------------------------------------------------------------------------


def read_label_studio(source: JsonFile) -> Converted:
    """Read an export in the format JSON, or the same tasks one per line.

    Annotations that are marked as ground truth are true labels, and no votes.

    Raises:
        InputError: The file cannot be read, or has no choices or several questions.
    """
    tasks = _Tasks(source)
    for key, number, entry in json_items(source.path, source.on_progress):
        if key or not isinstance(entry, dict) or not entry.keys() & TASK:
            raise InputError(
                f"Entry {number} of {source.path} is not a task of Label Studio: export the "
                "project again as JSON."
            )
        tasks.add(_name(entry.get("id"), f"task {number}"), entry)
    return tasks.converted()


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


@dataclass
class _Question:
    """The answers to one question."""

    about: str = OBJECT
    votes: list[tuple[str, str, str]] = field(default_factory=list)  # task, worker, annotation
    true: dict[str, str] = field(default_factory=dict)  # the true labels of some tasks


class _Tasks:
    """Collects the tasks of a file one by one."""

    def __init__(self, source: JsonFile) -> None:
        self.source, reading = source, source.reading
        self.picture = reading.path
        self.wanted = None if reading.control is None else reading.control.partition(":")[0]
        self.urls: dict[str, str | None] = {}  # by task
        self.questions: dict[str, _Question] = {}
        self.n_ignored = 0

    def add(self, name: str, entry: dict[str, Any]) -> None:
        """Add a task with all its annotations."""
        where = f"The task {shown(name)} of {self.source.path}"
        if name in self.urls:
            raise InputError(f"{where} occurs twice: export every task once.")
        of_task = "annotations" if "annotations" in entry else "completions"
        data, annotations = entry.get("data"), listed(where, entry, of_task)
        if not self.urls and self.picture == Reading.path:
            self.picture = None if member(data, PICTURE, str) is None else PICTURE
        key = self.picture
        self.urls[name] = None if key is None else required(where, data, **{key: str})[0]
        for position, annotation in enumerate(annotations):
            found = False
            for result in listed(where, annotation, "result"):
                choices = member(member(result, "value", dict), "choices", list)
                if choices and annotation.get("was_cancelled") is not True:
                    by = annotation.get("completed_by")
                    by = by.get("email", by.get("id")) if isinstance(by, dict) else by
                    by = _name(by, f"annotator {position + 1}")
                    about = member(result, "to_name", str) or OBJECT
                    called = member(result, "from_name", str) or CONTROL
                    question = self.questions.setdefault(called, _Question(about))
                    is_true = annotation.get("ground_truth") is True
                    for choice in choices:
                        _add_choice(question, where, name, None if is_true else by, choice)
                    found = True
            self.n_ignored += not found

    def converted(self) -> Converted:
        """One row for each vote, or for each task if candidates are not needed and some lack."""
        source, given = self.source, self.source.reading
        if not self.urls:
            raise InputError(f"{source.path} has no tasks: export a project with at least one.")
        called = self._chosen_question()
        question = self.questions.get(called or "", _Question())
        place = {task: i for i, task in enumerate(self.urls)}
        votes = sorted(dict.fromkeys(question.votes), key=lambda vote: place[vote[0]])
        tasks = [vote[0] for vote in votes]
        n_without = len(place.keys() - {*tasks})
        notes: tuple[str, ...] = ()
        if self.n_ignored:
            ignored = counted(self.n_ignored, "annotation")
            notes = (f"Ignored {ignored}: cancelled, or without a choice.",)
        columns: dict[str, list[str]] = {"task": tasks}
        reading = Reading(classes=given.classes)
        names = {vote[2] for vote in votes} | {*question.true.values()}
        unknown = given.classes is not None and not names <= {*given.classes}
        if not source.needs_candidates and (n_without or unknown):
            tasks = [*place]
            columns = {"id": tasks}
        else:
            notes += skipped(n_without, len(place), "task", "no label")
            columns["worker"] = [vote[1] for vote in votes]
            columns["annotation"] = [vote[2] for vote in votes]
            reading = Reading(
                classes=given.classes,
                annotators=given.annotators or "union",
                vote_weights=given.vote_weights,
                # Which of two columns holds the annotations is never guessed.
                annotation="annotation" if question.true else None,
            )
        fields, urls = {}, None
        if self.picture is not None:
            fields["path"] = self.picture
            urls = {task: str(url) for task, url in self.urls.items()}
            columns["path"] = [local_path(urls[task]) for task in tasks]
        if question.true and "annotation" in columns:
            columns["label"] = [question.true.get(task, "") for task in tasks]
        if called is not None:
            fields["control"] = f"{called}:{question.about}"
        return Converted(columns, reading, "The task", notes, fields, urls)

    def _chosen_question(self) -> str | None:
        """The question whose answers are read; None if there is none and none is needed."""
        found = [called for called, question in self.questions.items() if question.votes]
        chosen = self.wanted or (found[0] if len(found) == 1 else None)
        if not self.source.needs_candidates or chosen in found:
            return chosen
        if not found:
            raise InputError(
                f"The tasks of {self.source.path} have no choices to learn from (annotations are "
                "missing, empty, cancelled, of another kind, or ground truth, which is only for "
                "evaluation): export a project in which annotators chose labels."
            )
        what = "choices for several questions"
        if chosen is not None:
            what = f"no choices for {shown(chosen)}, only for others"
        raise InputError(
            f"{self.source.path} has {what} ({format_names(found)}): name one with --control."
        )


def _name(value: Any, otherwise: str) -> str:
    return (str(value).strip() if type(value) in (int, str) else "") or otherwise


def _add_choice(
    question: _Question, where: str, task: str, worker: str | None, choice: Any
) -> None:
    """Add the choice of an annotator, or the true label if it is None."""
    if not isinstance(choice, str) or not choice.strip():
        raise InputError(
            f"{where} has the choice {shown(choice)}, which is not a name: export the project again "
            "as JSON."
        )
    if worker is not None:
        question.votes.append((task, worker, choice.strip()))
    elif question.true.setdefault(task, choice.strip()) != choice.strip():
        raise InputError(
            f"{where} has several ground truths: a task has one true label; correct it in Label "
            "Studio."
        )


# ---- pre-annotations -----------------------------------------------------------------------------


def control_names(text: str | None, stored: str | None = None) -> tuple[str, str]:
    """The names of the question and of what it is about, from text such as `choice:image`.

    The part behind the colon may be missing. What is not given is taken from the names that were
    `stored` at the import, or are usual.
    """
    parts = [] if text is None else [part.strip() for part in text.split(":")]
    if len(parts) > 2 or "" in parts:
        raise InputError(
            f"The control is {shown(text)}: give the names in the labelling interface, such as "
            "choice:image."
        )
    question, _, about = (stored or f"{CONTROL}:{OBJECT}").partition(":")
    return (parts[0] if parts else question), (parts[1] if len(parts) > 1 else about or OBJECT)


def write_pre_annotations(
    path: Path,
    data: Sequence[Mapping[str, str]],
    labels: Sequence[str],
    scores: Sequence[float],
    *,
    control: tuple[str, str] = (CONTROL, OBJECT),
    model_version: str = "ltpll",
) -> None:
    """Write tasks with one prediction each, in the JSON format that Label Studio imports.

    Args:
        path: The file, which is replaced when the new one is complete.
        data: What each task shows, such as `{"image": "/data/upload/1/fox.jpg"}`.
        labels: The predicted label of each task.
        scores: The confidence of each label, from 0 to 1.
        control: The names of the question and of what it is about in the labelling interface
            (`name` and `toName` of its `Choices`).
        model_version: What Label Studio calls the model.
    """
    question = {"from_name": control[0], "to_name": control[1], "type": "choices"}
    tasks = []
    for shows, label, score in zip(data, labels, scores, strict=True):
        result = [{**question, "value": {"choices": [label]}}]
        one = {"model_version": model_version, "score": float(score), "result": result}
        task = {"data": dict(shows), "predictions": [one]}
        tasks.append(json.dumps(task, ensure_ascii=False))
    content = "[\n" + ",\n".join(tasks) + "\n]\n"
    write_when_complete(path, lambda file: file.write(content.encode()))
