"""Open: the examples of any file that ltpll reads, of labelling tools, detectors and MATLAB as well as tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ltpll.candidates.scores import tempered
from ltpll.convert.json_formats import read_json
from ltpll.convert.json_stream import JSON_SUFFIXES
from ltpll.convert.matlab import mat_candidates, read_mat
from ltpll.errors import InputError, shown
from ltpll.tables.label_table import LabelTable
from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import DEFAULT_READING, Reading, fits
from ltpll.tables.streaming import ReadProgress


def read_label_table(
    path: Path | Any,
    reading: Reading = DEFAULT_READING,
    *,
    needs_candidates: bool = True,
    exact: bool = False,
    on_progress: ReadProgress | None = None,
) -> LabelTable:
    """Read a table, a .mat file, or JSON of a labelling tool or detector.

    The arguments, what is returned and the errors are those of `read_table`.
    """
    kind = Path(path).suffix.lower() if isinstance(path, (str, Path)) else ""
    if kind in JSON_SUFFIXES:
        reading.check(is_json=True)
        found = read_json(
            Path(path), reading, needs_candidates=needs_candidates, on_progress=on_progress
        )
        return _with_score_weights(found, reading)
    if kind == ".mat":
        reading.check()
        return _read_mat_table(Path(path), reading, needs_candidates, exact)
    return read_table(
        path, reading, needs_candidates=needs_candidates, exact=exact, on_progress=on_progress
    )


def _with_score_weights(found: LabelTable, reading: Reading) -> LabelTable:
    """Weigh candidates by their scores as those in the cells of a table; votes stay as they are."""
    candidates = found.candidates
    if candidates is None or candidates.weights is None or found.votes is not None:
        return found
    weights = None if reading.scores == "none" else tempered(candidates.weights.numpy())
    return replace(found, candidates=candidates.with_weights(weights))


def _read_mat_table(
    path: Path, reading: Reading, needs_candidates: bool, exact: bool
) -> LabelTable:
    """Classes are called 1, 2, … unless names are given, and features data_1, data_2, …."""
    if (
        reading.class_columns
        or reading.probability_columns
        or reading.annotators
        or reading.group is not None
    ):
        raise InputError(
            f"{path} holds arrays, not columns: omit class_columns, probability_columns, annotators and group."
        )
    if reading.changed_set_rules():
        raise InputError(
            f"{path} holds arrays, not cells with names: omit {reading.changed_set_rules()[0]}."
        )
    found = read_mat(path, needs_candidates=needs_candidates, exact=exact)
    names = [f"data_{j + 1}" for j in range(found.features.shape[1])]
    features, chosen = found.features, tuple(names)
    if reading.ignore or (reading.features is not None and reading.features != chosen):
        wanted = chosen if reading.features is None else reading.features
        wanted = tuple(
            dict.fromkeys(
                found
                for name in wanted
                for found in [one for one in names if fits(one, name)] or [name]
            )
        )
        unknown = next(
            (
                name
                for name in (*wanted, *reading.ignore)
                if not any(fits(one, name) for one in names)
            ),
            None,
        )
        if unknown is not None:
            raise InputError(
                f"{path} has no feature called {shown(unknown)}: its features are {names[0]} to {names[-1]}."
            )
        chosen = tuple(
            name for name in wanted if not any(fits(name, pattern) for pattern in reading.ignore)
        )
        features = features[:, [names.index(name) for name in chosen]]
    candidates = None if found.candidates is None else mat_candidates(path, found, reading.classes)
    if (
        found.labels is not None
        and reading.classes is not None
        and found.labels.max() >= len(reading.classes)
    ):
        raise InputError(
            f"The array 'target' of {path} names class {found.labels.max() + 1}, but there are {len(reading.classes)} classes."
        )
    ids = np.asarray([str(i + 1) for i in range(len(features))], dtype=object)
    return LabelTable(
        ids, candidates, found.labels, None, None, features if chosen else None, chosen, None
    )
