"""Dataset: a user's table, joined with the pictures or features that belong to it, as arrays for training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ltpll.backbones import Backbone, Preprocessing
from ltpll.candidates import Candidates
from ltpll.cleaning.results import CleanedTable
from ltpll.convert.json_stream import JSON_SUFFIXES
from ltpll.convert.open import read_label_table
from ltpll.errors import InputError, shown
from ltpll.formatting import counted, format_names
from ltpll.pictures.cache import cache_root
from ltpll.pictures.embedding import embedded_pictures
from ltpll.pictures.on_disk import stored_pictures
from ltpll.pictures.output import read_rows
from ltpll.pictures.sizes import suitable_side
from ltpll.tables.columns import id_key
from ltpll.tables.label_table import LabelTable
from ltpll.tables.numpy_files import ARRAY_SUFFIXES as ARRAYS
from ltpll.tables.numpy_files import read_array
from ltpll.tables.reading import Reading
from ltpll.tables.streaming import TABLE_SUFFIXES, open_table
from ltpll.validation import as_inputs

TRAINING, HELD_OUT = (
    ("train", "training"),
    ("test", "val", "valid", "validation", "dev", "eval", "holdout", "held-out"),
)
IDS = "ids"  # the array of an .npz file that names the rows of the others
ReadingProgress = Callable[[str, int, int], None]
"""Called with what is being read ("table" or "pictures"), how much of it has been read, and how much there is."""


@dataclass(frozen=True)
class TableSource:
    """Where examples are read from: a table, and a folder of pictures or a file of features if the table itself has no features.

    Args:
        table: A .csv, .tsv, .parquet or .mat file, or JSON of a labelling tool or detector.
        reading: The table's columns, and how candidate sets are written in them.
        images: The folder of the pictures that the table names.
        features: A second table with the same ids, or an .npy or .npz array, joined by the ids in the .npz file or in the table that
            `ltpll embed` wrote beside the .npy file, and otherwise in the table's order.
        preprocessing: How pictures are scaled; None for squares whose size follows the pictures, at most 128 pixels.
        backbone: A pretrained network whose features of the pictures are the examples; None for the pictures themselves.
        on_error: What to do with pictures that cannot be read: "stop" or "skip".
        exact: Whether features are float64, because those of the training were; by default only if float32 would blur them.
    """

    table: Path
    reading: Reading = field(default_factory=Reading)
    images: Path | None = None
    features: Path | None = None
    preprocessing: Preprocessing | None = None
    backbone: Backbone | None = None
    on_error: str = "stop"
    exact: bool = False


@dataclass(frozen=True)
class Examples:
    """The examples of a table: row i of `table` and of `x` belong together.

    `problems` lists the skipped pictures, each with the reason. `start` has the target of each candidate from which training starts, if it
    does not start from the candidates' weights.
    """

    table: LabelTable
    x: npt.NDArray[
        Any
    ]  # float32 or, if that would blur them, float64 (N, d), or uint8 (N, side, side, 3)
    problems: list[tuple[str, str]]
    start: npt.NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.table)

    @property
    def candidates(self) -> Candidates:
        """The candidate sets; only of a source that was read with `needs_candidates`."""
        assert self.table.candidates is not None
        return self.table.candidates

    def training(self) -> npt.NDArray[np.bool_]:
        """A mask of the rows to train on: all of them, unless the table has a column of splits.

        Raises:
            InputError: A split is neither for training nor for testing.
        """
        splits = self.table.splits
        if splits is None:
            return np.ones(len(self), dtype=bool)
        words = {split: split.strip().lower() for split in set(splits.tolist())}
        unknown = next(
            (split for split, word in words.items() if word not in (*TRAINING, *HELD_OUT)), None
        )
        if unknown is not None:
            raise InputError(
                f"A split is called {shown(unknown)}: write train for rows to train on, and test (or val) for rows to evaluate on."
            )
        return np.asarray([words[split] in TRAINING for split in splits.tolist()])

    def fingerprint(self) -> str:
        """A hash of everything that training sees, so that a run is never resumed with other data."""
        digest = hashlib.sha256(
            repr((self.x.shape, self.x.dtype.str, self.candidates.classes)).encode()
        )
        sets = self.candidates
        groups, weights = (
            None if part is None else part.numpy() for part in (sets.groups, sets.weights)
        )
        known = (self.table.labels, groups, weights, self.table.reviewed, self.start)
        for array in (self.x, sets.offsets.numpy(), sets.labels.numpy(), self.training(), *known):
            if array is not None:
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]

    def fingerprint_of_texts(self) -> str:
        """A hash of what training does not see, but a run stores beside its labels: ids, paths, groups, annotators, names of features."""
        votes = self.table.votes
        given = (
            []
            if votes is None
            else [
                votes.names,
                *(part.tolist() for part in (votes.rows, votes.annotators, votes.labels)),
            ]
        )
        texts = [*texts_of_rows(self.table), self.table.feature_names, *given]
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]


def texts_of_rows(table: LabelTable | CleanedTable) -> list[list[str] | None]:
    """The columns of a table, or of a run, that name its rows."""
    columns = (table.ids, table.paths, table.splits, table.groups, table.urls)
    return [None if column is None else column.tolist() for column in columns]


def read_examples(
    source: TableSource,
    *,
    needs_candidates: bool = True,
    device: str = "auto",
    on_progress: ReadingProgress | None = None,
) -> Examples:
    """Read and check a table and its pictures or features.

    Args:
        source: What to read.
        needs_candidates: Whether a table without candidate sets is an error.
        device: Where a backbone runs: "cpu", "cuda" or "auto".
        on_progress: Called several times while the table and the pictures are read.

    Returns:
        The examples, in the table's order.

    Raises:
        InputError: Something cannot be read, or the parts do not match.

    Examples:
        >>> examples = read_examples(TableSource(Path("birds.csv")))
        >>> examples.x.shape, examples.candidates.n_classes
        ((60, 2), 3)
    """
    if source.images is not None and source.features is not None:
        raise InputError(
            "Examples are either pictures or features: give one of --images and --features."
        )
    if source.backbone is not None and source.images is None:
        raise InputError(
            "A backbone computes features of pictures: give their folder with --images, or leave --backbone out."
        )
    inside = source.images is None and source.features is None
    if source.reading.features is not None and (
        source.images is not None or is_array(source.features)
    ):
        beside = "pictures" if source.images is not None else f"the array {source.features}"
        raise InputError(
            f"table.features chooses columns of a table, but the features come from {beside}: leave it out."
        )
    reading = source.reading if inside else replace(source.reading, features=())

    def progress_of(what: str) -> Callable[[int, int], None] | None:
        return None if on_progress is None else lambda done, total: on_progress(what, done, total)

    table = read_label_table(
        source.table,
        reading,
        needs_candidates=needs_candidates,
        exact=source.exact,
        on_progress=progress_of("table"),
    )
    if source.images is not None:
        # Tables of annotations rarely have a column of paths; their tasks may be the paths.
        paths = table.ids if table.paths is None else table.paths
        # Detectors write the paths that they were given, often absolute ones.
        folder = f"{source.images.absolute().as_posix()}/"
        inside_folder = [path.removeprefix(folder) for path in paths.tolist()]
        paths = np.asarray(inside_folder, dtype=object)
        table = table if table.paths is None else replace(table, paths=paths)
        how: dict[str, Any] = {"on_error": source.on_error, "on_progress": progress_of("pictures")}
        if source.backbone is not None:
            embedded = embedded_pictures(
                source.images,
                paths.tolist(),
                source.backbone,
                cache=cache_root(),
                device=device,
                **how,
            )
            return Examples(
                table if not embedded.problems else table.select(embedded.kept),
                embedded.features,
                embedded.problems,
            )
        preprocessing = source.preprocessing or Preprocessing(
            suitable_side(source.images, paths.tolist())
        )
        found = stored_pictures(source.images, paths.tolist(), preprocessing, **how)
        return Examples(
            table if not found.problems else table.select(found.kept), found.images, found.problems
        )
    if source.features is not None:
        return _with_features(source, source.features, table)
    if table.features is None:
        raise InputError(
            f"{source.table} has no columns of numbers to train on: give --images DIR or --features FILE, or add columns of features."
        )
    return Examples(table, _checked(table.features, "table's", source), [])


def is_array(path: Path | None) -> bool:
    """Whether a file of features is an array, which has neither ids nor column names."""
    return path is not None and path.suffix.lower() in ARRAYS


def _with_features(source: TableSource, path: Path, table: LabelTable) -> Examples:
    """The examples of a table with the features in a file, which are joined by id wherever both have ids."""
    numbered = (
        source.table.suffix.lower() not in JSON_SUFFIXES
        and not {"id", "path", "task"} & table.columns.keys()
    )
    feature_names: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    names: Mapping[str, Sequence[str]]
    if path.suffix.lower() in TABLE_SUFFIXES:
        x, other = _feature_table(source, path, table)
        names = {"id": other.ids.tolist()} if {"id", "path"} & other.columns.keys() else {}
        feature_names, left_out = other.feature_names, other.left_out
        if not names and not numbered:
            raise InputError(
                f"{path} has no column {shown(Reading.id)} to join the features by: add it, with the ids of the table."
            )
    else:
        x, names = _feature_array(path)
        names = {} if numbered else names
    if not names:
        if len(x) != len(table):
            raise InputError(
                f"{path} has {counted(len(x), 'row')}, but the table has {counted(len(table), 'example')}: give one row per example, "
                "in the same order."
            )
        note = f"{path} has no ids, so its rows are taken in the order of {source.table}."
        if numbered:
            note = f"{source.table} has no ids, so the rows of {path} are taken in its order."
        table = replace(table, notes=(*table.notes, note))
    else:
        x = x[_rows_of_examples(path, names, table)]
    x = _checked(x, "given", source)
    return Examples(replace(table, feature_names=feature_names, left_out=left_out), x, [])


def _checked(x: Any, what: str, source: TableSource) -> npt.NDArray[Any]:
    return as_inputs(x, what, torch.float64 if source.exact else None).numpy()


def _feature_table(
    source: TableSource, path: Path, table: LabelTable
) -> tuple[npt.NDArray[Any], LabelTable]:
    reading, present = source.reading, open_table(path).names
    group, label = (
        name if name in present else None for name in (reading.group, reading.label)
    )  # there, too, they are not features
    ids = next(
        (name for name in (reading.id, table.columns.get("task"), Reading.id) if name in present),
        reading.id,
    )
    how = Reading(
        id=ids, features=reading.features, ignore=reading.ignore, group=group, label=label
    )
    other = read_label_table(path, how, needs_candidates=False, exact=source.exact)
    if other.features is None:
        raise InputError(f"{path} has no columns of numbers to train on: add columns of features.")
    return other.features, other


def _rows_of_examples(
    path: Path, names: Mapping[str, Sequence[str]], table: LabelTable
) -> npt.NDArray[np.int64]:
    """The row of each example in a file of features, by whichever of its ids and paths are those of the most examples.

    Args:
        path: The file, for messages.
        names: The ids, the paths, or both, of the rows of the file.
        table: The examples.
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
            twice = (
                next((name for i, name in enumerate(written) if place[name] != i), None)
                if what == "id"
                else None
            )
            if twice is not None:
                raise InputError(
                    f"{path} has several rows with the id {shown(twice)}: keep one of them."
                )
    missing = np.flatnonzero(best < 0)
    if len(missing):
        few = format_names([str(table.ids[i]) for i in missing])
        raise InputError(
            f"{path} lacks the features of {len(missing)} of {len(table)} examples ({few}): add rows with these ids, or drop the examples."
        )
    return best


