"""Tables: the sets, features, true labels and annotations of the examples in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates.arrow import is_frame
from ltpll.candidates.cells import unknown_class_error
from ltpll.candidates.expressions import SetRules
from ltpll.candidates.similar_names import warn_of_similar_names
from ltpll.candidates.taxonomy import Taxonomy
from ltpll.candidates.votes import AnnotatorVotes, drop_repeated_votes, voted_candidates
from ltpll.errors import InputError, option, shown
from ltpll.formatting import format_names
from ltpll.tables.class_files import read_taxonomy
from ltpll.tables.columns import BatchReader, FeatureColumns, TextColumn, numeric_columns, read_rows
from ltpll.tables.opening import open_table
from ltpll.tables.reading import DEFAULT_READING, Reading, fits
from ltpll.tables.set_columns import (
    ClassColumns,
    SetColumns,
    candidates_in,
    check_set_memory,
    sorted_class_names,
)
from ltpll.tables.streaming import ReadProgress, Table

if TYPE_CHECKING:
    from ltpll.candidates import Candidates

# The column of true labels, unless another one is named or this one holds the annotations.
TRUE_LABEL = "label"
# Columns of annotations that need not be named. Of tasks and annotators, the first one counts; which
# column holds the annotations is not guessed, since another one may hold the true labels.
USUAL_NAMES = {
    "task": ("task", "image", "item", "id", "path"),
    "worker": ("worker", "annotator", "user", "rater"),
    "annotation": ("annotation", TRUE_LABEL, "choice", "answer"),
}
# Columns that are never features by default: they would give labels away, are an index that pandas
# wrote, which would leak the order of the rows, or limited sets in version 0.2.
NO_FEATURES = (
    *("id", "path", "split", "annotator", "worker", TRUE_LABEL, "true_label"),
    *("", "Unnamed: 0", "__index_level_0__", "pruned", "excluded"),
)


@dataclass(frozen=True)
class LabelTable:
    """The content of a table, one entry per example in the order of the table."""

    ids: npt.NDArray[np.object_]  # distinct: the column of ids, or of paths, or row numbers from 1
    candidates: Candidates | None
    # True class numbers, for evaluation only; −1 if unknown.
    labels: npt.NDArray[np.int64] | None = None
    splits: npt.NDArray[np.object_] | None = None
    paths: npt.NDArray[np.object_] | None = None
    features: npt.NDArray[Any] | None = None  # (N, d), float32 or, if that would blur them, float64
    feature_names: tuple[str, ...] = ()
    votes: AnnotatorVotes | None = None
    frame: Any = None  # a DataFrame in the place of features, if columns are not all finite numbers
    left_out: tuple[str, ...] = ()  # columns that are not features
    groups: npt.NDArray[np.object_] | None = None  # picture or scene, as in the candidates
    columns: Mapping[str, str] = field(default_factory=dict)  # by the field of `Reading`
    urls: npt.NDArray[np.object_] | None = None  # what a labelling tool calls the pictures
    notes: tuple[str, ...] = ()  # sentences about what was skipped
    reviewed: npt.NDArray[np.bool_] | None = None  # whether the candidates are a person's answer

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: npt.NDArray[np.int64]) -> LabelTable:
        """Some of the examples in the given order, each at most once."""
        names = "ids", "labels", "splits", "paths", "features", "groups", "urls", "reviewed"
        arrays = {name: getattr(self, name) for name in names}
        return replace(
            self,
            **{name: array[rows] for name, array in arrays.items() if array is not None},
            frame=None if self.frame is None else self.frame.iloc[rows],
            candidates=None if self.candidates is None else self.candidates.select(rows),
            votes=None if self.votes is None else self.votes.select(rows, len(self)),
        )


def read_table(
    path: Path | Table | Any,
    reading: Reading = DEFAULT_READING,
    *,
    needs_candidates: bool = True,
    exact: bool = False,
    every_kind: bool = False,
    on_progress: ReadProgress | None = None,
) -> LabelTable:
    """Read a table of any kind that `open_table` opens.

    Files of other programs are read by `ltpll.convert.open.read_label_table`.

    Args:
        path: The file; a table that was opened; or one in memory, of
            pandas, polars, pyarrow or another library with Arrow's interface.
        reading: How to read it.
        needs_candidates: Whether the file must contain candidate sets. If it need not and does
            not, they are None, and so are the labels unless `reading` gives the classes.
        exact: Whether features are float64 in any case, for a classifier that was trained on such.
        every_kind: Whether words and gaps are features, too, for a `ColumnEncoder`.
        on_progress: Called with the amount read so far and the total: bytes of a text file, rows
            of a Parquet file.

    Returns:
        Candidate sets, features, labels and whatever else the table contains.

    Raises:
        InputError: The file cannot be read; the message names the row or column at fault.

    Examples:
        >>> from ltpll.tables.reading import Reading
        >>> _ = Path("labels.csv").write_text("id,candidates\\na,cat;dog\\nb,fox\\n")
        >>> table = read_table(Path("labels.csv"), Reading(separator=";"))
        >>> table.candidates.classes
        ('cat', 'dog', 'fox')
    """
    if not is_frame(path) and not isinstance(path, (str, Path, Table)):
        kind = f"{type(path).__module__.partition('.')[0]}.{type(path).__name__}"
        raise InputError(
            f"A table cannot be read from {kind}: "
            "give a path, or a table of pandas, polars (collected) or pyarrow."
        )
    reading.check()
    if isinstance(path, Table):
        table = path
    else:
        table = open_table(path if is_frame(path) else Path(path), reading.sheet)
    options = {"exact": exact, "every_kind": every_kind}
    if reading.annotators is not None:
        return _read_annotations(table, reading, options, on_progress)
    return _read_examples(table, reading, needs_candidates, options, on_progress)


# ---- one row per example -------------------------------------------------------------------------


def _read_examples(
    table: Table,
    reading: Reading,
    needs_candidates: bool,
    options: Mapping[str, bool],
    on_progress: ReadProgress | None,
) -> LabelTable:
    indices = {what: reading.find(table, what) for what in ("id", "path", "split", "group")}
    sets = _set_reader(table, reading, needs_candidates)
    taxonomy = None if reading.taxonomy is None else read_taxonomy(Path(reading.taxonomy))
    indices["label"] = _label_column(table, reading, sets, indices)
    texts = {
        what: TextColumn(table, index, repeated=what not in ("id", "path"))
        for what, index in indices.items()
        if index is not None
    }
    readers: list[BatchReader] = [*texts.values(), *([sets] if sets else [])]
    features = Features(table, reading, readers, **options)
    n_rows = read_rows(table, [*readers, *features.readers], on_progress)

    named = texts.get("id") or texts.get("path")
    if named:
        ids = named.unique_values()
    else:
        ids = np.asarray([str(i + 1) for i in range(n_rows)], dtype=object)
    if sets is not None and sets.n_labels == 0 and not needs_candidates:
        sets = None  # an empty column in a table to predict
    candidates = labels = votes = None
    if sets is not None:
        rules = SetRules(taxonomy, reading.empty, partial(check_set_memory, table.path))
        candidates = candidates_in(sets, reading.classes, rules, reading.scores)
        if isinstance(sets, SetColumns) and taxonomy is None:
            votes = sets.votes(candidates.classes)
        if votes is not None:
            how = candidates.classes, "union", reading.vote_weights, table.describe_row
            candidates = voted_candidates(votes, n_rows, *how)
    groups = _groups(texts)
    if candidates is not None and groups is not None:
        candidates = candidates.with_groups(groups)
    classes = reading.classes if candidates is None else candidates.classes
    if "label" in texts and classes is not None:
        labels = _label_numbers(texts["label"], classes, "true label", taxonomy)
    columns = {what: table.names[column.index] for what, column in texts.items()}
    notes = table.notes
    if isinstance(sets, SetColumns) and len(sets.indices) == 1:
        columns["candidates"] = reading.candidate_columns[0]
    elif isinstance(sets, SetColumns):
        which = format_names([shown(name) for name in reading.candidate_columns])
        what = "candidate sets that are joined" if votes is None else "votes of annotators"
        notes = (*notes, f"The columns {which} hold {what}.")
    values, names, frame = features.values()
    return LabelTable(
        ids=ids,
        candidates=candidates,
        labels=labels,
        splits=texts["split"].values() if "split" in texts else None,
        paths=texts["path"].values() if "path" in texts else None,
        features=values,
        feature_names=names,
        frame=frame,
        votes=votes,
        left_out=features.left_out,
        groups=groups,
        columns=columns,
        notes=notes,
    )


def _groups(texts: Mapping[str, TextColumn]) -> npt.NDArray[np.object_] | None:
    if "group" not in texts:
        return None
    return texts["group"].non_empty_values("give every row a group, its own if it shares none")


def _set_reader(
    table: Table, reading: Reading, needs_candidates: bool
) -> SetColumns | ClassColumns | None:
    names = reading.class_columns or reading.probability_columns
    if names:
        indices = matching_columns(table, names)
        prefix = names[0][:-1] if len(names) == 1 and names[0].endswith("*") else ""
        indices = [index for index in indices if table.names[index] != prefix] or indices
        classes = [table.names[index].removeprefix(prefix) for index in indices]
        rule = () if reading.class_columns else (reading.top_k, reading.mass)
        return ClassColumns(table, indices, classes, *rule)
    columns = reading.candidate_columns
    if not needs_candidates and not {*columns} <= {*table.names}:
        return None
    named = f"name the column of sets with {option('candidates', 'COLUMN')}"
    advice = f"{named} (repeat it for several, such as one for each annotator)"
    return SetColumns(table, [table.column(name, advice) for name in columns], reading.separator)


def _label_column(
    table: Table,
    reading: Reading,
    sets: SetColumns | ClassColumns | None,
    indices: Mapping[str, int | None],
) -> int | None:
    """The column of true labels; the default column does not count if it has another role."""
    name = reading.label or TRUE_LABEL
    others = {
        what: table.names[index]
        for what in ("split", "group")
        if (index := indices[what]) is not None
    }
    if sets is not None and name in [table.names[index] for index in sets.indices]:
        role = f"{sets.kind}-column" if isinstance(sets, ClassColumns) else "candidates"
        others[role] = name
    if reading.label is None and name in others.values():
        return None
    _check_one_role(name, "label", others)
    return reading.find(table, "label")


def _check_one_role(name: str | None, role: str, others: Mapping[str, str]) -> None:
    """Refuse a column that is named for this role and for another one in `others`."""
    twice = next((other for other, same in others.items() if same == name), None)
    if twice is not None:
        raise InputError(
            f"The column {shown(name)} is named with --{role} and with --{twice}: it can be only "
            "one of the two."
        )


def _is_pattern(table: Table, name: str) -> bool:
    """Whether a name stands for several columns; a column of that name stands for itself."""
    return "*" in name and name not in table.names


def matching_columns(table: Table, names: Sequence[str]) -> list[int]:
    """The columns that names and patterns such as `f*` stand for, each at least one."""
    found: dict[int, None] = {}
    for name in names:
        columns = [name]
        if _is_pattern(table, name):
            columns = [known for known in table.names if fits(known, name)]
        if not columns:
            raise InputError(
                f"{table.path} has no columns like {shown(name)}: "
                f"it has {format_names(table.names)}."
            )
        found |= dict.fromkeys(table.column(column) for column in columns)
    return list(found)


class Features:
    """The columns of a table that are features, and those that are left out.

    Features are float64 if they shall be `exact`; words and gaps are some if `every_kind` is.
    """

    def __init__(
        self,
        table: Table,
        reading: Reading,
        others: Sequence[BatchReader],
        *,
        exact: bool,
        every_kind: bool,
    ) -> None:
        self.table = table
        taken = {index for reader in others for index in reader.indices}
        chosen, possible = _possible_features(table, reading, taken)
        numeric = numeric_columns(table, possible)
        for index in numeric:
            table.column(table.names[index])  # refuses a name that occurs twice
        if reading.features is not None and not every_kind:
            possible = numeric
            if not chosen and not numeric and reading.features:
                raise InputError(
                    f"No column like {shown(reading.features[0])} of {table.path} holds numbers, "
                    "so there are no features: name others."
                )
        numeric = [*numeric, *(numeric_columns(table, chosen) if every_kind else chosen)]
        columns = [*chosen, *possible]
        numbers = [index for index in columns if index in {*numeric}]
        words = [index for index in columns if index not in {*numeric}]
        readable = [index for index in words if every_kind and table.holds_words(index)]
        self.words = [TextColumn(table, index, repeated=True) for index in readable]
        self.left_out = tuple(table.names[index] for index in words if index not in readable)
        by_name = reading.features is not None and len(chosen) == len(reading.features)
        how = {"chosen": by_name, "exact": exact, "gaps": every_kind}
        self.numbers = FeatureColumns(table, numbers, **how)
        self.readers: list[BatchReader] = [*self.words, *([self.numbers] if numbers else [])]

    def values(self) -> tuple[npt.NDArray[Any] | None, tuple[str, ...], Any]:
        """The matrix and its columns, or a DataFrame unless all features are finite numbers."""
        values, names = self.numbers.matrix_and_names() if self.numbers.indices else (None, ())
        if not self.words and (values is None or not np.isnan(values).any()):
            return values, names, None
        import pandas as pd

        columns = {} if values is None else dict(zip(names, values.T, strict=True))
        columns |= {self.table.names[column.index]: column.values() for column in self.words}
        frame = pd.DataFrame({name: columns[name] for name in self.table.names if name in columns})
        return None, tuple(frame.columns), frame


def _possible_features(
    table: Table, reading: Reading, taken: set[int]
) -> tuple[list[int], list[int]]:
    """The columns that are features by name, and those that may be, by a pattern or by default."""
    names = reading.features
    patterns = [name for name in names or () if _is_pattern(table, name)]
    without = set(taken)
    if patterns or names is None:  # else the ignored columns need not exist
        without |= {*matching_columns(table, reading.ignore)}
    if names is None:
        # Columns of sets are never features, even if sets are read elsewhere.
        no_features = (*NO_FEATURES, *reading.candidate_columns)
        return [], [
            i for i, name in enumerate(table.names) if i not in without and name not in no_features
        ]
    chosen = list(dict.fromkeys(table.column(name) for name in names if name not in patterns))
    used = next((table.names[index] for index in chosen if index in taken), None)
    if used is not None:
        raise InputError(
            f"The column {shown(used)} of {table.path} has another role, so it cannot be a "
            "feature: omit it."
        )
    matching = matching_columns(table, patterns)
    return chosen, [index for index in matching if index not in {*without, *chosen}]


# ---- one row per annotation ----------------------------------------------------------------------


def _read_annotations(
    table: Table,
    reading: Reading,
    options: Mapping[str, bool],
    on_progress: ReadProgress | None,
) -> LabelTable:
    """One annotation per row; examples are in order of first appearance.

    Columns that are the same in all rows of a task are its features.
    """
    found = {what: reading.find(table, what) for what in ("path", "split", "group")}
    indices = {what: index for what, index in found.items() if index is not None}
    named = {what: getattr(reading, what) for what in ("task", "worker", "annotation", "label")}
    if reading.task is None and reading.id != Reading.id:
        named["task"] = reading.id
    others = {what: table.names[index] for what, index in indices.items() if what != "path"}
    columns = _annotation_columns(table, named, others)
    indices |= {what: table.column(name) for what, name in columns.items()}
    texts = {what: TextColumn(table, index, repeated=True) for what, index in indices.items()}
    features = Features(table, reading, list(texts.values()), **options)
    read_rows(table, [*texts.values(), *features.readers], on_progress)
    for what in ("task", "worker", "annotation"):
        texts[what].non_empty_values("fill it in or drop the row")
    tasks, task = texts["task"].names.names, texts["task"].codes().astype(np.int64)
    first = np.unique(task, return_index=True)[1]
    constant: dict[str, npt.NDArray[Any]] = {}
    for what in indices.keys() - {"task", "worker", "annotation"}:
        codes = texts[what].codes()
        differs = np.flatnonzero(codes != codes[first][task])
        if len(differs):
            row, name = int(differs[0]), shown(table.names[texts[what].index])
            advice = "use one per task"
            if what == "label":
                advice = "a task has one true label; table.annotation names the annotations"
            raise InputError(
                f"{table.describe_row(row)} gives the task {shown(tasks[task[row]])} another "
                f"{name} than before: {advice}."
            )
        constant[what] = texts[what].values()[first]
    _groups(texts)

    classes = reading.classes or tuple(sorted_class_names(texts["annotation"].names.names))
    numbers = _label_numbers(texts["annotation"], classes, "label")
    workers = texts["worker"].codes().astype(np.int64)
    votes = AnnotatorVotes(
        *drop_repeated_votes(task, workers, numbers), tuple(texts["worker"].names.names)
    )
    if reading.classes is None:
        warn_of_similar_names(classes, votes.labels)
    how = reading.annotators or "", reading.vote_weights
    candidates = voted_candidates(
        votes, len(tasks), classes, *how, lambda i: f"The task {shown(tasks[i])} of {table.path}"
    )
    labels = None
    if "label" in texts:
        labels = _label_numbers(texts["label"], classes, "true label")[first]
    values, names, frame = features.values()
    differing: list[str] = []
    if names:
        values, frame, differing = _once_per_task(values, names, frame, first, task)
    notes = table.notes
    if differing:
        some = format_names([shown(name) for name in differing], 3)
        notes = (*notes, f"Columns that differ within a task are no features: {some}.")
    return LabelTable(
        ids=np.asarray(tasks, dtype=object),
        candidates=candidates.with_groups(constant.get("group")),
        labels=labels,
        splits=constant.get("split"),
        paths=constant.get("path"),
        features=values,
        feature_names=tuple(name for name in names if name not in differing),
        frame=frame,
        votes=votes,
        left_out=features.left_out,
        groups=constant.get("group"),
        columns={what: table.names[column.index] for what, column in texts.items()},
        notes=notes,
    )


def _annotation_columns(
    table: Table, named: Mapping[str, str | None], others: Mapping[str, str]
) -> dict[str, str]:
    """Find the columns of tasks, workers, annotations and, if there are any, true labels.

    `named` are the columns that the user named, by role, and `others` those that hold something
    else.
    """
    given = {
        role: table.names[table.column(name)] for role, name in named.items() if name is not None
    }
    for role, name in given.items():
        _check_one_role(name, role, {other: same for other, same in given.items() if other != role})
    _check_one_role(given.get("label"), "label", others)
    free = {*table.names} - {*given.values(), *others.values()}
    found: dict[str, str] = {}
    for role, usual in USUAL_NAMES.items():
        possible = [name for name in usual if name in free]
        if role not in given and (not possible or (role == "annotation" and len(possible) > 1)):
            raise InputError(
                f"It is unclear which column of {table.path} holds the {role}s: it has "
                f"{format_names(table.names)}; name the columns with the settings "
                "table.task, table.worker and table.annotation (true labels, which table.label "
                "names, are never annotations)."
            )
        found[role] = given.get(role) or possible[0]
    if "label" in given or (TRUE_LABEL in free and TRUE_LABEL not in found.values()):
        found["label"] = given.get("label", TRUE_LABEL)
    return found


def _once_per_task(
    values: npt.NDArray[Any] | None,
    names: Sequence[str],
    frame: Any,
    first: npt.NDArray[np.int64],
    task: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[Any] | None, Any, list[str]]:
    """The features of each task, and the columns that differ between its rows, which are none."""
    import pandas as pd

    whole = pd.DataFrame(values, columns=list(names)) if frame is None else frame
    of_first = whole.iloc[first[task]].reset_index(drop=True)
    differing = [name for name in names if not whole[name].equals(of_first[name])]
    kept = whole.iloc[first].drop(columns=differing).reset_index(drop=True)
    if kept.empty:
        return None, None, differing
    return (kept.to_numpy(), None, differing) if frame is None else (None, kept, differing)


def _label_numbers(
    column: TextColumn, classes: Sequence[Any], what: str, taxonomy: Taxonomy | None = None
) -> npt.NDArray[np.int64]:
    """Class numbers of one label per row, −1 where a cell is empty."""
    names, codes, row = column.names.names, column.codes(), column.table.describe_row
    number = {"": -1} | {name: i for i, name in enumerate(classes)}
    labels: npt.NDArray[np.int64] = np.asarray(
        [number.get(name, -2) for name in names], dtype=np.int64
    )[codes]
    for i in np.flatnonzero(labels == -2)[:1].tolist():
        name = names[codes[i]]
        if taxonomy is not None and taxonomy.is_group(name):
            raise InputError(
                f"{row(i)} has the {what} {shown(name)}, which is a group of the taxonomy and not "
                "a class: name one class, or leave the cell empty."
            )
        raise InputError(f"{row(i)} has the {what} {unknown_class_error(name, classes)}.")
    return labels
