"""Open: the examples of any file, a table or one of the formats that are converted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ltpll.candidates.scores import tempered
from ltpll.convert.json_examples import as_label_table
from ltpll.convert.json_formats import is_tool_file, read_json
from ltpll.convert.matlab import mat_candidates, read_mat
from ltpll.errors import InputError, shown
from ltpll.pictures.files import list_pictures
from ltpll.tables.label_table import LabelTable
from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import DEFAULT_READING, HELD_OUT, TRAINING, Reading
from ltpll.tables.streaming import ArrowTable, ReadProgress


def read_label_table(
    path: Path | Any,
    reading: Reading = DEFAULT_READING,
    *,
    needs_candidates: bool = True,
    exact: bool = False,
    every_kind: bool = False,
    on_progress: ReadProgress | None = None,
) -> LabelTable:
    """Read a table, a .mat file, JSON of a labelling tool or detector, or a folder of pictures.

    The sets of a folder's pictures are the names of the folders in it, such as `cat|fox`; those of
    pictures that are in none of them are empty. If all of these folders are splits, such as `train`
    and `test`, the sets are the folders in them. Sets that are not needed are not read.

    The arguments, what is returned and the errors are those of `read_table`.
    """
    is_path = isinstance(path, (str, Path))
    kind = Path(path).suffix.lower() if is_path else ""
    if is_path and Path(path).is_dir():
        path = FolderTable(Path(path), with_sets=needs_candidates)
    elif is_path and is_tool_file(Path(path)):
        reading.check(is_json=True)
        found = read_json(
            Path(path), reading, needs_candidates=needs_candidates, on_progress=on_progress
        )
        return _with_score_weights(found, reading)
    elif kind == ".mat":
        reading.check()
        return _read_mat_table(Path(path), reading, needs_candidates, exact)
    how: dict[str, Any] = {"exact": exact, "every_kind": every_kind}
    return read_table(
        path, reading, needs_candidates=needs_candidates, on_progress=on_progress, **how
    )


class FolderTable(ArrowTable):
    """The pictures of a folder, whose sets are the names of the folders that they are in."""

    def __init__(self, folder: Path, *, with_sets: bool) -> None:
        import pyarrow as pa  # type: ignore[import-untyped]

        columns = {"path": list_pictures(folder)}
        parts = [path.split("/") for path in columns["path"]]
        if {own[0].lower() for own in parts} <= {*TRAINING, *HELD_OUT}:
            columns["split"] = [own[0] for own in parts]
            parts = [own[1:] for own in parts]
        if with_sets:
            columns["candidates"] = [own[0] if len(own) > 1 else "" for own in parts]
        super().__init__(pa.table(columns), folder)
        self.pictures = columns["path"]

    def describe_row(self, i: int) -> str:
        return f"The picture {shown(self.pictures[i], 200)} in {self.path}"


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
    of_columns = ("class_columns", "probability_columns", "annotators", "group", "ignore")
    foreign = [name for name in of_columns if getattr(reading, name)] + reading.changed_set_rules()
    if foreign:
        raise InputError(
            f"{path} holds arrays, not columns: omit {foreign[0]}, or write a table of it first, "
            "with ltpll convert."
        )
    found, classes = read_mat(path, needs_candidates=needs_candidates, exact=exact), reading.classes
    if classes is not None and found.labels is not None and found.labels.max() >= len(classes):
        raise InputError(
            f"The array 'target' of {path} names class {found.labels.max() + 1}, but there are "
            f"{len(classes)} classes."
        )
    place = {f"data_{j + 1}": j for j in range(found.features.shape[1])}
    chosen = tuple(place) if reading.features is None else reading.features
    unknown = next((name for name in chosen if name not in place), None)
    if unknown is not None:
        raise InputError(
            f"{path} has no feature called {shown(unknown)}: its features are data_1 to "
            f"data_{len(place)}."
        )
    features = found.features
    if chosen != tuple(place):
        features = features[:, [place[name] for name in chosen]]
    return as_label_table(
        None if found.candidates is None else mat_candidates(path, found, classes),
        ids=[str(i + 1) for i in range(len(features))],
        labels=found.labels,
        features=features if chosen else None,
        feature_names=chosen,
    )
