"""Examples of other programs' files as the columns of a table, and what their readers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ltpll.errors import InputError, shown
from ltpll.formatting import are, counted
from ltpll.tables.opening import text_array
from ltpll.tables.read_tables import LabelTable, read_table
from ltpll.tables.reading import Reading
from ltpll.tables.streaming import ArrowTable, ReadProgress

KINDS: dict[type, str] = {str: "text", list: "a list"}


# ---- objects of JSON -----------------------------------------------------------------------------


@dataclass(frozen=True)
class JsonFile:
    """A file, and how it is read."""

    path: Path
    reading: Reading
    needs_candidates: bool  # whether examples without labels are skipped
    on_progress: ReadProgress | None


def member(value: Any, key: str, kind: type) -> Any:
    """A member of an object if it has this type, otherwise None."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, kind) else None


def required(where: str, value: Any, /, **kinds: type) -> list[Any]:
    """The members of an object, each of which must have its type; text must not be blank.

    Examples:
        >>> required("Entry 1", {"name": "fox", "scores": [0.5]}, name=str, scores=list)
        ['fox', [0.5]]
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


# ---- tables --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Converted:
    """The examples of a file as the columns of a table, and how the table is read."""

    columns: Mapping[str, Sequence[Any]]
    reading: Reading
    row: str = "Row"  # what a message calls a row
    notes: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)  # what the tool calls some columns
    urls: Mapping[str, str] | None = None  # what the tool calls the pictures, by example

    def read(self, path: Path, needs_candidates: bool, **how: Any) -> LabelTable:
        """The examples as those of any other table; `how` is as in `read_table`."""
        import pyarrow as pa  # type: ignore[import-untyped]

        names = self.columns.get("task", self.columns.get("id"))
        arrays = [text_array(path, values) for values in self.columns.values()]
        table = ArrowTable(
            pa.table(arrays, names=[*self.columns]),
            path,
            lambda i: f"{self.row} {shown(names[i], 200) if names else i + 1} of {path}",
        )
        found = read_table(table, self.reading, needs_candidates=needs_candidates, **how)
        urls = None
        if self.urls is not None:
            urls = np.asarray([self.urls[name] for name in found.ids.tolist()], dtype=object)
        return replace(found, columns=self.fields, urls=urls, notes=self.notes)


def skipped(n: int, total: int, what: str, why: str) -> tuple[str, ...]:
    """A sentence about the examples that were skipped, if there are any."""
    have = "it has" if n == 1 else "they have"
    sentence = f"{n:,} of {counted(total, what)} {are(n)} skipped because {have} {why}."
    return (sentence,) if n else ()
