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
from ltpll.convert.json_formats import is_tool_file, read_json
from ltpll.convert.open import read_label_table
from ltpll.errors import InputError
from ltpll.formatting import counted, format_names
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
    if is_tool_file(path):
        reading.check(is_json=True)
        found = read_json(path, reading, on_progress=on_progress)
    elif kind == ".mat":
        found = read_label_table(path, reading)
    else:
        raise InputError(
            f"{path} is not a file of a labelling tool, a detector or MATLAB (.json, .jsonl, "
            ".ndjson, .mat): tables are read by ltpll train as they are."
        )
    sets, votes = found.candidates, found.votes
    assert sets is not None
    names = np.asarray([*map(str, sets.classes), None], dtype=object)  # −1 is an unknown label
    unused = np.flatnonzero(sets.rows_per_class().numpy() == 0)
    labels = found.labels
    columns: dict[str, Any] = {
        "path": found.paths,
        "label": None if labels is None else names[np.where(np.isin(labels, unused), -1, labels)],
        "group": found.groups,
    }
    columns = {name: values for name, values in columns.items() if values is not None}
    group = "group" if "group" in columns else None
    if votes is not None:
        columns = {name: values[votes.rows] for name, values in columns.items()}
        workers = np.asarray(votes.names, dtype=object)[votes.annotators]
        first = {
            "task": found.ids[votes.rows],
            "worker": workers,
            "annotation": names[votes.labels],
        }
        # Which of two columns holds the annotations is never guessed.
        annotation = "annotation" if "label" in columns else None
        how = Reading(annotators="union", annotation=annotation, group=group)
        return PlainTable(first | columns, how, found.notes)
    columns = {"id": found.ids, "candidates": _cells(sets), **columns}
    if found.features is not None:
        columns |= {f"f{i + 1}": column for i, column in enumerate(found.features.T)}
    notes = found.notes
    if len(unused):
        some, n = format_names(names[unused].tolist(), 3), counted(len(unused), "class", "classes")
        notes += (f"The sets never name {n}, which the table leaves out: {some}.",)
    return PlainTable(columns, Reading(group=group), notes)


def _cells(sets: Candidates) -> list[str]:
    """The sets as text; scores are written so that the same numbers are read back."""
    classes = [str(name) for name in sets.classes]
    plain = all(PLAIN_NAME.fullmatch(name) for name in classes)
    names = [classes[label] for label in sets.labels.tolist()]
    scores = None if sets.weights is None else sets.weights.tolist()
    texts = names
    if scores is not None:
        texts = [f"{name}:{score!r}" for name, score in zip(names, scores, strict=True)]
    cells = []
    for start, end in pairwise(sets.offsets.tolist()):
        if plain:
            cells.append(SEPARATOR.join(texts[start:end]))
        else:
            row: Any = names[start:end]
            row = row if scores is None else dict(zip(row, scores[start:end], strict=True))
            cells.append(json.dumps(row, ensure_ascii=False))
    return cells
