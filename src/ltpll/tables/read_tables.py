"""Tables: candidate sets, features, true labels and annotations of each example, read from a user's file."""

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
from ltpll.convert.json_formats import read_json
from ltpll.convert.json_stream import JSON_SUFFIXES
from ltpll.convert.matlab import mat_candidates, read_mat
from ltpll.errors import InputError, InputWarning, option, shown
from ltpll.formatting import counted, format_names
from ltpll.tables.annotation_columns import (
    TRUE_LABEL,
    check_one_role,
    find_annotation_columns,
)
from ltpll.tables.annotations import (
    AnnotatorVotes,
    drop_repeated_votes,
    voted_candidates,
)
from ltpll.tables.columns import (
    FeatureColumns,
    TextColumn,
    distinct_columns,
    holds_numbers,
    id_key,
    numeric_columns,
    texts,
)
from ltpll.tables.label_table import LabelTable
from ltpll.tables.possible_classes import possible_at_sites, possible_in_rows
from ltpll.tables.reading import DEFAULT_READING, Reading, fits
from ltpll.tables.set_columns import (
    ClassColumns,
    ProbabilityColumns,
    SetColumn,
    check_set_memory,
    holds_ballots,
    sorted_class_names,
)
from ltpll.tables.streaming import ReadProgress, Table, open_table
from ltpll.tables.taxonomy_files import read_taxonomy


