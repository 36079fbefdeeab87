"""Tables: candidate sets, features, true labels and annotations of each example, read from a user's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.candidates.cells import unknown_class_error
from ltpll.candidates.parsing import check_class_names
from ltpll.data.readers.annotation_columns import TRUE_LABEL, check_one_role, find_annotation_columns
from ltpll.data.readers.annotations import (
    DEFAULT_VOTE_WEIGHTS,
    AnnotatorVotes,
    check_vote_weights,
    drop_repeated_votes,
    sets_from_votes,
    vote_rule,
    vote_weights,
)
from ltpll.data.readers.columns import FeatureColumns, TextColumn, numeric_columns
from ltpll.data.readers.matlab import mat_candidates, read_mat
from ltpll.data.readers.set_columns import ClassColumns, ProbabilityColumns, SetColumn, sorted_class_names
from ltpll.data.readers.streaming import ReadProgress, Table, open_table
from ltpll.errors import InputError, shown
from ltpll.formatting import counted, format_names
from ltpll.validation import whole_number

__all__ = ["AnnotatorVotes", "LabelTable", "Reading", "read_table"]


@dataclass(frozen=True)
class LabelTable:
    """The content of a table, one entry per example in the order of the table."""

    ids: npt.NDArray[np.object_]  # distinct: the column of ids, or else of paths, or else the row number from 1
    candidates: Candidates | None
    labels: npt.NDArray[np.int64] | None  # true class numbers, for evaluation only; −1 if unknown
    splits: npt.NDArray[np.object_] | None
    paths: npt.NDArray[np.object_] | None
    features: npt.NDArray[np.float32] | None  # (N, d)
    feature_names: tuple[str, ...]
    votes: AnnotatorVotes | None
    left_out: tuple[str, ...] = ()  # columns of text, which are not features
    groups: npt.NDArray[np.object_] | None = None  # the picture or scene of each example; the candidates have them too
    columns: Mapping[str, str] = field(default_factory=dict)  # the column that was taken for each field of `Reading` that names one

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: npt.NDArray[np.int64]) -> LabelTable:
        """Some of the examples in the given order, each at most once."""
        arrays = {name: getattr(self, name) for name in ("ids", "labels", "splits", "paths", "features", "groups")}
        return replace(
            self,
            **{name: array[rows] for name, array in arrays.items() if array is not None},
            candidates=None if self.candidates is None else self.candidates.select(rows),
            votes=None if self.votes is None else self.votes.select(rows, len(self)),
        )


@dataclass(frozen=True)
class Reading:
    """How to read a table.

    A column may be missing if its option has the default name. The sets are in one column of text, or in one column per class. In a
    table of annotations, every row is the label that one annotator gave to one task; columns that are not named are found by their usual
    names.

    Args:
        candidates: The column of candidate sets.
        separator: What separates the names in a cell of `candidates`.
        id: The column of ids; None if ids are row numbers.
        path: The column of image paths; None if there is none.
        label: The column of true labels, which are used for evaluation only; by default the column `label`, if there is one and it does
            not hold the annotations.
        split: The column that names the split.
        group: The column of the picture or scene that rows share; None if there is none.
        class_columns: One 0/1 column per class, by name or with a prefix such as `is_*`.
        probability_columns: One column of probabilities per class, from which `top_k` or `mass` makes sets.
        top_k: Candidates are the k most likely classes.
        mass: Candidates are the fewest classes that together reach this probability.
        annotators: How the annotations of a task become a set, in a table of annotations: `union`, `votes>=2` or `top-3`.
        task: The column of the examples that were annotated; usual names are task, image, item, id and path.
        worker: The column of annotators; usual names are worker, annotator, user and rater.
        annotation: The column of annotated labels; usual names are label, choice, answer and annotation.
        vote_weights: How the votes of annotators weight the candidates: `reliability`, `counts` or `none`.
        features: The feature columns; by default all other columns of numbers.
        classes: The classes in order; by default the names that occur.

    Example:
        >>> reading = Reading(candidates="labels", separator=";", features=("height", "width"))
    """

    candidates: str = "candidates"
    separator: str = "|"
    id: str | None = "id"
    path: str | None = "path"
    label: str | None = None
    split: str = "split"
    group: str | None = None
    class_columns: tuple[str, ...] = ()
    probability_columns: tuple[str, ...] = ()
    top_k: int | None = None
    mass: float | None = None
    annotators: str | None = None
    task: str | None = None
    worker: str | None = None
    annotation: str | None = None
    vote_weights: str = DEFAULT_VOTE_WEIGHTS
    features: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Reading:
        """Create from options or records, in which tuples are lists; unknown names are ignored."""
        known = {one.name for one in fields(cls)}
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items() if name in known
        }
        return cls(**given)

    def check(self) -> None:
        """Refuse options that contradict each other."""
        sources = {"class_columns": self.class_columns, "probability_columns": self.probability_columns, "annotators": self.annotators}
        given = [name for name, value in sources.items() if value]
        if len(given) > 1:
            raise InputError(f"Sets cannot be read from {' and from '.join(given)} at the same time: give one of them.")
        rules = [name for name, value in (("top_k", self.top_k), ("mass", self.mass)) if value is not None]
        if self.probability_columns and len(rules) != 1:
            raise InputError(
                "Probabilities become sets by top_k (the k most likely) or by mass (the fewest that reach it): give one of the two."
            )
        if rules and not self.probability_columns:
            raise InputError(
                f"{rules[0]} makes sets from probabilities, but no probability_columns are given: name them, or omit {rules[0]}."
            )
        if self.top_k is not None:
            whole_number(self.top_k, 1, "top_k")
        if self.mass is not None and not 0 < self.mass <= 1:
            raise InputError(f"mass is {self.mass}: it must be above 0 and at most 1.")
        if self.annotators is not None:
            vote_rule(self.annotators)
        named = next((name for name in ("task", "worker", "annotation") if getattr(self, name) is not None), None)
        if named is not None and self.annotators is None:
            raise InputError(f"{named} names a column of annotations, but annotators is not given: choose union, or omit {named}.")
        check_vote_weights(self.vote_weights)
        if self.annotators is None and self.vote_weights != DEFAULT_VOTE_WEIGHTS:
            raise InputError("vote_weights needs the votes of annotators, but annotators is not given: give it, or omit vote_weights.")
        if self.classes is not None:
            check_class_names(self.classes)

    def find(self, table: Table, what: str) -> int | None:
        """The number of a column; None if it is not given, or is missing and has its default name."""
        name, default = getattr(self, what), next(one.default for one in fields(self) if one.name == what)
        if what == "label" and name is None:
            name = default = TRUE_LABEL
        if name is None:
            return None
        return None if name == default and name not in table.names else table.column(name)


DEFAULT_READING = Reading()


def read_table(
    path: Path, reading: Reading = DEFAULT_READING, *, needs_candidates: bool = True, on_progress: ReadProgress | None = None
) -> LabelTable:
    """Read a .csv, .tsv, .parquet or .mat file; text files may be larger than memory.

    Args:
        path: The file.
        reading: How to read it.
        needs_candidates: Whether the file must contain candidate sets. If it need not and does not, they are None, and so are the
            labels unless `reading` gives the classes.
        on_progress: Called with the amount read so far and the total: bytes of a text file, rows of a Parquet file.

    Returns:
        Candidate sets, features, labels and whatever else the table contains.

    Raises:
        InputError: The file cannot be read; the message names the row or column at fault.

    Example:
        >>> table = read_table(Path("labels.csv"), Reading(separator=";"))
        >>> table.candidates.classes
        ('cat', 'dog', 'fox')
    """
    reading.check()
    path = Path(path)
    if path.suffix.lower() == ".mat":
        return _read_mat_table(path, reading, needs_candidates)
    table = open_table(path)
    if reading.annotators is not None:
        return _read_annotations(table, reading, on_progress)
    return _read_examples(table, reading, needs_candidates, on_progress)


# ---- one row per example ----------------------------------------------------------------------------------------------


def _read_examples(table: Table, reading: Reading, needs_candidates: bool, on_progress: ReadProgress | None) -> LabelTable:
    indices = {what: reading.find(table, what) for what in ("id", "path", "split", "group")}
    sets = _set_reader(table, reading, needs_candidates)
    indices["label"] = _label_column(table, reading, sets, indices)
    texts = {
        what: TextColumn(table, index, repeated=what in ("label", "split", "group")) for what, index in indices.items() if index is not None
    }
    taken = {column.index for column in texts.values()} | set(sets.indices if sets else ())
    features, left_out = _feature_reader(table, reading, taken)
    readers = [*texts.values(), *([sets] if sets else []), *([features] if features else [])]
    n_rows = 0
    for batch in table.batches([*taken, *(features.indices if features else [])], on_progress):
        n_rows += batch.n_rows
        for reader in readers:
            reader.add(batch)

    named = texts.get("id") or texts.get("path")
    ids = named.unique_values() if named else np.asarray([str(i + 1) for i in range(n_rows)], dtype=object)
    if sets is not None and sets.n_labels == 0 and not needs_candidates:
        sets = None  # an empty column in a table to predict
    candidates = None if sets is None else sets.candidates(reading.classes)
    groups = _groups(table, texts["group"]) if "group" in texts else None
    classes = reading.classes if candidates is None else candidates.classes
    label = texts.get("label")
    values, names = features.result() if features else (None, ())
    return LabelTable(
        ids=ids,
        candidates=candidates if candidates is None or groups is None else candidates.with_groups(groups),
        labels=None if label is None or classes is None else _label_numbers(table, label.codes(), label.names.names, classes, "true label"),
        splits=texts["split"].values() if "split" in texts else None,
        paths=texts["path"].values() if "path" in texts else None,
        features=values,
        feature_names=names,
        votes=None,
        left_out=left_out,
        groups=groups,
        columns={**({"candidates": reading.candidates} if type(sets) is SetColumn else {}), **_names(table, texts)},
    )


def _label_column(table: Table, reading: Reading, sets: SetColumn | ClassColumns | None, indices: Mapping[str, int | None]) -> int | None:
    """The column of true labels, which must not be used for anything else; the default column does not count if it is."""
    name = reading.label or TRUE_LABEL
    others = {what: table.names[index] for what in ("split", "group") if (index := indices[what]) is not None}
    if sets is not None and name in [table.names[index] for index in sets.indices]:
        others["class-column" if reading.class_columns else "probability-column" if reading.probability_columns else "candidates"] = name
    if reading.label is None and name in others.values():
        return None
    check_one_role(name, "label", others)
    return reading.find(table, "label")


def _names(table: Table, columns: Mapping[str, TextColumn]) -> dict[str, str]:
    return {what: table.names[column.index] for what, column in columns.items()}


def _groups(table: Table, column: TextColumn) -> npt.NDArray[np.object_]:
    """The group of each row, which must not be empty."""
    groups = column.values()
    empty = next((i for i, group in enumerate(groups) if group == ""), None)
    if empty is not None:
        name = shown(table.names[column.index])
        raise InputError(f"{table.row(empty)} is empty in the column {name}: give every row a group, its own if it shares none.")
    return groups


def _set_reader(table: Table, reading: Reading, needs_candidates: bool) -> SetColumn | ClassColumns | None:
    if reading.class_columns:
        return ClassColumns(table, *_class_columns(table, reading.class_columns))
    if reading.probability_columns:
        return ProbabilityColumns(table, *_class_columns(table, reading.probability_columns), reading.top_k, reading.mass)
    index = table.column(reading.candidates) if needs_candidates else reading.find(table, "candidates")
    return None if index is None else SetColumn(table, index, reading.separator)


def _class_columns(table: Table, requested: Sequence[str]) -> tuple[list[int], list[str]]:
    """The column numbers and names of the classes."""
    if len(requested) == 1 and requested[0].endswith("*"):
        prefix = requested[0][:-1]
        columns = [name for name in table.names if name.startswith(prefix) and name != prefix]
        if not columns:
            raise InputError(f"{table.path} has no columns that start with {shown(prefix)}: it has {format_names(table.names)}.")
        return [table.column(name) for name in columns], [name.removeprefix(prefix) for name in columns]
    return _columns(table, requested), list(requested)


def _columns(table: Table, names: Sequence[str]) -> list[int]:
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InputError(f"The column {shown(twice)} is given twice: name each column once.")
    return [table.column(name) for name in names]


def _feature_reader(table: Table, reading: Reading, taken: set[int]) -> tuple[FeatureColumns | None, tuple[str, ...]]:
    """The reader of the features, and the names of the text columns that are left out."""
    if reading.features is not None:
        indices = _columns(table, reading.features)
        used = next((table.names[index] for index in indices if index in taken), None)
        if used is not None:
            raise InputError(f"The column {shown(used)} of {table.path} has another role, so it cannot be a feature: omit it.")
        return (FeatureColumns(table, indices, chosen=True) if indices else None), ()
    # An index written by pandas would leak the order of the rows; the column of sets is not a feature even if sets are read elsewhere, and
    # neither is the one of the labels that `ltpll data prune` removed, even if classes are numbers.
    excluded = [reading.candidates, "pruned", "", "Unnamed: 0", "__index_level_0__"]
    others = [i for i, name in enumerate(table.names) if i not in taken and name not in excluded]
    indices = numeric_columns(table, others)
    for index in indices:
        table.column(table.names[index])  # refuses a name that occurs twice
    numeric = set(indices)
    left_out = tuple(table.names[i] for i in others if i not in numeric)
    return (FeatureColumns(table, indices, chosen=False) if indices else None), left_out


# ---- one row per annotation -------------------------------------------------------------------------------------------


def _read_annotations(table: Table, reading: Reading, on_progress: ReadProgress | None) -> LabelTable:
    """One annotation per row; examples are in order of first appearance."""
    if reading.features:
        raise InputError(
            "A table of annotations has several rows per example, so its columns cannot be features: give features in another file."
        )
    rule = vote_rule(reading.annotators or "")
    extra = {what: index for what in ("path", "split", "group") if (index := reading.find(table, what)) is not None}
    named = {what: getattr(reading, what) for what in ("task", "worker", "annotation", "label")}
    if reading.task is None and reading.id != Reading.id:
        named["task"] = reading.id
    others = {what: table.names[index] for what, index in extra.items() if what != "path"}
    columns = find_annotation_columns(table, named, reading.path, others)
    indices = {what: table.column(getattr(columns, what)) for what in ("task", "worker", "annotation")}
    if columns.label is not None:
        extra["label"] = table.column(columns.label)
    texts = {what: TextColumn(table, index, repeated=True) for what, index in {**indices, **extra}.items()}
    for batch in table.batches([column.index for column in texts.values()], on_progress):
        for column in texts.values():
            column.add(batch)
    codes = {what: column.codes().astype(np.int64) for what, column in texts.items()}
    for what in indices:
        blank = texts[what].names.number.get("")
        if blank is not None:
            row = int(np.flatnonzero(codes[what] == blank)[0])
            raise InputError(
                f"{table.row(row)} is empty in the column {shown(table.names[texts[what].index])}: fill it in or drop the row."
            )
    tasks = texts["task"].names.names
    first = np.unique(codes["task"], return_index=True)[1]
    if "group" in texts:
        _groups(table, texts["group"])
    constant: dict[str, npt.NDArray[np.object_] | None] = dict.fromkeys(("path", "split", "group"))
    for what in extra:
        differs = np.flatnonzero(codes[what] != codes[what][first][codes["task"]])
        if len(differs):
            row = int(differs[0])
            name = table.names[texts[what].index]
            advice = "a task has one true label, and annotations are named with --annotation" if what == "label" else "use one per task"
            raise InputError(
                f"{table.row(row)} gives the task {shown(tasks[codes['task'][row]])} another {shown(name)} than before: {advice}."
            )
        constant[what] = np.asarray(texts[what].names.names, dtype=object)[codes[what][first]]

    names = texts["annotation"].names.names
    classes = tuple(sorted_class_names(names)) if reading.classes is None else reading.classes
    numbers = _label_numbers(table, codes["annotation"], names, classes, "label")
    votes = AnnotatorVotes(*drop_repeated_votes(codes["task"], codes["worker"], numbers), tuple(texts["worker"].names.names))
    indptr, labels = sets_from_votes(votes, len(tasks), len(classes), rule)
    empty = np.flatnonzero(np.diff(indptr) == 0)
    if len(empty):
        raise InputError(
            f"The task {shown(tasks[empty[0]])} of {table.path} has no label with at least {rule.k} votes ({len(empty)} of "
            f"{counted(len(tasks), 'task')} {'has' if len(empty) == 1 else 'have'} none): require fewer votes, or use a rule such as top-1."
        )
    weights = vote_weights(votes, indptr, labels, len(classes), reading.vote_weights)
    candidates = Candidates.from_flat(indptr, labels, len(classes), classes).with_groups(constant["group"]).with_weights(weights)
    true = None
    if "label" in texts:
        true = _label_numbers(table, codes["label"], texts["label"].names.names, classes, "true label")[first]
    return LabelTable(
        ids=np.asarray(tasks, dtype=object),
        candidates=candidates,
        labels=true,
        splits=constant["split"],
        paths=constant["path"],
        features=None,
        feature_names=(),
        votes=votes,
        groups=constant["group"],
        columns=_names(table, texts),
    )


# ---- MATLAB -----------------------------------------------------------------------------------------------------------


def _read_mat_table(path: Path, reading: Reading, needs_candidates: bool) -> LabelTable:
    """Classes are called 1, 2, … unless names are given, and features data_1, data_2, …."""
    if reading.class_columns or reading.probability_columns or reading.annotators or reading.group is not None:
        raise InputError(f"{path} holds arrays, not columns: omit class_columns, probability_columns, annotators and group.")
    found = read_mat(path, needs_candidates=needs_candidates)
    names = [f"data_{j + 1}" for j in range(found.features.shape[1])]
    features, chosen = found.features, tuple(names)
    if reading.features is not None and reading.features != chosen:
        unknown = next((name for name in reading.features if name not in names), None)
        if unknown is not None:
            raise InputError(f"{path} has no feature called {shown(unknown)}: its features are {names[0]} to {names[-1]}.")
        chosen = reading.features
        features = features[:, [names.index(name) for name in chosen]]
    candidates = None if found.candidates is None else mat_candidates(path, found, reading.classes)
    if found.labels is not None and reading.classes is not None and found.labels.max() >= len(reading.classes):
        raise InputError(
            f"The array 'target' of {path} names class {found.labels.max() + 1}, but there are {len(reading.classes)} classes."
        )
    ids = np.asarray([str(i + 1) for i in range(len(features))], dtype=object)
    return LabelTable(ids, candidates, found.labels, None, None, features if chosen else None, chosen, None)


def _label_numbers(table: Table, codes: npt.NDArray[Any], names: Sequence[str], classes: Sequence[Any], what: str) -> npt.NDArray[np.int64]:
    """Class numbers of one label per row, −1 where a cell is empty; `codes` are positions in `names`."""
    number = {name: i for i, name in enumerate(classes)}
    labels: npt.NDArray[np.int64] = np.asarray([number.get(name, -1 if name == "" else -2) for name in names], dtype=np.int64)[codes]
    wrong = np.flatnonzero(labels == -2)
    if len(wrong):
        raise InputError(f"{table.row(int(wrong[0]))} has the {what} {unknown_class_error(names[codes[wrong[0]]], classes)}.")
    return labels
