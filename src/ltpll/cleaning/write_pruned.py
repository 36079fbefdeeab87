"""Write pruned tables: the tables of the command `data prune`, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates.cells import SEPARATOR, parse_cell
from ltpll.cleaning.dataset import Examples, TableSource
from ltpll.cleaning.pruned_tables import PrunedExamples
from ltpll.errors import InputError, shown
from ltpll.pruning.votes import Pruned
from ltpll.rebalancers.auto import shares_of
from ltpll.tables.streaming import open_table, whole_table
from ltpll.tables.writers import write_table

COLUMN = "pruned"  # of the removed labels


def shares_before(found: PrunedExamples) -> dict[str, list[float]] | None:
    """Bounds of the class shares that "auto" would hold if it saw the sets before pruning.

    Pruned sets no longer show how the sets arose, for example that the rows of a picture share theirs.
    """
    shares = shares_of(found.of_training.given)
    if shares is None:
        return None
    counts = found.examples.candidates.counts().tolist()
    left = {name: shares[name] for name, n in zip(shares, counts, strict=True) if n}
    scale = sum(map(sum, shares.values())) / sum(map(sum, left.values()))
    return {name: [scale * low, min(scale * high, 1.0)] for name, (low, high) in left.items()}


def check_pruned_output(source: TableSource, out: Path) -> None:
    """Refuse, before rows are compared, an output to which the pruned table cannot be written, or a table that was pruned before.

    Raises:
        InputError: The formats differ, the table has a column `pruned` already, or it cannot be opened.
    """
    if not has_set_column(source):
        return
    parquet = [path.suffix.lower() == ".parquet" for path in (source.table, out)]
    if parquet[0] != parquet[1]:
        kept = ".parquet" if parquet[0] else ".csv or .tsv"
        raise InputError(
            f"{out.name} would change the types of the other columns of {source.table.name}: write to {kept}."
        )
    if COLUMN in open_table(source.table).names:
        raise InputError(
            f"{source.table} has a column {shown(COLUMN)} already: prune the table from which it was made, or rename the column."
        )


def check_plain_sets(source: TableSource, examples: Examples) -> None:
    """Refuse sets that cannot be written back without losing something: those with scores or with a list for each annotator.

    Raises:
        InputError: The column of sets holds more than names.
    """
    if has_set_column(source) and examples.candidates.weights is not None:
        raise InputError(
            f"The sets of {source.table} have scores or votes, which a pruned column of sets would lose: prune while training, with "
            "ltpll train --prune."
        )


def has_set_column(source: TableSource) -> bool:
    """Whether the table has one row per example and a column of sets, so that it can be written with that column replaced."""
    reading = source.reading
    return source.table.suffix.lower() != ".mat" and not (
        reading.class_columns or reading.probability_columns or reading.annotators
    )


def write_pruned(out: Path, source: TableSource, found: PrunedExamples) -> None:
    """Write the table with its column of sets replaced, and the removed labels in the column `pruned`.

    Where sets come from several columns, from annotations or from a MATLAB file, the table has the ids, the sets and the removed labels,
    and what else training needs: paths, true labels, splits, groups, and the features that the table itself holds. Rows whose pictures
    were skipped are left out.

    Raises:
        InputError: The table cannot be written.
    """
    if not has_set_column(source):
        write_table(out, _new_columns(found))
        return
    import pyarrow as pa  # type: ignore[import-untyped]

    table = whole_table(source.table)
    if found.examples.problems:
        table = table.take(_kept_rows(table, found.examples))
    place = table.column_names.index(source.reading.candidates)
    cells = table.column(place)
    nested = pa.types.is_nested(cells.type)
    sets = cells.to_pylist()
    gone: list[Any] = [[] if nested else ""] * len(sets)
    for row in found.pruned.changed().tolist():
        removed = _names(found.pruned, found.pruned.removed_from(row))
        left = _names(found.pruned, found.pruned.candidates.row(row))
        if nested:
            gone[row], sets[row] = (
                removed,
                [value for value in sets[row] if _element_name(value) not in removed],
            )
        else:
            gone[row], sets[row] = _without_names(
                str(sets[row]), removed, left, source.reading.separator
            )
    kind = (
        pa.list_(cells.type.value_type) if pa.types.is_fixed_size_list(cells.type) else cells.type
    )
    table = table.set_column(place, pa.field(table.column_names[place], kind), pa.array(sets, kind))
    write_table(
        out,
        table.append_column(
            COLUMN, pa.array(gone, pa.list_(pa.string()) if nested else pa.string())
        ),
    )


def class_table(pruned: Pruned) -> dict[str, list[Any]]:
    """For each class, in how many sets it was a candidate, from how many it was removed, and their share."""
    before, removed = pruned.given.counts().tolist(), pruned.counts().tolist()
    return {
        "class": [str(name) for name in pruned.given.classes],
        "candidate_in": before,
        "removed": removed,
        "share": [gone / n if n else 0.0 for gone, n in zip(removed, before, strict=True)],
    }


def shares_table(shares: dict[str, list[float]]) -> dict[str, list[Any]]:
    """Class shares as a file for `--prior`."""
    return {
        "class": list(shares),
        "lower": [low for low, _ in shares.values()],
        "upper": [high for _, high in shares.values()],
    }


def _names(pruned: Pruned, labels: Sequence[int]) -> list[str]:
    return [str(pruned.given.classes[label]) for label in labels]


def _element_name(value: Any) -> str:
    """The class that an element of a list names; pandas writes whole numbers as floats."""
    return (
        str(int(value)) if isinstance(value, float) and value == value // 1 else str(value).strip()
    )


def _without_names(
    cell: str, removed: list[str], left: list[str], separator: str
) -> tuple[str, str]:
    """The text of the removed names, and the cell without them, both written like the cell."""
    if cell.strip().startswith("["):
        kept = [name for name in parse_cell(cell, separator, 0).entries if name not in removed]
        return json.dumps(removed, ensure_ascii=False), json.dumps(kept, ensure_ascii=False)
    parts = [part for part in cell.split(separator) if part.strip() and part.strip() not in removed]
    # A cell may be written in a way that this function does not know; the names are certain.
    written = (
        separator.join(parts).strip()
        if {part.strip() for part in parts} == set(left)
        else separator.join(left)
    )
    return separator.join(removed), written


def _kept_rows(table: Any, examples: Examples) -> npt.NDArray[np.int64]:
    """The rows of the table whose pictures were not skipped."""
    columns = examples.table.columns
    name = columns.get("id", columns.get("path"))
    if name is None:
        return np.asarray([int(number) - 1 for number in examples.table.ids.tolist()])
    position = {str(value): i for i, value in enumerate(table.column(name).to_pylist())}
    return np.asarray([position[name] for name in examples.table.ids.tolist()])


def _new_columns(found: PrunedExamples) -> dict[str, Any]:
    table, pruned = found.examples.table, found.pruned
    names = [str(name) for name in pruned.given.classes]
    plain = not any(
        SEPARATOR in name or name.startswith("[") or name != name.strip() for name in names
    )

    def cell(labels: Sequence[int]) -> str:
        chosen = _names(pruned, labels)
        return SEPARATOR.join(chosen) if plain else json.dumps(chosen, ensure_ascii=False)

    columns: dict[str, Any] = {
        "id": table.ids,
        "candidates": [cell(pruned.candidates.row(row)) for row in range(len(table))],
    }
    gone = [""] * len(table)
    for row in pruned.changed().tolist():
        gone[row] = cell(pruned.removed_from(row))
    columns[COLUMN] = gone
    labels = (
        None
        if table.labels is None
        else [None if label < 0 else names[label] for label in table.labels.tolist()]
    )
    others = {"path": table.paths, "label": labels, "split": table.splits, "group": table.groups}
    columns |= {name: values for name, values in others.items() if values is not None}
    if table.features is not None:
        taken = next((name for name in table.feature_names if name in columns), None)
        if taken is not None:
            raise InputError(
                f"The feature {shown(taken)} has the name of a column of the pruned table: rename it."
            )
        columns |= {name: table.features[:, i] for i, name in enumerate(table.feature_names)}
    return columns
