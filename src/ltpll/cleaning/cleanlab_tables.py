"""Cleanlab tables: the cleaned labels as cleanlab's Datalab reads and writes them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ltpll.cleaning.results import CleanedTable, Columns, Numbers, Shares, rounded_column


def cleanlab_columns(table: CleanedTable, probabilities: Shares, separator: str = "|") -> Columns:
    """The columns of `Datalab.get_issues("label")`, one row per example.

    cleanlab knows one given label per example. Here it is the one that was chosen from the set.

    Args:
        table: A finished run on a table, from `read_cleaned`.
        probabilities: Of every class, (rows, classes), from `read_probabilities`.
        separator: The text between the candidates of a set.

    Returns:
        Columns by name: `id`, `candidates`, `given_label` (the cleaned label), `predicted_label` (the likeliest of all classes, candidate
        or not), `is_label_issue` (the set seems to lack the true label), and `label_score` (the probability that the cleaned
        label is right).

    Example:
        >>> cleanlab_columns(table, read_probabilities(folder, table))["given_label"]
    """
    return {
        "id": table.ids,
        "candidates": table.sets(separator),
        "given_label": table.classes[table.labels.label],
        "predicted_label": table.classes[probabilities.argmax(1)],
        "is_label_issue": table.labels.issue,
        "label_score": rounded_column(table.labels.confidence),
    }


def datalab_classes(table: CleanedTable, *, as_text: bool) -> Numbers:
    """The classes in the order in which Datalab expects the columns of `pred_probs`: sorted, without classes that no row is given.

    Args:
        table: A finished run on a table.
        as_text: Whether the reader of the table keeps names of numbers as text, as in Parquet; pandas reads those of a CSV file as numbers.
    """
    given = np.unique(table.labels.label)
    names = [str(table.classes[c]) for c in given]
    try:
        keys: list[float] | list[str] = names if as_text else [float(name) for name in names]
    except ValueError:
        keys = names
    return given[sorted(range(len(given)), key=lambda k: keys[k])]


def pred_probs(probabilities: Shares, classes: Numbers) -> npt.NDArray[np.float32]:
    """The probabilities of these classes, (rows, classes), so that each row sums to one."""
    chosen = np.maximum(probabilities[:, classes].astype(np.float64), 1e-9)  # a row may be certain of a class that is left out
    return np.asarray(chosen / chosen.sum(1, keepdims=True), dtype=np.float32)
