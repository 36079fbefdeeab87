"""JSON examples: what the readers of labelling tools and detectors share, from checks to a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.candidates.cells import as_texts, unknown_class_error
from ltpll.candidates.votes import AnnotatorVotes
from ltpll.errors import InputError, shown
from ltpll.formatting import are, counted
from ltpll.tables.label_table import LabelTable
from ltpll.tables.set_columns import sorted_class_names

Numbers = npt.NDArray[np.int64]
Kind = type | tuple[type, ...]
ID: Kind = (int, str)
NUMBER: Kind = (int, float)
KINDS: dict[Kind, str] = {str: "text", list: "a list", ID: "a number or text", NUMBER: "a number"}


class Numbered(dict[Any, int]):
    """Distinct keys, numbered in the order in which they are first looked up."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number


# ---- objects ----------------------------------------------------------------------------------


def member(value: Any, key: str, kind: Kind) -> Any:
    """A member of an object if it has this type, otherwise None; true and false are no numbers."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, kind) and not isinstance(found, bool) else None


def required(where: str, value: Any, /, **kinds: Kind) -> list[Any]:
    """The members of an object, each of which must have its type; text must not be blank.

    Examples:
        >>> required("Entry 1", {"id": 3, "name": "fox", "score": 0.5}, id=ID, name=str)
        [3, 'fox']
    """
    found = []
    for key, kind in kinds.items():
        one = member(value, key, kind)
        if one is None or (isinstance(one, str) and not one.strip()):
            raise InputError(
                f"{where} lacks {key!r} ({KINDS[kind]}): correct it, or export the file again."
            )
        found.append(one)
    return found


def listed(where: str, value: Any, key: str) -> list[Any]:
    """A list in an object, which may be missing."""
    if isinstance(value, dict) and not value.get(key):
        return []
    found: list[Any] = required(where, value, **{key: list})[0]
    return found


# ---- examples ---------------------------------------------------------------------------------


def check_distinct(path: Path, names: Sequence[str], what: str) -> None:
    """Refuse names of examples of which some occur twice, or are not valid text."""
    as_texts(names, range(len(names)), lambda i: f"Entry {i + 1} of {path}")
    if len(set(names)) < len(names):
        name = Counter(names).most_common(1)[0][0]
        raise InputError(
            f"{path} has the {what} {shown(name)} twice: every example needs its own; rename or "
            "drop one of them."
        )


class Labelled(NamedTuple):
    """Which examples of a file are kept, and the classes of their labels."""

    kept: Numbers
    rows: Numbers  # of each label, the position of its example in `kept`
    numbers: Numbers | None  # the class number of each name; None if there are no candidates
    classes: tuple[Any, ...]


def labelled_examples(
    path: Path,
    rows: Sequence[int] | Numbers,
    codes: Sequence[int] | Numbers,
    names: Sequence[str],
    n: int,
    *,
    classes: Sequence[Any] | None,
    needs_candidates: bool,
) -> Labelled:
    """Find the examples that have labels, and number their classes.

    Args:
        path: The file, for messages.
        rows: The example of each label.
        codes: The position of each label in `names`.
        names: The labels; those that no example has as a candidate may be true labels.
        n: The number of examples.
        classes: The classes in order; None for the names that occur, sorted.
        needs_candidates: Whether examples without labels are skipped. Otherwise all of them are
            kept, and labels do not matter unless every example has some and all are classes.
    """
    with_labels = np.unique(np.asarray(rows, dtype=np.int64))
    kept = with_labels if needs_candidates else np.arange(n)
    if classes is None:
        used = np.unique(np.asarray(codes, dtype=np.int64)).tolist()
        classes = sorted_class_names([*{names[code] for code in used}])
    numbers = None
    if needs_candidates or (len(with_labels) == n and {*names} <= {*classes}):
        as_texts(names, range(len(names)), lambda i: f"One of the labels of {path}")
        number = {name: i for i, name in enumerate(classes)}
        unknown = next((name for name in names if name not in number), None)
        if unknown is not None:
            raise InputError(f"{path} has the label {unknown_class_error(unknown, classes)}.")
        numbers = np.asarray([number[name] for name in names], dtype=np.int64)
    return Labelled(kept, np.searchsorted(kept, rows), numbers, tuple(classes))


def skipped(n: int, total: int, what: str, why: str) -> tuple[str, ...]:
    """A sentence about the examples that were skipped, if there are any."""
    have = "it has" if n == 1 else "they have"
    sentence = f"{n:,} of {counted(total, what)} {are(n)} skipped because {have} {why}."
    return (sentence,) if n else ()


def as_label_table(
    ids: Sequence[str],
    paths: Sequence[str] | None,
    candidates: Candidates | None,
    *,
    labels: Numbers | None = None,
    groups: Sequence[str] | None = None,
    votes: AnnotatorVotes | None = None,
    urls: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    notes: tuple[str, ...] = (),
) -> LabelTable:
    """The examples of a file that is not a table."""

    def texts(values: Sequence[str] | None) -> Any:
        return None if values is None else np.asarray(values, dtype=object)

    return LabelTable(
        ids=texts(ids),
        candidates=None if candidates is None else candidates.with_groups(groups),
        labels=labels,
        splits=None,
        paths=texts(paths),
        features=None,
        feature_names=(),
        votes=votes,
        groups=texts(groups),
        columns=columns or {},
        urls=texts(urls),
        notes=notes,
    )
