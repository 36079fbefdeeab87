"""Examples: a user's table and the pictures or features that belong to it, as arrays that training takes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.data.readers.numpy_files import ARRAY_SUFFIXES as ARRAYS
from ltpll.data.readers.numpy_files import read_array
from ltpll.data.readers.pictures import read_pictures
from ltpll.data.readers.streaming import TABLE_SUFFIXES, listed
from ltpll.data.readers.tables import LabelTable, Reading, read_table
from ltpll.errors import InputError, shown
from ltpll.validation import as_inputs

TRAINING, HELD_OUT = ("train", "training"), ("test", "val", "valid", "validation", "dev", "eval", "holdout", "held-out")
Progress = Callable[[str, int, int], None]
"""Called with what is being read, how much of it is done and how much there is."""


@dataclass(frozen=True)
class Source:
    """Where examples are: a table and how to read it, and a folder of pictures or a file of features beside it."""

    table: Path
    reading: Reading
    images: Path | None = None
    features: Path | None = None
    side: int = 32  # to which pictures are scaled
    on_error: str = "stop"  # or "skip": what to do about pictures that cannot be read


@dataclass(frozen=True)
class Examples:
    """What a source holds, row by row; `problems` names the pictures that were skipped, each with a reason."""

    table: LabelTable
    x: npt.NDArray[Any]  # float32 (N, d), or uint8 (N, side, side, 3)
    problems: list[tuple[str, str]]

    def __len__(self) -> int:
        return len(self.table)

    @property
    def candidates(self) -> Candidates:
        """Of a source that was read with them."""
        assert self.table.candidates is not None
        return self.table.candidates

    def training(self) -> npt.NDArray[np.bool_]:
        """Which rows to train on: all, or those that the column of splits says."""
        splits = self.table.splits
        if splits is None:
            return np.ones(len(self), dtype=bool)
        said = {split: split.strip().lower() for split in set(splits.tolist())}
        unknown = next((split for split, word in said.items() if word not in (*TRAINING, *HELD_OUT)), None)
        if unknown is not None:
            raise InputError(
                f"A split is called {shown(unknown)}: write train for rows to learn from, and test (or val) for rows to judge by."
            )
        return np.asarray([said[split] in TRAINING for split in splits.tolist()])

    def fingerprint(self) -> str:
        """A hash of everything that a training sees, so that one is never taken up with other data."""
        digest = hashlib.sha256(repr((self.x.shape, self.x.dtype.str, self.candidates.classes)).encode())
        for array in (self.x, self.candidates.offsets.numpy(), self.candidates.labels.numpy(), self.training(), self.table.labels):
            if array is not None:
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]


def read_examples(source: Source, *, needs_candidates: bool = True, on_progress: Progress | None = None) -> Examples:
    """Read and check everything, before anything is trained or written."""
    if source.images is not None and source.features is not None:
        raise InputError("Examples are pictures or features: give one of --images and --features.")
    inside = source.images is None and source.features is None
    if source.reading.features is not None and (source.images is not None or is_array(source.features)):
        beside = "pictures" if source.images is not None else f"the array {source.features}"
        raise InputError(f"--feature-column chooses columns of a table, but the features come from {beside}: leave it out.")
    reading = source.reading if inside else replace(source.reading, features=())

    def told(what: str) -> Callable[[int, int], None] | None:
        return None if on_progress is None else lambda done, total: on_progress(what, done, total)

    table = read_table(source.table, reading, needs_candidates=needs_candidates, on_progress=told("table"))
    if source.images is not None:
        # Of annotations, where a column of paths is unusual, the tasks may be the paths themselves.
        paths = table.ids if table.paths is None else table.paths
        found = read_pictures(source.images, paths.tolist(), source.side, on_error=source.on_error, on_progress=told("pictures"))
        return Examples(table if not found.problems else table.select(found.kept), found.images, found.problems)
    if source.features is not None:
        x, names, left_out = _features_beside(source.features, table, source.reading)
        return Examples(replace(table, feature_names=names, left_out=left_out), x, [])
    if table.features is None:
        raise InputError(
            f"{source.table} has no columns of numbers to learn from: give --images DIR or --features FILE, or add columns of features."
        )
    return Examples(table, as_inputs(table.features, "table's").numpy(), [])


def is_array(path: Path | None) -> bool:
    """Whether a file of features holds an array, whose rows have no ids and whose columns no names."""
    return path is not None and path.suffix.lower() in ARRAYS


def _features_beside(path: Path, table: LabelTable, reading: Reading) -> tuple[npt.NDArray[np.float32], tuple[str, ...], tuple[str, ...]]:
    """Rows in the table's order: of an array as they come, of a table by their ids; names of the columns, and of those left out."""
    if path.suffix.lower() in TABLE_SUFFIXES:
        other = read_table(path, Reading(id=reading.id, features=reading.features), needs_candidates=False)
        if other.features is None:
            raise InputError(f"{path} has no columns of numbers to learn from.")
        position = {name: i for i, name in enumerate(other.ids.tolist())}
        rows = np.asarray([position.get(name, -1) for name in table.ids.tolist()])
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            names = listed([str(table.ids[i]) for i in missing])
            raise InputError(f"{path} has no features of {len(missing)} of {len(table)} examples ({names}): add rows with these ids.")
        return as_inputs(other.features[rows], "given").numpy(), other.feature_names, other.left_out
    array = _array(path)
    if array.ndim != 2:
        raise InputError(
            f"The array in {path} has shape {array.shape}: features have a row for each example and a column for each feature."
        )
    if len(array) != len(table):
        raise InputError(
            f"{path} has {len(array)} rows, but the table has {len(table)} examples: they must be the same, in the same order."
        )
    return as_inputs(array, "given").numpy(), (), ()


def _array(path: Path) -> npt.NDArray[Any]:
    if not is_array(path):
        raise InputError(f"Features are read from .npy, .npz, {', '.join(TABLE_SUFFIXES)}, not from {path.name}.")

    def choose(names: Sequence[str]) -> str:
        if len(names) != 1 and "features" not in names:
            raise InputError(f"{path} holds the arrays {listed(names)}: call the one to learn from 'features'.")
        return "features" if "features" in names else names[0]

    return read_array(path, choose)
