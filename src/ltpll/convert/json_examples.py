"""JSON examples: what the readers of labelling tools and detectors share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.candidates.cells import as_texts, unknown_class_error
from ltpll.errors import InputError, shown
from ltpll.formatting import are, counted
from ltpll.tables.json_stream import Item, json_items
from ltpll.tables.label_table import LabelTable
from ltpll.tables.reading import Reading
from ltpll.tables.set_columns import sorted_class_names
from ltpll.tables.streaming import ReadProgress

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
        >>> required("Entry 1", {"id": 3, "name": "fox", "score": 0.5}, id=int, name=str)
        [3, 'fox']
    """
    found = [member(value, key, kind) for key, kind in kinds.items()]
    for key, one in zip(kinds, found, strict=True):
        if one is None or (isinstance(one, str) and not one.strip()):
            what = f"{shown(key)} ({KINDS[kinds[key]]})"
            raise InputError(f"{where} lacks {what}: correct it, or export the file again.")
    return found


def listed(where: str, value: Any, key: str) -> list[Any]:
    """A list in an object, which may be missing."""
    is_missing = isinstance(value, dict) and not value.get(key)
    return [] if is_missing else list(required(where, value, **{key: list})[0])


# ---- examples ---------------------------------------------------------------------------------


class Labelled(NamedTuple):
    """Which examples of a file are kept, and the classes of their labels."""

    kept: Numbers
    rows: Numbers  # of each label, the position of its example in `kept`
    numbers: Numbers | None  # the class number of each name; None if there are no candidates
    classes: tuple[Any, ...]


@dataclass(frozen=True)
class JsonFile:
    """A file, and how it is read."""

    path: Path
    reading: Reading
    needs_candidates: bool  # whether examples without labels are skipped
    on_progress: ReadProgress | None

    def items(self) -> Generator[Item]:
        """Read the file item by item."""
        return json_items(self.path, self.on_progress)

    def check_distinct(self, names: Sequence[str], what: str) -> None:
        """Refuse names of examples of which some occur twice, or are not valid text."""
        as_texts(names, range(len(names)), lambda i: f"Entry {i + 1} of {self.path}")
        if len(set(names)) < len(names):
            name = Counter(names).most_common(1)[0][0]
            raise InputError(
                f"{self.path} has the {what} {shown(name)} twice: every example needs its own; "
                "rename or drop one of them."
            )

    def labelled(
        self, n: int, rows: Sequence[int] | Numbers, codes: Numbers, names: Sequence[str]
    ) -> Labelled:
        """Find the examples that have labels, and number their classes.

        If candidates are not needed, all examples are kept, and labels do not matter unless every
        example has some and all of them are classes.

        Args:
            n: The number of examples.
            rows: The example of each label.
            codes: The position of each label in `names`.
            names: The labels; those that no example has as a candidate may be true labels.
        """
        with_labels, classes = np.unique(np.asarray(rows, dtype=np.int64)), self.reading.classes
        kept = with_labels if self.needs_candidates else np.arange(n)
        if classes is None:
            classes = tuple(sorted_class_names([*{names[code] for code in np.unique(codes)}]))
        numbers = None
        if self.needs_candidates or (len(with_labels) == n and {*names} <= {*classes}):
            as_texts(names, range(len(names)), lambda i: f"One of the labels of {self.path}")
            number = {name: i for i, name in enumerate(classes)}
            unknown = next((name for name in names if name not in number), None)
            if unknown is not None:
                why = unknown_class_error(unknown, classes)
                raise InputError(f"{self.path} has the label {why}.")
            numbers = np.asarray([number[name] for name in names], dtype=np.int64)
        return Labelled(kept, np.searchsorted(kept, rows), numbers, classes)


def skipped(n: int, total: int, what: str, why: str) -> tuple[str, ...]:
    """A sentence about the examples that were skipped, if there are any."""
    have = "it has" if n == 1 else "they have"
    sentence = f"{n:,} of {counted(total, what)} {are(n)} skipped because {have} {why}."
    return (sentence,) if n else ()


def as_label_table(candidates: Candidates | None, **columns: Any) -> LabelTable:
    """The examples of a file that is not a table; lists of texts may be plain."""
    missing = ("labels", "splits", "paths", "features", "votes", "groups", "urls")
    columns = {**dict.fromkeys(missing), "feature_names": (), **columns}
    for name in ("ids", "paths", "groups", "urls"):
        if columns[name] is not None:
            columns[name] = np.asarray(columns[name], dtype=object)
    if candidates is not None:
        candidates = candidates.with_groups(columns["groups"])
    return LabelTable(candidates=candidates, **columns)
