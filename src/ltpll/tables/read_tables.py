"""Tables: the sets, features, true labels and annotations of the examples in a file."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates.arrow import is_frame
from ltpll.candidates.cells import unknown_class_error
from ltpll.candidates.expressions import SetRules
from ltpll.candidates.similar_names import warn_of_similar_names
from ltpll.candidates.taxonomy import Taxonomy
from ltpll.candidates.votes import (
    AnnotatorVotes,
    drop_repeated_votes,
    voted_candidates,
)
from ltpll.errors import InputError, InputWarning, option, shown
from ltpll.formatting import are, counted, format_names
from ltpll.tables.annotation_columns import (
    TRUE_LABEL,
    check_one_role,
    find_annotation_columns,
)
from ltpll.tables.columns import (
    BatchReader,
    FeatureColumns,
    TextColumn,
    holds_numbers,
    id_key,
    numeric_columns,
    read_rows,
)
from ltpll.tables.label_table import LabelTable
from ltpll.tables.opening import open_table
from ltpll.tables.possible_classes import possible_at_sites, possible_in_rows
from ltpll.tables.reading import DEFAULT_READING, Reading, fits
from ltpll.tables.set_columns import (
    ClassColumns,
    SetColumn,
    check_set_memory,
    sorted_class_names,
)
from ltpll.tables.streaming import ReadProgress, Table
from ltpll.tables.taxonomy_files import read_taxonomy

# Columns that are no features even if others have their roles, because they would give labels away.
USUAL_ROLES = ("id", "path", "split", "annotator", "worker", TRUE_LABEL, "true_label")


def read_table(
    path: Path | Table | Any,
    reading: Reading = DEFAULT_READING,
    *,
    needs_candidates: bool = True,
    exact: bool = False,
    every_kind: bool = False,
    on_progress: ReadProgress | None = None,
) -> LabelTable:
    """Read a table of any kind that `open_table` opens; text files may be larger than memory.

    Files of other programs are read by `ltpll.convert.open.read_label_table`.

    Args:
        path: The file, or a pattern for several; a table that was opened; or one in memory, of
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
    if reading.annotators is not None:
        return _read_annotations(table, reading, exact, every_kind, on_progress)
    how = {"exact": exact, "every_kind": every_kind, "on_progress": on_progress}
    return _read_examples(table, reading, needs_candidates, **how)  # type: ignore[arg-type]


# ---- one row per example -------------------------------------------------------------------------


def _read_examples(
    table: Table,
    reading: Reading,
    needs_candidates: bool,
    *,
    exact: bool,
    every_kind: bool,
    on_progress: ReadProgress | None,
) -> LabelTable:
    indices = {what: reading.find(table, what) for what in ("id", "path", "split", "group", "site")}
    sets = _set_reader(table, reading, needs_candidates)
    limits = {} if sets is None else _limit_readers(table, reading, sets)
    taxonomy = None if reading.taxonomy is None else read_taxonomy(Path(reading.taxonomy))
    indices["label"] = _label_column(table, reading, sets, indices)
    texts = {
        what: TextColumn(table, index, repeated=what not in ("id", "path"))
        for what, index in indices.items()
        if index is not None
    }
    readers: list[BatchReader] = [*texts.values(), *limits.values(), *([sets] if sets else [])]
    taken = {index for reader in readers for index in reader.indices}
    features, words, left_out = _feature_reader(table, reading, taken, exact, every_kind)
    n_rows = read_rows(table, [*readers, *words, *([features] if features else [])], on_progress)

    named = texts.get("id") or texts.get("path")
    if named:
        ids = named.unique_values()
    else:
        ids = np.asarray([str(i + 1) for i in range(n_rows)], dtype=object)
    if sets is not None and sets.n_labels == 0 and not needs_candidates:
        sets = None  # an empty column in a table to predict
    candidates = groups = labels = None
    if sets is not None:
        rules = _set_rules(table, reading, taxonomy, limits, texts.get("site"))
        candidates = sets.candidates(reading.classes, rules, reading.scores)
    if "group" in texts:
        groups = texts["group"].non_empty_values(
            "give every row a group, its own if it shares none"
        )
        candidates = None if candidates is None else candidates.with_groups(groups)
    classes = reading.classes if candidates is None else candidates.classes
    if "label" in texts and classes is not None:
        labels = _label_numbers(texts["label"], classes, "true label", taxonomy)
    values, names = features.matrix_and_names() if features else (None, ())
    frame = _frame(table, values, names, words)
    if frame is not None:
        values, names = None, tuple(frame.columns)
    roles: dict[str, SetColumn | TextColumn] = {**limits, **texts}
    columns = {what: table.names[column.index] for what, column in roles.items()}
    if type(sets) is SetColumn:
        columns["candidates"] = reading.candidates
    return LabelTable(
        ids=ids,
        candidates=candidates,
        labels=labels,
        splits=texts["split"].values() if "split" in texts else None,
        paths=texts["path"].values() if "path" in texts else None,
        features=values,
        feature_names=names,
        frame=frame,
        votes=None,
        left_out=tuple(table.names[index] for index in left_out),
        groups=groups,
        columns=columns,
        notes=table.notes,
    )


