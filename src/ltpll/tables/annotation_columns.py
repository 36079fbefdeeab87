"""Annotation columns: which columns of a table of annotations hold the tasks, the annotators, their labels and the true labels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ltpll.errors import InputError, shown
from ltpll.formatting import format_names
from ltpll.tables.streaming import Table

TRUE_LABEL = "label"  # the column of true labels, unless another one is named or this one holds the annotations
CONTENT = {"task": "tasks", "worker": "annotators", "annotation": "annotated labels"}
# Without blanks and marks, and without an ending such as _id: `Image ID`, `image_path` and `image` are the same.
USUAL_NAMES = {
    "task": (
        "task",
        "image",
        "img",
        "picture",
        "photo",
        "item",
        "example",
        "sample",
        "question",
        "object",
        "id",
        "path",
        "file",
    ),
    "worker": (
        "worker",
        "annotator",
        "user",
        "rater",
        "labeler",
        "labeller",
        "coder",
        "judge",
        "expert",
    ),
    "annotation": (
        "label",
        "choice",
        "answer",
        "annotation",
        "response",
        "vote",
        "class",
        "category",
    ),
}
ENDINGS = ("id", "name", "path", "file")


class AnnotationColumns(NamedTuple):
    """The names of the columns; `label` is None if there are no true labels."""

    task: str
    worker: str
    annotation: str
    label: str | None


def find_annotation_columns(
    table: Table, named: Mapping[str, str | None], path: str | None, others: Mapping[str, str]
) -> AnnotationColumns:
    """Find the columns of a table of annotations; true labels are never taken for annotations.

    Args:
        table: The table.
        named: The columns that the user named as task, worker, annotation or label, if any.
        path: The column of paths, which holds the tasks if no other column does.
        others: Columns that hold something else, such as the split, by role.

    Raises:
        InputError: A named column is missing or named twice, or no column or several columns have a usual name.
    """
    given = {
        role: table.names[table.column(name)] for role, name in named.items() if name is not None
    }
    for role, name in given.items():
        check_one_role(name, role, {other: same for other, same in given.items() if other != role})
    check_one_role(given.get("label"), "label", others)
    found: dict[str, str] = {}
    for role in CONTENT:
        possible = [
            name
            for name in table.names
            if name not in {*given.values(), *others.values()} and _usual(name, role)
        ]
        if role == "task":
            possible = [name for name in possible if name != path] or [
                name for name in table.names if name == path
            ]
        # Which column holds the annotations is never guessed: the other one may hold the true labels.
        exact = [role] if role != "annotation" and role in possible else []
        found[role] = given.get(role) or _only(table, role, exact or possible, given)
    free = TRUE_LABEL in table.names and TRUE_LABEL not in {*found.values(), *others.values()}
    return AnnotationColumns(**found, label=given.get("label", TRUE_LABEL if free else None))


def check_one_role(name: str | None, role: str, others: Mapping[str, str]) -> None:
    """Refuse a column that is named for this role and for another one; `others` are the columns of other roles."""
    twice = next((other for other, same in others.items() if same == name), None)
    if twice is not None:
        raise InputError(
            f"The column {shown(name)} is named with --{role} and with --{twice}: it can be only one of the two."
        )


def _usual(name: str, role: str) -> bool:
    """Whether a column with this name usually holds tasks, annotators or annotations."""
    plain = re.sub(r"[\W_]", "", name.lower())
    ending = next((end for end in ENDINGS if plain.endswith(end)), "")
    return plain in USUAL_NAMES[role] or plain.removesuffix(ending) in USUAL_NAMES[role]


def _only(table: Table, role: str, possible: Sequence[str], given: Mapping[str, str]) -> str:
    if len(possible) == 1:
        return possible[0]
    if possible:
        truth = (
            ", and the column of true labels, if one of them is that, with --label"
            if role == "annotation"
            else ""
        )
        raise InputError(
            f"{table.path} has several columns that may hold the {CONTENT[role]} ({format_names(possible)}): name one with --{role}{truth}."
        )
    if role == "annotation" and "label" in given:
        raise InputError(
            f"The column {shown(given['label'])} of {table.path} is named with --label, so it holds true labels, which are never used as "
            f"annotations: name the column of annotations with --annotation (the columns are {format_names(table.names)}), or write "
            f"--annotation {shown(given['label'])} and omit --label."
        )
    raise InputError(
        f"It is unclear which column of {table.path} holds the {CONTENT[role]}: it has {format_names(table.names)}; name the columns with "
        "--task, --worker and --annotation."
    )
