"""Plain tables: the examples of labelling tools, detectors and MATLAB files as columns."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ltpll.candidates import Candidates
from ltpll.candidates.cells import SEPARATOR
from ltpll.convert.json_formats import read_json
from ltpll.convert.json_stream import JSON_SUFFIXES
from ltpll.convert.open import read_label_table
from ltpll.errors import InputError
from ltpll.formatting import counted, format_names
from ltpll.tables.label_table import LabelTable
from ltpll.tables.reading import Reading
from ltpll.tables.streaming import ReadProgress

# Names that mean nothing else in a cell; others are written as JSON.
PLAIN_NAME = re.compile(r"\w[\w .()-]*")


class PlainTable(NamedTuple):
    """The columns of a table, and what to know about it."""

    columns: dict[str, Any]
    reading: Reading  # how training reads it
    notes: tuple[str, ...]


def read_as_plain_table(
    path: Path, reading: Reading, on_progress: ReadProgress | None = None
) -> PlainTable:
    """Read a file of another program as a table with the same examples, sets and labels.

    Where the file has scores, candidates are written with them, as in `fox:0.6|dog:0.3`. Where it
    has votes of annotators, the table has one row for each vote.

    Args:
        path: JSON of a labelling tool or detector, or a .mat file.
        reading: The options of its format.
        on_progress: Called with the number of bytes read so far and the total.

    Raises:
        InputError: The file cannot be read, or is a table already.
    """
    kind = path.suffix.lower()
    if kind in JSON_SUFFIXES:
        reading.check(is_json=True)
        found = read_json(path, reading, on_progress=on_progress)
    elif kind == ".mat":
        found = read_label_table(path, reading)
    else:
        raise InputError(
            f"{path} is not a file of a labelling tool, a detector or MATLAB (.json, .jsonl, "
            ".ndjson, .mat): tables are read by ltpll train as they are."
        )
    return _annotations(found) if found.votes is not None else _examples(found)


def _examples(table: LabelTable) -> PlainTable:
    """One row per example."""
    sets = table.candidates
    assert sets is not None
    columns: dict[str, Any] = {"id": table.ids, "path": table.paths, "candidates": _cells(sets)}
    notes = table.notes
    unused = np.flatnonzero(sets.counts().numpy() == 0)
    if len(unused):
        names = format_names([str(sets.classes[label]) for label in unused], 3)
        n = counted(len(unused), "class", "classes")
        notes += (f"The sets never name {n}, which the table leaves out: {names}.",)
    if table.labels is not None:
        labels = np.where(np.isin(table.labels, unused), -1, table.labels)
        columns["label"] = _names(sets, labels)
    columns["group"] = table.groups
    if table.features is not None:
        columns |= {f"f{i + 1}": column for i, column in enumerate(table.features.T)}
    reading = Reading(group=None if table.groups is None else "group")
    return PlainTable(_given(columns), reading, notes)


def _annotations(table: LabelTable) -> PlainTable:
    """One row per vote."""
    votes, sets = table.votes, table.candidates
    assert votes is not None
    assert sets is not None
    columns = {
        "task": table.ids[votes.rows],
        "worker": np.asarray(votes.names, dtype=object)[votes.annotators],
        "annotation": _names(sets, votes.labels),
        "path": None if table.paths is None else table.paths[votes.rows],
        "label": None if table.labels is None else _names(sets, table.labels[votes.rows]),
    }
    # Which of two columns holds the annotations is never guessed.
    annotation = None if table.labels is None else "annotation"
    reading = Reading(annotators="union", annotation=annotation)
    return PlainTable(_given(columns), reading, table.notes)


def _given(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: values for name, values in columns.items() if values is not None}


def _names(sets: Candidates, labels: Any) -> list[str | None]:
    return [None if label < 0 else str(sets.classes[label]) for label in labels.tolist()]


def _cells(sets: Candidates) -> list[str]:
    """The sets as text; scores are written so that the same number is read back."""
    names = [str(name) for name in sets.classes]
    plain = all(PLAIN_NAME.fullmatch(name) for name in names)
    labels = [names[label] for label in sets.labels.tolist()]
    rows = list(pairwise(sets.offsets.tolist()))
    if sets.weights is None:
        texts = [labels[start:end] for start, end in rows]
        return [SEPARATOR.join(row) if plain else _as_json(row) for row in texts]
    scores = sets.weights.tolist()
    if plain:
        entries = [f"{name}:{score!r}" for name, score in zip(labels, scores, strict=True)]
        return [SEPARATOR.join(entries[start:end]) for start, end in rows]
    pairs = list(zip(labels, scores, strict=True))
    return [_as_json(dict(pairs[start:end])) for start, end in rows]


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