def _set_reader(
    table: Table, reading: Reading, needs_candidates: bool
) -> SetColumn | ClassColumns | None:
    names = reading.class_columns or reading.probability_columns
    if names:
        indices = matching_columns(table, names)
        prefix = names[0][:-1] if len(names) == 1 and names[0].endswith("*") else ""
        indices = [index for index in indices if table.names[index] != prefix] or indices
        classes = [table.names[index].removeprefix(prefix) for index in indices]
        rule = () if reading.class_columns else (reading.top_k, reading.mass)
        return ClassColumns(table, indices, classes, *rule)
    if not needs_candidates and reading.candidates not in table.names:
        return None
    advice = f"name the column of sets with {option('candidates', 'COLUMN')}"
    index = table.column(reading.candidates, advice)
    return SetColumn(table, index, reading.separator, reading.classes)


def _limit_readers(
    table: Table, reading: Reading, sets: SetColumn | ClassColumns
) -> dict[str, SetColumn]:
    """The columns of excluded and of possible classes; numbers are only used if they are named."""
    found: dict[str, SetColumn] = {}
    for what in ("excluded", "possible"):
        index, default = reading.find(table, what), getattr(reading, what) is None
        if index is None or (default and (index in sets.indices or holds_numbers(table, index))):
            continue
        if index in sets.indices:
            check_one_role(table.names[index], what, {"candidates": table.names[index]})
        found[what] = SetColumn(table, index, reading.separator, reading.classes)
    return found


def _set_rules(
    table: Table,
    reading: Reading,
    taxonomy: Taxonomy | None,
    limits: Mapping[str, SetColumn],
    site: TextColumn | None,
) -> SetRules:
    possible = possible_in_rows(table, limits["possible"]) if "possible" in limits else None
    if site is not None and reading.possible_at is not None:
        possible = possible_at_sites(Path(reading.possible_at), table, site, reading.separator)
    excluded = limits["excluded"].entries() if "excluded" in limits else None
    return SetRules(taxonomy, reading.empty, excluded, possible, check_set_memory(table.path))


def _label_column(
    table: Table,
    reading: Reading,
    sets: SetColumn | ClassColumns | None,
    indices: Mapping[str, int | None],
) -> int | None:
    """The column of true labels; the default column does not count if it has another role."""
    name = reading.label or TRUE_LABEL
    others = {
        what: table.names[index]
        for what in ("split", "group", "site")
        if (index := indices[what]) is not None
    }
    for what in ("excluded", "possible"):
        if getattr(reading, what) in table.names:
            others[what] = getattr(reading, what)
    if sets is not None and name in [table.names[index] for index in sets.indices]:
        role = f"{sets.kind}-column" if isinstance(sets, ClassColumns) else "candidates"
        others[role] = name
    if reading.label is None and name in others.values():
        return None
    check_one_role(name, "label", others)
    return reading.find(table, "label")


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


def _feature_reader(
    table: Table, reading: Reading, taken: set[int], exact: bool, every_kind: bool
) -> tuple[FeatureColumns | None, list[TextColumn], list[int]]:
    """The readers of features that are numbers and words, and the columns that are left out."""
    patterns = [name for name in reading.features or () if _is_pattern(table, name)]
    ignored = set()
    if patterns or reading.features is None:  # else they need not exist
        ignored = set(matching_columns(table, reading.ignore))
    if reading.features is None:
        # An index written by pandas would leak the order of the rows; the column of sets is not a
        # feature even if sets are read elsewhere, nor are the labels that pruning removed.
        no_features = [reading.candidates, "pruned", "", "Unnamed: 0", "__index_level_0__"]
        no_features += USUAL_ROLES
        others = [
            i
            for i, name in enumerate(table.names)
            if i not in taken and i not in ignored and name not in no_features
        ]
        indices = numeric_columns(table, others)
        for index in indices:
            table.column(table.names[index])  # refuses a name that occurs twice
        return _readers_of(table, others, indices, exact, every_kind, chosen=False)
    indices = [table.column(name) for name in reading.features if name not in patterns]
    used = next((table.names[index] for index in indices if index in taken), None)
    if used is not None:
        raise InputError(
            f"The column {shown(used)} of {table.path} has another role, so it cannot be a "
            "feature: omit it."
        )
    matching = matching_columns(table, patterns)
    without = {*taken, *indices, *ignored}
    others = [index for index in matching if index not in without]
    numeric = numeric_columns(table, others)
    if not every_kind:
        others = numeric
    if patterns and not indices and not others:
        raise InputError(
            f"No column like {shown(patterns[0])} of {table.path} holds numbers, "
            "so there are no features: name others."
        )
    chosen = list(dict.fromkeys(indices))
    numeric = [*numeric, *(numeric_columns(table, chosen) if every_kind else chosen)]
    how = (exact, every_kind)
    return _readers_of(table, [*chosen, *others], numeric, *how, chosen=not patterns)


