"""Annotation columns: which of them hold the tasks, the annotators, their labels, the truth."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ltpll.errors import InputError, shown
from ltpll.formatting import format_names
from ltpll.tables.streaming import Table

# The column of true labels, unless another one is named or this one holds the annotations.
TRUE_LABEL = "label"
CONTENT = {"task": "tasks", "worker": "annotators", "annotation": "annotated labels"}
# Without blanks, marks and an ending: `Image ID`, `image_path` and `image` are the same.
USUAL_NAMES = {
    "task": "task image img picture photo item example sample question object id path file",
    "worker": "worker annotator user rater labeler labeller coder judge expert",
    "annotation": "label choice answer annotation response vote class category",
}


def find_annotation_columns(
    table: Table, named: Mapping[str, str | None], path: str | None, others: Mapping[str, str]
) -> dict[str, str]:
    """Find the columns of a table of annotations; true labels are never taken for annotations.

    Args:
        table: The table.
        named: The columns that the user named as task, worker, annotation or label, if any.
        path: The column of paths, which holds the tasks if no other column does.
        others: Columns that hold something else, such as the split, by role.

    Returns:
        The columns of tasks, workers, annotations and, if there are any, true labels (`label`).

    Raises:
        InputError: A named column is missing or named twice, or no column or several columns have a
            usual name.
    """
    given = {
        role: table.names[table.column(name)] for role, name in named.items() if name is not None
    }
    for role, name in given.items():
        check_one_role(name, role, {other: same for other, same in given.items() if other != role})
    check_one_role(given.get("label"), "label", others)
    free = [name for name in table.names if name not in {*given.values(), *others.values()}]
    found: dict[str, str] = {}
    for role, content in CONTENT.items():
        possible = [name for name in free if _usual(name, role)]
        if role == "task":
            others_first = [name for name in possible if name != path]
            possible = others_first or [name for name in free if name == path]
        if role != "annotation" and role in possible:
            # Which column holds the annotations is not guessed: others may hold the true labels.
            possible = [role]
        if role not in given and len(possible) != 1:
            raise InputError(
                f"It is unclear which column of {table.path} holds the {content}: it has "
                f"{format_names(table.names)}; name the columns with the settings "
                "table.task, table.worker and table.annotation (true labels, which table.label "
                "names, are never annotations)."
            )
        found[role] = given.get(role) or possible[0]
    if "label" in given:
        found["label"] = given["label"]
    elif TRUE_LABEL in free and TRUE_LABEL not in found.values():
        found["label"] = TRUE_LABEL
    return found


def check_one_role(name: str | None, role: str, others: Mapping[str, str]) -> None:
    """Refuse a column that is named for this role and for another one in `others`."""
    twice = next((other for other, same in others.items() if same == name), None)
    if twice is not None:
        raise InputError(
            f"The column {shown(name)} is named with --{role} and with --{twice}: it can be only "
            "one of the two."
        )


def _usual(name: str, role: str) -> bool:
    """Whether a column with this name usually holds tasks, annotators or annotations."""
    plain, usual = re.sub(r"[\W_]", "", name.lower()), USUAL_NAMES[role].split()
    return plain in usual or re.sub("(id|name|path|file)$", "", plain) in usual
