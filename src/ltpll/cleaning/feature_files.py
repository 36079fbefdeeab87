"""Feature files: tables and arrays of features, joined with the examples of another table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.convert.json_formats import is_tool_file
from ltpll.errors import InputError, shown
from ltpll.formatting import counted, format_names
from ltpll.pictures.output import read_picture_names
from ltpll.tables.columns import id_key
from ltpll.tables.label_table import LabelTable
from ltpll.tables.numpy_files import ARRAY_SUFFIXES, read_array
from ltpll.tables.opening import READABLE, open_table
from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import Reading

IDS = "ids"  # the array of an .npz file that names the rows of the others
Names = Mapping[str, Sequence[str]]


def is_array(path: Path | None) -> bool:
    """Whether a file of features is an array, which has neither ids nor column names."""
    return path is not None and path.suffix.lower() in ARRAY_SUFFIXES


def feature_rows(
    table_path: Path, path: Path, reading: Reading, table: LabelTable, *, exact: bool
) -> tuple[npt.NDArray[Any], LabelTable]:
    """The features in a file, in the order of a table; joined by id wherever both have ids.

    Args:
        table_path: The file of the table.
        path: The file of features.
        reading: How the table is read.
        table: The table.
        exact: Whether features are float64 in any case.

    Returns:
        The features, (N, d), and the table with their names and with notes.

    Raises:
        InputError: The file cannot be read, or does not have the features of each example.
    """
    has_ids = bool({"id", "path", "task"} & table.columns.keys())
    has_ids |= is_tool_file(table_path)
    names: Names
    if path.suffix.lower() in READABLE:
        other = _read_feature_table(path, reading, table, exact)
        assert other.features is not None
        x = other.features
        names = {"id": other.ids.tolist()} if {"id", "path"} & other.columns.keys() else {}
        table = replace(table, feature_names=other.feature_names, left_out=other.left_out)
        table = replace(table, notes=(*table.notes, *other.notes))
        if has_ids and not names:
            problem = f"{path} has no column {shown(Reading.id)} to join the features by"
            raise InputError(f"{problem}: add it, with the ids of the table.")
    else:
        x, names = _read_feature_array(path)
        names = names if has_ids else {}
        table = replace(table, feature_names=(), left_out=())
    if names:
        return x[_rows_of_examples(path, names, table)], table
    if len(x) != len(table):
        raise InputError(
            f"{path} has {counted(len(x), 'row')}, but the table has "
            f"{counted(len(table), 'example')}: give one row per example, in the same order."
        )
    note = f"{table_path} has no ids, so the rows of {path} are taken in its order."
    if has_ids:
        note = f"{path} has no ids, so its rows are taken in the order of {table_path}."
    return x, replace(table, notes=(*table.notes, note))


def _read_feature_table(path: Path, reading: Reading, table: LabelTable, exact: bool) -> LabelTable:
    present = open_table(path).names
    # The group and the label are no features there, too.
    roles = (reading.group, reading.label)
    group, label = (name if name in present else None for name in roles)
    ids = (reading.id, table.columns.get("task"), Reading.id)
    how = Reading(
        id=next((name for name in ids if name in present), reading.id),
        features=reading.features,
        ignore=reading.ignore,
        group=group,
        label=label,
    )
    other = read_table(path, how, needs_candidates=False, exact=exact)
    if other.features is None:
        raise InputError(f"{path} has no columns of numbers to train on: add columns of features.")
    return other


def _rows_of_examples(path: Path, names: Names, table: LabelTable) -> npt.NDArray[np.int64]:
    """The row of each example in a file of features.

    Rows are found by whichever of their ids and paths are those of the most examples.
    """
    best = np.full(len(table), -1, dtype=np.int64)
    for what, of_rows in names.items():
        for own in (table.ids, table.paths):
            known = [] if own is None else [id_key(name) for name in own.tolist()]
            written = [id_key(name) for name in of_rows]
            place = {name: i for i, name in reversed(list(enumerate(written)))}
            rows = np.asarray([place.get(name, -1) for name in known], dtype=np.int64)
            if (rows >= 0).sum() <= (best >= 0).sum():
                continue
            best = rows
            # Rows with the same path have the same picture.
            repeated = (name for i, name in enumerate(written) if place[name] != i)
            if what == "id" and (twice := next(repeated, None)) is not None:
                problem = f"{path} has several rows with the id {shown(twice)}"
                raise InputError(f"{problem}: keep one of them.")
    missing = np.flatnonzero(best < 0)
    if len(missing):
        few = format_names([str(table.ids[i]) for i in missing])
        raise InputError(
            f"{path} lacks the features of {len(missing)} of {len(table)} examples ({few}): add "
            "rows with these ids, or drop the examples."
        )
    return best


def _read_feature_array(path: Path) -> tuple[npt.NDArray[Any], Names]:
    """An array of features, and the names of its rows, if they are known."""
    if not is_array(path):
        suffixes = ", ".join(READABLE)
        raise InputError(f"Features are read from .npy, .npz, {suffixes}, not from {path.name}.")
    found: Sequence[str] = ()

    def choose(names: Sequence[str]) -> str:
        nonlocal found
        found, others = names, [name for name in names if name != IDS]
        if len(others) != 1 and "features" not in names:
            problem = f"{path} holds the arrays {format_names(names)}"
            raise InputError(f"{problem}: call the one to train on 'features'.")
        return "features" if "features" in names else others[0]

    array = read_array(path, choose)
    if array.ndim != 2:
        raise InputError(
            f"The array in {path} has shape {array.shape}: it must have one row per example and "
            "one column per feature."
        )
    if IDS not in found:
        return array, read_picture_names(path, len(array))
    ids = read_array(path, lambda _: IDS)
    if ids.shape != array.shape[:1]:
        raise InputError(
            f"{path} has {counted(len(array), 'row')} of features, but ids of shape {ids.shape}: "
            "give one id per row."
        )
    return array, {"id": [str(name) for name in ids.tolist()]}