def _readers_of(
    table: Table,
    columns: Sequence[int],
    numeric: Sequence[int],
    exact: bool,
    every_kind: bool,
    *,
    chosen: bool,
) -> tuple[FeatureColumns | None, list[TextColumn], list[int]]:
    """The readers of these columns, of which some are numeric, and those without a reader."""
    numbers = [index for index in columns if index in set(numeric)]
    others = [index for index in columns if index not in set(numeric)]
    words = [index for index in others if every_kind and table.holds_words(index)]
    how: dict[str, Any] = {"chosen": chosen, "exact": exact, "gaps": every_kind}
    return (
        FeatureColumns(table, numbers, **how) if numbers else None,
        [TextColumn(table, index, repeated=True) for index in words],
        [index for index in others if index not in words],
    )


def _frame(
    table: Table,
    values: npt.NDArray[Any] | None,
    names: Sequence[str],
    words: Sequence[TextColumn],
) -> Any:
    """A DataFrame of the features, in the order of the table, unless all are finite numbers."""
    gaps = values is not None and np.isnan(values).any()
    if not words and not gaps:
        return None
    import pandas as pd

    columns = {} if values is None else dict(zip(names, values.T, strict=True))
    columns |= {table.names[column.index]: column.values() for column in words}
    return pd.DataFrame({name: columns[name] for name in table.names if name in columns})


# ---- one row per annotation ----------------------------------------------------------------------


def _read_annotations(
    table: Table,
    reading: Reading,
    exact: bool,
    every_kind: bool,
    on_progress: ReadProgress | None,
) -> LabelTable:
    """One annotation per row; examples are in order of first appearance.

    Columns that are the same in all rows of a task are its features.
    """
    found = {what: reading.find(table, what) for what in ("path", "split", "group")}
    extra = {what: index for what, index in found.items() if index is not None}
    named = {what: getattr(reading, what) for what in ("task", "worker", "annotation", "label")}
    if reading.task is None and reading.id != Reading.id:
        named["task"] = reading.id
    others = {what: table.names[index] for what, index in extra.items() if what != "path"}
    columns = find_annotation_columns(table, named, reading.path, others)
    required = ("task", "worker", "annotation")
    indices = {what: table.column(getattr(columns, what)) for what in required}
    if columns.label is not None:
        extra["label"] = table.column(columns.label)
    texts = {
        what: TextColumn(table, index, repeated=True)
        for what, index in {**indices, **extra}.items()
    }
    taken = {column.index for column in texts.values()}
    features, words, left_out = _feature_reader(table, reading, taken, exact, every_kind)
    readers: list[BatchReader] = [*texts.values(), *words, *([features] if features else [])]
    read_rows(table, readers, on_progress)
    for what in required:
        texts[what].non_empty_values("fill it in or drop the row")
    _warn_of_merged_tasks(table, texts["task"])
    tasks, task = texts["task"].names.names, texts["task"].codes().astype(np.int64)
    first = np.unique(task, return_index=True)[1]
    constant: dict[str, npt.NDArray[Any] | None] = dict.fromkeys(("path", "split", "group"))
    for what in extra:
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
    if "group" in texts:
        texts["group"].non_empty_values("give every row a group, its own if it shares none")

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
    values, feature_names = features.matrix_and_names() if features else (None, ())
    frame, notes = _frame(table, values, feature_names, words), table.notes
    if values is not None or frame is not None:
        values, frame, differing = _once_per_task(values, feature_names, frame, first, task)
        feature_names = tuple(name for name in feature_names if name not in differing)
        if differing:
            names = format_names([shown(name) for name in differing], 3)
            notes = (*notes, f"Columns that differ within a task are no features: {names}.")
    if frame is not None:
        values, feature_names = None, tuple(frame.columns)
    return LabelTable(
        ids=np.asarray(tasks, dtype=object),
        candidates=candidates.with_groups(constant["group"]),
        labels=labels,
        splits=constant["split"],
        paths=constant["path"],
        features=values,
        feature_names=tuple(feature_names),
        frame=frame,
        votes=votes,
        left_out=tuple(table.names[index] for index in left_out),
        groups=constant["group"],
        columns={what: table.names[column.index] for what, column in texts.items()},
        notes=notes,
    )


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
    differing = [name for name in whole if not whole[name].equals(of_first[name])]
    kept = whole.iloc[first].drop(columns=differing).reset_index(drop=True)
    if kept.empty:
        return None, None, differing
    return (kept.to_numpy(), None, differing) if frame is None else (None, kept, differing)


def _warn_of_merged_tasks(table: Table, column: TextColumn) -> None:
    """Warn of tasks that differ in blanks around them only, and so are one (`id_key`)."""
    if not column.names.padded:
        return
    written = TextColumn(table, column.index)
    read_rows(table, [written])
    n_texts = Counter(id_key(text) for text in set(written.values()))
    merged = [name for name, n in n_texts.items() if n > 1]
    if merged:
        names = format_names([shown(name) for name in merged], 3)
        warnings.warn(
            f"{counted(len(merged), 'task')} of {table.path} {are(len(merged))} written with "
            f"different blanks around the name ({names}): each is taken as one task.",
            InputWarning,
            stacklevel=4,
        )


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
