"""Review: which rows of a cleaned table to show to a person, who answers what their label is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.cleaning.results import CleanedTable, Columns, Numbers, rounded_column
from ltpll.formatting import counted

QUEUE = 100  # rows
PAIR_SHARE = 0.1  # of the queue that may ask about the same two classes, unless there are no other rows
RARE = 20  # examples of a class that is called rare
DOUBTFUL = 0.5  # share of a row's doubt that its set must explain before it is asked about the set


def review_rows(table: CleanedTable, n: int = QUEUE) -> Numbers:
    """The rows whose labels are most probably wrong, spread over classes and groups.

    A row is as urgent as its label is doubtful: 1 − confidence, which counts both another candidate and a set that lacks the true label.
    Rows about the same two classes, and further rows of the same group, come after the others once there are too many of them. Rows that
    were reviewed before, and held-out rows, are left out.

    Args:
        table: A finished run on a table, from `read_cleaned`.
        n: How many rows to choose.

    Returns:
        Row numbers, the most urgent first.

    Example:
        >>> table = read_cleaned("ltpll-runs/birds")
        >>> table.ids[review_rows(table, 20)]
    """
    return spread_out(1 - table.labels.confidence.astype(np.float64), table, n)


def spread_out(urgency: npt.NDArray[np.float64], table: CleanedTable, n: int) -> Numbers:
    """The most urgent rows that may be asked about, few of them about the same two classes or the same group."""
    may_ask = table.labels.judged_by != "held out"
    if table.reviewed is not None:
        may_ask &= ~table.reviewed
    order = np.argsort(-urgency, kind="stable")
    order = order[may_ask[order]]
    label, other = table.labels.label[order], alternatives(table)[order]
    pairs = np.minimum(label, other) * len(table.classes) + np.maximum(label, other)
    crowded = occurrences(pairs) >= math.ceil(PAIR_SHARE * n)
    if table.groups is not None:
        crowded |= occurrences(np.unique(table.groups[order], return_inverse=True)[1]) > 0
    return np.asarray(order[np.argsort(crowded, kind="stable")][:n])


def occurrences(values: Numbers) -> Numbers:
    """How often each value has occurred before, in the order given.

    Example:
        >>> occurrences(np.array([7, 7, 3, 7]))
        array([0, 1, 0, 2])
    """
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=-1))
    found = np.empty(len(values), dtype=np.int64)
    found[order] = np.arange(len(values)) - np.repeat(starts, np.diff(np.append(starts, len(values))))
    return found


def asks_about_set(table: CleanedTable) -> npt.NDArray[np.bool_]:
    """Whether a row's label is doubted because its set may lack the true label, rather than because of another candidate."""
    cleaned = table.labels
    return np.asarray((cleaned.outside >= 0) & (cleaned.suspicion > DOUBTFUL * (1 - cleaned.confidence)) & (cleaned.suspicion > 0))


def alternatives(table: CleanedTable) -> Numbers:
    """The likeliest label beside the chosen one: the runner-up, or a class outside the set; the label itself if there is none."""
    return np.where(asks_about_set(table), table.labels.outside, table.labels.runner_up)
