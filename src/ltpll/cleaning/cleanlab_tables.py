"""Cleanlab tables: the cleaned labels as cleanlab's Datalab reads and writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.cleaning.results import CleanedTable, Columns, Numbers, Shares, rounded_column


def cleanlab_columns(
    table: CleanedTable, probabilities: Shares, separator: str | None = None
) -> Columns:
    """The columns of `Datalab.get_issues("label")`, one row per example.

    cleanlab knows one given label per example. Here it is the one that was chosen from the set.

    Args:
        table: A finished run on a table, from `read_cleaned`.
        probabilities: Of every class, (rows, classes), from `read_probabilities`.
        separator: The text between the candidates of a set; by default that of the user's table.

    Returns:
        Columns by name: `id`, `candidates`, `given_label` (the cleaned label), `predicted_label`
        (the likeliest of all classes, candidate or not), `is_label_issue` (the set seems to lack
        the true label), and `label_score` (the probability that the cleaned label is right).
    """
    names = names_as_read(table)
    return {
        "id": table.ids,
        "candidates": table.sets(separator),
        "given_label": names[table.labels.label],
        "predicted_label": names[probabilities.argmax(1)],
        "is_label_issue": table.labels.issue,
        "label_score": rounded_column(table.labels.confidence),
    }


def datalab_classes(table: CleanedTable) -> Numbers:
    """The classes of the columns of `pred_probs` for Datalab: sorted, only those that rows have."""
    given, names = np.unique(table.labels.label), names_as_read(table)
    return np.asarray(sorted(given.tolist(), key=lambda c: names[c]), dtype=np.int64)


def names_as_read(table: CleanedTable) -> npt.NDArray[Any]:
    """The names of the classes as pandas reads them: numbers if all of them are."""
    try:
        numbers = np.asarray([float(name) for name in table.classes])
    except ValueError:
        return table.classes
    if not np.isfinite(numbers).all() or len(np.unique(numbers)) < len(numbers):
        return table.classes
    return numbers.astype(np.int64) if (numbers == numbers.round()).all() else numbers


def pred_probs(probabilities: Shares, classes: Numbers) -> npt.NDArray[np.float32]:
    """The probabilities of these classes, (rows, classes), so that each row sums to one."""
    # A row may be certain of a class that is left out.
    chosen = np.maximum(probabilities[:, classes].astype(np.float64), 1e-9)
    return np.asarray(chosen / chosen.sum(1, keepdims=True), dtype=np.float32)
