"""Dataset: a table, joined with its pictures or features, as arrays for training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ltpll.cleaning.results import CleanedTable
from ltpll.convert.open import is_tool_file, read_label_table
from ltpll.errors import InputError, shown
from ltpll.formatting import counted, format_names
from ltpll.pictures.cache import embedding_cache_folder
from ltpll.pictures.output import read_picture_names
from ltpll.tables.columns import id_key
from ltpll.tables.opening import ARRAY_SUFFIXES, READABLE, open_table, read_array
from ltpll.tables.read_tables import LabelTable, read_table
from ltpll.tables.reading import HELD_OUT, TRAINING, Reading
from ltpll.tables.streaming import TABLE_SUFFIXES

if TYPE_CHECKING:  # what is wrong with a table is told before torch and scikit-learn are imported
    from ltpll.backbones import Backbone, Preprocessing
    from ltpll.candidates import Candidates
    from ltpll.columns import ColumnEncoder

Names = Mapping[str, Sequence[str]]
ReadingProgress = Callable[[str, int, int], None]
"""Called with what is being read ("table", "pictures" or "texts"), how much was, and how much is."""


@dataclass(frozen=True)
class TableSource:
    """Where examples are read from: a table, and its pictures or features if it holds no features.

    The table may be a pattern for several; a .mat file; JSON of a labelling tool or detector; or a
    folder of pictures, which is also given as `images`. An `encoder` turns columns of any kind into numbers, and joins them with the
    features of pictures or of another file; it is fitted to the rows for training, unless it is
    already, and may be given as a function that makes it. Without one, such columns are refused or
    left out.
    """

    table: Path
    reading: Reading = field(default_factory=Reading)
    images: Path | None = None  # the folder of the pictures that the table names
    features: Path | None = None  # a second table, .npy or .npz, joined by ids or in order
    preprocessing: Preprocessing | None = None  # None: squares whose size follows the pictures
    backbone: Backbone | None = None  # its features of the pictures are the examples
    on_error: str = "stop"  # or "skip", at pictures that cannot be read
    exact: bool = False  # whether features are float64 even if float32 would not blur them
    encoder: ColumnEncoder | Callable[[], ColumnEncoder] | None = None


@dataclass(frozen=True)
class Examples:
    """The examples of a table: row i of `table` and of `x` belong together."""

    table: LabelTable  # without the rows whose pictures were skipped
    x: npt.NDArray[Any]  # float32 or, if that would blur them, float64; pictures: uint8, NHWC
    problems: list[tuple[str, str]]  # the skipped pictures, each with the reason
    encoder: ColumnEncoder | None = None  # what has turned columns of the table into `x`

    def __len__(self) -> int:
        return len(self.table)

    @property
    def candidates(self) -> Candidates:
        """The candidate sets; only of a source that was read with `needs_candidates`."""
        assert self.table.candidates is not None
        return self.table.candidates

    def training(self) -> npt.NDArray[np.bool_]:
        """A mask of the rows to train on: all of them, unless the table has a column of splits."""
        return _rows_to_train_on(self.table)

    def fingerprint(self) -> str:
        """A hash of everything that training sees: a run is never resumed with other data."""
        sets, shape = self.candidates, (self.x.shape, self.x.dtype.str)
        parts = (sets.groups, sets.weights)
        groups, weights = (None if part is None else part.numpy() for part in parts)
        known = (self.table.labels, groups, weights, self.table.reviewed)
        arrays = (self.x, sets.offsets.numpy(), sets.labels.numpy(), self.training(), *known)
        return _hash_of((*shape, sets.classes), arrays)

    def fingerprint_of_inputs(self) -> str:
        """A hash of the features and the rows to train on, whatever their sets are."""
        return _hash_of((self.x.shape, self.x.dtype.str), (self.x, self.training()))

    def fingerprint_of_texts(self) -> str:
        """A hash of what training does not see, but a run stores beside its labels."""
        texts: list[Any] = [*texts_of_rows(self.table), self.table.feature_names]
        if (frame := self.table.frame) is not None:
            from pandas.util import hash_pandas_object

            texts.append(hash_pandas_object(frame, index=False).to_numpy().tobytes().hex())
        if (votes := self.table.votes) is not None:
            texts.append(votes.names)
            texts += [part.tolist() for part in (votes.rows, votes.annotators, votes.labels)]
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]


def _hash_of(about: tuple[Any, ...], arrays: Sequence[npt.NDArray[Any] | None]) -> str:
    digest = hashlib.sha256(repr(about).encode())
    for array in arrays:
        if array is not None:
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _rows_to_train_on(table: LabelTable) -> npt.NDArray[np.bool_]:
    splits = table.splits
    if splits is None:
        return np.ones(len(table), dtype=bool)
    words = {split: split.strip().lower() for split in set(splits.tolist())}
    for split, word in words.items():
        if word not in (*TRAINING, *HELD_OUT):
            raise InputError(
                f"A split is called {shown(split)}: write train for rows to train on, and test "
                "(or val) for rows to evaluate on."
            )
    return np.asarray([words[split] in TRAINING for split in splits.tolist()])


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
    """Read and check a table and its pictures or features; examples are in the table's order.

    `on_progress` is called several times. A table without candidate sets is an error, unless they
    are not needed.

    Raises:
        InputError: Something cannot be read, or the parts do not match.

    Examples:
        >>> examples = read_examples(TableSource(Path("birds.csv")))
        >>> examples.x.shape, examples.candidates.n_classes
        ((60, 2), 3)
    """
    images, features, encoder = source.images, source.features, source.encoder
    inside, suffix = images is None and features is None, source.table.suffix.lower()
    joins = not inside and encoder is not None and suffix in TABLE_SUFFIXES
    apart = images is not None or is_array(features)
    chosen = source.reading.features
    if images is not None and features is not None:
        problem = "Examples are either pictures or features"
        raise InputError(f"{problem}: give one of --images and --features.")
    if source.backbone is not None and images is None:
        problem = "A backbone computes features of pictures: give their folder with --images"
        raise InputError(f"{problem}, or leave --backbone out.")
    if chosen is not None and apart and not joins:
        beside = "pictures" if images is not None else f"the array {features}"
        problem = f"table.features chooses columns of a table, but the features come from {beside}"
        raise InputError(f"{problem}: leave it out.")
    if joins and (known := getattr(encoder, "columns_", None)) is not None:
        chosen = tuple(known)
    elif not inside and not (joins and (apart or chosen is None)):
        chosen = ()  # or those of the second table

    def progress_of(what: str) -> Callable[[int, int], None] | None:
        return None if on_progress is None else lambda done, total: on_progress(what, done, total)

    table = read_label_table(
        source.table,
        replace(source.reading, features=chosen),
        needs_candidates=needs_candidates,
        exact=source.exact,
        every_kind=encoder is not None and (inside or joins),
        on_progress=progress_of("table"),
    )
    if callable(encoder):
        encoder = encoder()
    if encoder is not None:
        encoder.report_texts(progress_of("texts"))
    if inside:
        return _from_columns(source, table, encoder)
    frame = _frame(table)
    table = replace(table, frame=frame, features=None, feature_names=(), left_out=())
    if images is not None:
        found = _with_pictures(source, images, table, device, progress_of("pictures"))
    else:
        assert features is not None
        x, table = _features_of_rows(source, features, table)
        found = Examples(table, _as_numbers(x, source), [])
    frame = found.table.frame
    if frame is None or encoder is None:
        return found
    from ltpll.columns.encoder import NoColumnsError

    training = _rows_to_train_on(found.table)
    try:
        fitted = _fitted(encoder, frame[training])
    except NoColumnsError:
        return found
    encoded = fitted.transform(frame)
    if fitted is not encoder:
        fitted.fit_beside(found.x[training], encoded[training])
    return replace(found, x=fitted.join(found.x, encoded), encoder=fitted)


def _as_numbers(x: Any, source: TableSource) -> npt.NDArray[Any]:
    import torch

    from ltpll.validation import as_inputs

    return as_inputs(x, "given", torch.float64 if source.exact else None).numpy()


def _fitted(encoder: ColumnEncoder, frame: Any) -> ColumnEncoder:
    """The encoder, or a copy that is fitted to a DataFrame if it is not fitted yet."""
    from sklearn.base import clone

    return encoder if hasattr(encoder, "columns_") else clone(encoder).fit(frame)


def _from_columns(
    source: TableSource, table: LabelTable, encoder: ColumnEncoder | None
) -> Examples:
    """The examples of a table with columns of features, which an encoder makes numbers if need be.

    An encoder that is not fitted learns from the rows to train on.
    """
    if encoder is not None:
        asked = hasattr(encoder, "columns_") or encoder.kinds or encoder.numbers != "scaled"
        frame = _frame(table) if asked else table.frame
        if frame is not None:
            encoder = _fitted(encoder, frame[_rows_to_train_on(table)])
            table = replace(table, feature_names=tuple(encoder.columns_))
            return Examples(table, encoder.transform(frame), [], encoder=encoder)
    if table.features is None:
        raise InputError(
            f"{source.table} has no columns of numbers to train on: give --images DIR or "
            "--features FILE, or add columns of features."
        )
    return Examples(table, _as_numbers(table.features, source), [])


def _frame(table: LabelTable) -> Any:
    """The columns of features of a table as a DataFrame; None if there are none."""
    if table.frame is not None or table.features is None:
        return table.frame
    import pandas as pd

    return pd.DataFrame(table.features, columns=list(table.feature_names))


def _with_pictures(
    source: TableSource,
    images: Path,
    table: LabelTable,
    device: str,
    on_progress: Callable[[int, int], None] | None,
) -> Examples:
    """The examples of a table that are its pictures, or what a backbone makes of them."""
    # Tables of annotations rarely have a column of paths; their tasks may be the paths.
    named = table.ids if table.paths is None else table.paths
    # Detectors write the paths that they were given, often absolute ones.
    folder = f"{images.absolute().as_posix()}/"
    paths = [path.removeprefix(folder) for path in named.tolist()]
    if table.paths is not None:
        table = replace(table, paths=np.asarray(paths, dtype=object))
    how: dict[str, Any] = {"on_error": source.on_error, "on_progress": on_progress}
    if source.backbone is not None:
        from ltpll.pictures.embedding import embedded_pictures

        how |= {"cache": embedding_cache_folder(), "device": device}
        found = embedded_pictures(images, paths, source.backbone, **how)
    else:
        from ltpll.backbones import Preprocessing
        from ltpll.pictures.reading import read_pictures, suitable_side

        preprocessing = source.preprocessing or Preprocessing(suitable_side(images, paths))
        found = read_pictures(images, paths, preprocessing, **how)
    return Examples(table.select(found.kept) if found.problems else table, found.x, found.problems)


# ---- features in another file ------------------------------------------------------------------


def is_array(path: Path | None) -> bool:
    """Whether a file of features is an array, which has neither ids nor column names."""
    return path is not None and path.suffix.lower() in ARRAY_SUFFIXES


def _features_of_rows(
    source: TableSource, path: Path, table: LabelTable
) -> tuple[npt.NDArray[Any], LabelTable]:
    """The features in a file, in the order of a table, which gets their names and notes."""
    has_ids = bool({"id", "path", "task"} & table.columns.keys()) or is_tool_file(source.table)
    if path.suffix.lower() in READABLE:
        other = _read_feature_table(path, source, table)
        x: Any = other.features
        names: Names = {"id": other.ids.tolist()} if {"id", "path"} & other.columns.keys() else {}
        notes = (*table.notes, *other.notes)
        table = replace(table, feature_names=other.feature_names, left_out=other.left_out)
        table = replace(table, notes=notes)
        if has_ids and not names:
            problem = f"{path} has no column {shown(Reading.id)} to join the features by"
            raise InputError(f"{problem}: add it, with the ids of the table.")
    else:
        x, names = _read_feature_array(path)
        names = names if has_ids else {}
    if names:
        return x[_rows_of_examples(path, names, table)], table
    if len(x) != len(table):
        raise InputError(
            f"{path} has {counted(len(x), 'row')}, but the table has "
            f"{counted(len(table), 'example')}: give one row per example, in the same order."
        )
    note = f"{source.table} has no ids, so the rows of {path} are taken in its order."
    if has_ids:
        note = f"{path} has no ids, so its rows are taken in the order of {source.table}."
    return x, replace(table, notes=(*table.notes, note))


def _read_feature_table(path: Path, source: TableSource, table: LabelTable) -> LabelTable:
    present, reading = open_table(path).names, source.reading
    ids = (reading.id, table.columns.get("task"), Reading.id)
    how = Reading(
        id=next((name for name in ids if name in present), reading.id),
        features=reading.features,
        ignore=reading.ignore,
        # These are not features there either.
        group=reading.group if reading.group in present else None,
        label=reading.label if reading.label in present else None,
    )
    other = read_table(path, how, needs_candidates=False, exact=source.exact)
    if other.features is None:
        raise InputError(f"{path} has no columns of numbers to train on: add columns of features.")
    return other


def _rows_of_examples(path: Path, names: Names, table: LabelTable) -> npt.NDArray[np.int64]:
    """The row of each example in a file of features.

    Rows are found by whichever of their ids and paths are those of the most examples.
    """
    best, twice = np.full(len(table), -1, dtype=np.int64), None
    for what, of_rows in names.items():
        written = [id_key(name) for name in of_rows]
        place = {name: i for i, name in reversed(list(enumerate(written)))}
        for own in (table.ids, table.paths):
            known = [] if own is None else own.tolist()
            rows = np.asarray([place.get(id_key(name), -1) for name in known], dtype=np.int64)
            if (rows >= 0).sum() > (best >= 0).sum():
                best = rows
                # Rows with the same path have the same picture.
                repeated = (name for i, name in enumerate(written) if place[name] != i)
                twice = next(repeated, None) if what == "id" else None
    if twice is not None:
        raise InputError(f"{path} has several rows with the id {shown(twice)}: keep one of them.")
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

    def choose(names: Sequence[str]) -> str:
        if len(names) != 1 and "features" not in names:
            problem = f"{path} holds the arrays {format_names(names)}"
            raise InputError(f"{problem}: call the one to train on 'features'.")
        return "features" if "features" in names else names[0]

    array = read_array(path, choose)
    if array.ndim != 2:
        raise InputError(
            f"The array in {path} has shape {array.shape}: it must have one row per example and "
            "one column per feature."
        )
    return array, read_picture_names(path, len(array))
