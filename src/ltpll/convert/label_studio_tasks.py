"""Label Studio tasks: labels written as pre-annotations, which annotators see and correct."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ltpll.convert.label_studio import CONTROL, OBJECT
from ltpll.errors import InputError, shown
from ltpll.files import write_when_complete


def control_names(text: str | None, stored: str | None = None) -> tuple[str, str]:
    """The names of the question and of what it is about, from text such as `choice:image`.

    Args:
        text: What the user gives; the part behind the colon may be missing. None for the names of
            the imported file.
        stored: The names of the imported file; None for the usual ones, `choice` and `image`.

    Raises:
        InputError: A name is empty, or there are more than two.

    Examples:
        >>> control_names("species", "choice:photo")
        ('species', 'photo')
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

    Raises:
        InputError: The file cannot be written.

    Examples:
        >>> write_pre_annotations(Path("tasks.json"), [{"image": "fox.jpg"}], ["fox"], [0.9])
    """

    def write(file: Any) -> None:
        question = {"from_name": control[0], "to_name": control[1], "type": "choices"}
        before = "[\n"
        for shows, label, score in zip(data, labels, scores, strict=True):
            result = [{**question, "value": {"choices": [label]}}]
            one = {"model_version": model_version, "score": float(score), "result": result}
            task = {"data": dict(shows), "predictions": [one]}
            file.write((before + json.dumps(task, ensure_ascii=False)).encode())
            before = ",\n"
        file.write(b"\n]\n" if len(data) else b"[]\n")

    write_when_complete(path, write)