def read_table(
    path: Path | Any,
    reading: Reading = DEFAULT_READING,
    *,
    needs_candidates: bool = True,
    exact: bool = False,
    on_progress: ReadProgress | None = None,
) -> LabelTable:
    """Read a .csv, .tsv, .parquet or .mat file, or JSON of a labelling tool or detector; text files may be larger than memory.

    Args:
        path: The file; or a table in memory, of pandas, polars, pyarrow or another library with Arrow's interface.
        reading: How to read it.
        needs_candidates: Whether the file must contain candidate sets. If it need not and does not, they are None, and so are the
            labels unless `reading` gives the classes.
        exact: Whether features are float64 in any case, for a classifier that was trained on such.
        on_progress: Called with the amount read so far and the total: bytes of a text file, rows of a Parquet file.

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
    if is_frame(path):
        reading.check()
        return _read_columns(open_table(path), reading, needs_candidates, exact, on_progress)
    if not isinstance(path, (str, Path)):
        kind = f"{type(path).__module__.partition('.')[0]}.{type(path).__name__}"
        raise InputError(
            f"A table cannot be read from {kind}: give a path, or a table of pandas, polars (collected) or pyarrow."
        )
    path = Path(path)
    is_json = path.suffix.lower() in JSON_SUFFIXES
    reading.check(is_json=is_json)
    if is_json:
        return _read_json_table(path, reading, needs_candidates, on_progress)
    if path.suffix.lower() == ".mat":
        return _read_mat_table(path, reading, needs_candidates, exact)
    return _read_columns(open_table(path), reading, needs_candidates, exact, on_progress)


def _read_columns(
    table: Table,
    reading: Reading,
    needs_candidates: bool,
    exact: bool,
    on_progress: ReadProgress | None,
) -> LabelTable:
    if reading.annotators is not None and not (
        _one_row_per_task(reading) and holds_ballots(table, reading.candidates)
    ):
        return _read_annotations(table, reading, on_progress)
    return _read_examples(table, reading, needs_candidates, exact, on_progress)


def _one_row_per_task(reading: Reading) -> bool:
    return reading.task is reading.worker is reading.annotation is None


# ---- one row per example ----------------------------------------------------------------------------------------------


def _read_examples(
    table: Table,
    reading: Reading,
    needs_candidates: bool,
    exact: bool,
    on_progress: ReadProgress | None,
) -> LabelTable:
    indices = {what: reading.find(table, what) for what in ("id", "path", "split", "group", "site")}
    sets = _set_reader(table, reading, needs_candidates)
    limits = {} if sets is None else _limit_readers(table, reading, sets)
    taxonomy = None if reading.taxonomy is None else read_taxonomy(Path(reading.taxonomy))
    indices["label"] = _label_column(table, reading, sets, indices)
    texts = {
        what: TextColumn(table, index, repeated=what in ("label", "split", "group", "site"))
        for what, index in indices.items()
        if index is not None
    }
    taken = (
        {column.index for column in texts.values()}
        | {column.index for column in limits.values()}
        | set(sets.indices if sets else ())
    )
    features, left_out = _feature_reader(table, reading, taken, exact)
    readers = [
        *texts.values(),
        *limits.values(),
        *([sets] if sets else []),
        *([features] if features else []),
    ]
    n_rows = 0
    for batch in table.batches([*taken, *(features.indices if features else [])], on_progress):
        n_rows += batch.n_rows
        for reader in readers:
            reader.add(batch)

    named = texts.get("id") or texts.get("path")
    ids = (
        named.unique_values()
        if named
        else np.asarray([str(i + 1) for i in range(n_rows)], dtype=object)
    )
    if sets is not None and sets.n_labels == 0 and not needs_candidates:
        sets = None  # an empty column in a table to predict
    candidates = None
    if sets is not None:
        candidates = sets.candidates(
            reading.classes,
            _set_rules(table, reading, taxonomy, limits, texts.get("site")),
            reading.scores,
        )
    votes = (
        sets.votes(candidates.classes)
        if isinstance(sets, SetColumn) and candidates is not None
        else None
    )
    if votes is not None and candidates is not None:
        if limits or taxonomy is not None or "site" in texts:
            raise InputError(
                f"{table.path} has lists of several annotators, which cannot be combined with excluded or possible classes or a taxonomy: "
                "omit these."
            )
        rule = reading.annotators or "union"
        candidates = voted_candidates(
            votes, n_rows, candidates.classes, rule, reading.vote_weights, table.row
        )
    groups = _groups(table, texts["group"]) if "group" in texts else None
    classes = reading.classes if candidates is None else candidates.classes
    label = texts.get("label")
    if label is not None and taxonomy is not None:
        _refuse_groups(table, label, taxonomy)
    values, names = features.result() if features else (None, ())
    return LabelTable(
        ids=ids,
        candidates=candidates
        if candidates is None or groups is None
        else candidates.with_groups(groups),
        labels=None
        if label is None or classes is None
        else _label_numbers(table, label.codes(), label.names.names, classes, "true label"),
        splits=texts["split"].values() if "split" in texts else None,
        paths=texts["path"].values() if "path" in texts else None,
        features=values,
        feature_names=names,
        votes=votes,
        left_out=tuple(table.names[index] for index in left_out),
        like_ids=()
        if named
        else tuple(table.names[index] for index in distinct_columns(table, left_out)),
        groups=groups,
        columns={
            **({"candidates": reading.candidates} if type(sets) is SetColumn else {}),
            **_names(table, {**limits, **texts}),
        },
    )


def _limit_readers(
    table: Table, reading: Reading, sets: SetColumn | ClassColumns
) -> dict[str, SetColumn]:
    """The columns of excluded and of possible classes. A column of numbers is not taken for one only because of its name."""
    found: dict[str, SetColumn] = {}
    for what in ("excluded", "possible"):
        index = reading.find(table, what)
        if index is None or (
            getattr(reading, what) is None
            and (index in sets.indices or holds_numbers(table, index))
        ):
            continue
        if index in sets.indices:
            raise InputError(
                f"The column {shown(table.names[index])} cannot hold the sets and the {what} classes: name two columns."
            )
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


def _refuse_groups(table: Table, label: TextColumn, taxonomy: Taxonomy) -> None:
    """Refuse a true label that is a group."""
    group = next(
        (code for code, name in enumerate(label.names.names) if taxonomy.is_group(name)), None
    )
    if group is not None:
        row = int(np.argmax(label.codes() == group))
        raise InputError(
            f"{table.row(row)} has the true label {shown(label.names.names[group])}, which is a group of the taxonomy and not a class: "
            "name one class, or leave the cell empty."
        )


def _label_column(
    table: Table,
    reading: Reading,
    sets: SetColumn | ClassColumns | None,
    indices: Mapping[str, int | None],
) -> int | None:
    """The column of true labels, which must not be used for anything else; the default column does not count if it is."""
    name = reading.label or TRUE_LABEL
    others = {
        what: table.names[index]
        for what in ("split", "group", "site")
        if (index := indices[what]) is not None
    }
    others |= {
        what: column
        for what in ("excluded", "possible")
        if (column := getattr(reading, what)) in table.names
    }
    if sets is not None and name in [table.names[index] for index in sets.indices]:
        others[
            "class-column"
            if reading.class_columns
            else "probability-column"
            if reading.probability_columns
            else "candidates"
        ] = name
    if reading.label is None and name in others.values():
        return None
    check_one_role(name, "label", others)
    return reading.find(table, "label")


def _names(table: Table, columns: Mapping[str, TextColumn | SetColumn]) -> dict[str, str]:
    return {what: table.names[column.index] for what, column in columns.items()}


def _groups(table: Table, column: TextColumn) -> npt.NDArray[np.object_]:
    """The group of each row, which must not be empty."""
    groups = column.values()
    empty = next((i for i, group in enumerate(groups) if group == ""), None)
    if empty is not None:
        name = shown(table.names[column.index])
        raise InputError(
            f"{table.row(empty)} is empty in the column {name}: give every row a group, its own if it shares none."
        )
    return groups


def _set_reader(
    table: Table, reading: Reading, needs_candidates: bool
) -> SetColumn | ClassColumns | None:
    if reading.class_columns:
        return ClassColumns(table, *_class_columns(table, reading.class_columns))
    if reading.probability_columns:
        return ProbabilityColumns(
            table, *_class_columns(table, reading.probability_columns), reading.top_k, reading.mass
        )
    if not needs_candidates and reading.candidates not in table.names:
        return None
    advice = f"name the column of sets with {option('candidates', 'COLUMN')}"
    return SetColumn(
        table, table.column(reading.candidates, advice), reading.separator, reading.classes
    )


def _class_columns(table: Table, requested: Sequence[str]) -> tuple[list[int], list[str]]:
    """The column numbers and names of the classes."""
    if len(requested) == 1 and requested[0].endswith("*"):
        prefix = requested[0][:-1]
        columns = [name for name in table.names if name.startswith(prefix) and name != prefix]
        if not columns:
            raise InputError(
                f"{table.path} has no columns that start with {shown(prefix)}: it has {format_names(table.names)}."
            )
        return [table.column(name) for name in columns], [
            name.removeprefix(prefix) for name in columns
        ]
    return _columns(table, requested), list(requested)


def _columns(table: Table, names: Sequence[str]) -> list[int]:
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InputError(f"The column {shown(twice)} is given twice: name each column once.")
    return [table.column(name) for name in names]


def _is_pattern(table: Table, name: str) -> bool:
    """Whether a name stands for several columns; a column that is called like a pattern stands for itself."""
    return "*" in name and name not in table.names


def _matching(table: Table, pattern: str) -> list[int]:
    """The columns that a name or pattern stands for, of which there must be one."""
    if not _is_pattern(table, pattern):
        return [table.column(pattern)]
    found = [i for i, name in enumerate(table.names) if fits(name, pattern)]
    if not found:
        raise InputError(
            f"{table.path} has no columns like {shown(pattern)}: it has {format_names(table.names)}."
        )
    return found


def _ignored(table: Table, reading: Reading) -> set[int]:
    return {i for pattern in reading.ignore for i in _matching(table, pattern)}


def _chosen_columns(
    table: Table, reading: Reading, names: Sequence[str], taken: set[int]
) -> list[int]:
    """The feature columns that were named, and those that patterns stand for."""
    patterns = [name for name in names if _is_pattern(table, name)]
    indices = _columns(table, [name for name in names if name not in patterns])
    used = next((table.names[index] for index in indices if index in taken), None)
    if used is not None:
        raise InputError(
            f"The column {shown(used)} of {table.path} has another role, so it cannot be a feature: omit it."
        )
    if patterns:
        without = {*taken, *indices, *_ignored(table, reading)}
        matching = dict.fromkeys(
            i for pattern in patterns for i in _matching(table, pattern) if i not in without
        )
        indices += numeric_columns(table, list(matching))
        if not indices:
            raise InputError(
                f"No column like {shown(patterns[0])} of {table.path} holds numbers, so there are no features: name others."
            )
    return indices


def _feature_reader(
    table: Table, reading: Reading, taken: set[int], exact: bool
) -> tuple[FeatureColumns | None, list[int]]:
    """The reader of the features, and the text columns that are left out."""
    if reading.features is not None:
        indices = _chosen_columns(table, reading, reading.features, taken)
        by_name = not any(_is_pattern(table, name) for name in reading.features)
        return (
            FeatureColumns(table, indices, chosen=by_name, exact=exact) if indices else None
        ), []
    ignored = _ignored(table, reading)
    # An index written by pandas would leak the order of the rows; the column of sets is not a feature even if sets are read elsewhere, and
    # neither is the one of the labels that `ltpll data prune` removed, even if classes are numbers.
    excluded = [reading.candidates, "pruned", "", "Unnamed: 0", "__index_level_0__"]
    others = [
        i
        for i, name in enumerate(table.names)
        if i not in taken and i not in ignored and name not in excluded
    ]
    indices = numeric_columns(table, others)
    for index in indices:
        table.column(table.names[index])  # refuses a name that occurs twice
    numeric = set(indices)
    return (FeatureColumns(table, indices, chosen=False, exact=exact) if indices else None), [
        i for i in others if i not in numeric
    ]


# ---- one row per annotation -------------------------------------------------------------------------------------------


def _read_annotations(
    table: Table, reading: Reading, on_progress: ReadProgress | None
) -> LabelTable:
    """One annotation per row; examples are in order of first appearance."""
    if reading.features:
        raise InputError(
            "A table of annotations has several rows per example, so its columns cannot be features: give features in another file."
        )
    extra = {
        what: index
        for what in ("path", "split", "group")
        if (index := reading.find(table, what)) is not None
    }
    named = {what: getattr(reading, what) for what in ("task", "worker", "annotation", "label")}
    if reading.task is None and reading.id != Reading.id:
        named["task"] = reading.id
    others = {what: table.names[index] for what, index in extra.items() if what != "path"}
    columns = find_annotation_columns(table, named, reading.path, others)
    indices = {
        what: table.column(getattr(columns, what)) for what in ("task", "worker", "annotation")
    }
    if columns.label is not None:
        extra["label"] = table.column(columns.label)
    texts = {
        what: TextColumn(table, index, repeated=True)
        for what, index in {**indices, **extra}.items()
    }
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
    _warn_of_merged_tasks(table, texts["task"])
    first = np.unique(codes["task"], return_index=True)[1]
    if "group" in texts:
        _groups(table, texts["group"])
    constant: dict[str, npt.NDArray[np.object_] | None] = dict.fromkeys(("path", "split", "group"))
    for what in extra:
        differs = np.flatnonzero(codes[what] != codes[what][first][codes["task"]])
        if len(differs):
            row = int(differs[0])
            name = table.names[texts[what].index]
            advice = (
                "a task has one true label, and annotations are named with --annotation"
                if what == "label"
                else "use one per task"
            )
            raise InputError(
                f"{table.row(row)} gives the task {shown(tasks[codes['task'][row]])} another {shown(name)} than before: {advice}."
            )
        constant[what] = np.asarray(texts[what].names.names, dtype=object)[codes[what][first]]

    names = texts["annotation"].names.names
    classes = tuple(sorted_class_names(names)) if reading.classes is None else reading.classes
    numbers = _label_numbers(table, codes["annotation"], names, classes, "label")
    votes = AnnotatorVotes(
        *drop_repeated_votes(codes["task"], codes["worker"], numbers),
        tuple(texts["worker"].names.names),
    )
    if reading.classes is None:
        warn_of_similar_names(classes, votes.labels)
    how = (
        reading.annotators or "",
        reading.vote_weights,
        lambda i: f"The task {shown(tasks[i])} of {table.path}",
    )
    candidates = voted_candidates(votes, len(tasks), classes, *how).with_groups(constant["group"])
    true = None
    if "label" in texts:
        true = _label_numbers(
            table, codes["label"], texts["label"].names.names, classes, "true label"
        )[first]
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


def _warn_of_merged_tasks(table: Table, column: TextColumn) -> None:
    """Warn of tasks that differ in blanks around them only, and so are one (`id_key`)."""
    if not column.names.padded:
        return
    written = {
        text
        for batch in table.batches([column.index])
        for text in texts(table, batch, column.index).to_pylist()
    }
    merged = [name for name, n in Counter(map(id_key, written)).items() if n > 1]
    if merged:
        warnings.warn(
            f"{counted(len(merged), 'task')} of {table.path} {'is' if len(merged) == 1 else 'are'} written with different blanks around "
            f"the name ({format_names([shown(name) for name in merged], 3)}): each is taken as one task.",
            InputWarning,
            stacklevel=4,
        )


# ---- MATLAB -----------------------------------------------------------------------------------------------------------


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


# ---- labelling tools and detectors -------------------------------------------------------------------------------------


def _read_json_table(
    path: Path, reading: Reading, needs_candidates: bool, on_progress: ReadProgress | None
) -> LabelTable:
    found = read_json(path, reading, needs_candidates=needs_candidates, on_progress=on_progress)

    def column(values: Sequence[str] | None) -> npt.NDArray[np.object_] | None:
        return None if values is None else np.asarray(values, dtype=object)

    return LabelTable(
        ids=np.asarray(found.ids, dtype=object),
        candidates=found.candidates
        if found.candidates is None
        else found.candidates.with_groups(found.groups),
        labels=found.labels,
        splits=None,
        paths=column(found.paths),
        features=None,
        feature_names=(),
        votes=found.votes,
        groups=column(found.groups),
        columns=found.fields,
        urls=column(found.urls),
        notes=found.notes,
    )


def _label_numbers(
    table: Table, codes: npt.NDArray[Any], names: Sequence[str], classes: Sequence[Any], what: str
) -> npt.NDArray[np.int64]:
    """Class numbers of one label per row, −1 where a cell is empty; `codes` are positions in `names`."""
    number = {name: i for i, name in enumerate(classes)}
    labels: npt.NDArray[np.int64] = np.asarray(
        [number.get(name, -1 if name == "" else -2) for name in names], dtype=np.int64
    )[codes]
    wrong = np.flatnonzero(labels == -2)
    if len(wrong):
        raise InputError(
            f"{table.row(int(wrong[0]))} has the {what} {unknown_class_error(names[codes[wrong[0]]], classes)}."
        )
    return labels