def _feature_array(path: Path) -> tuple[npt.NDArray[Any], Mapping[str, Sequence[str]]]:
    """An array of features, and the names of its rows, if they are known."""
    array, ids = _array(path)
    if array.ndim != 2:
        raise InputError(
            f"The array in {path} has shape {array.shape}: it must have one row per example and one column per feature."
        )
    if ids is None:
        return array, read_rows(path, len(array))
    if ids.shape != array.shape[:1]:
        raise InputError(
            f"{path} has {counted(len(array), 'row')} of features, but ids of shape {ids.shape}: give one id per row."
        )
    return array, {"id": [str(name) for name in ids.tolist()]}


def _array(path: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    """The features in a file, and the ids beside them in an .npz file."""
    if not is_array(path):
        raise InputError(
            f"Features are read from .npy, .npz, {', '.join(TABLE_SUFFIXES)}, not from {path.name}."
        )
    found: Sequence[str] = ()

    def choose(names: Sequence[str]) -> str:
        nonlocal found
        found, others = names, [name for name in names if name != IDS]
        if len(others) != 1 and "features" not in names:
            raise InputError(
                f"{path} holds the arrays {format_names(names)}: call the one to train on 'features'."
            )
        return "features" if "features" in names else others[0]

    array = read_array(path, choose)
    return array, read_array(path, lambda _: IDS) if IDS in found else None
