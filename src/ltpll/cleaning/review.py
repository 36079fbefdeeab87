"""Review: which rows of a cleaned table to show to a person, who answers what their label is."""

from __future__ import annotations

import math
import zlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.cleaning.results import (
    NO_NAME,
    CleanedLabels,
    CleanedTable,
    Columns,
    Flags,
    Numbers,
    rounded_column,
)
from ltpll.evaluation.audit import audit_order, is_rare, ladder
from ltpll.formatting import counted

AUDIT, SUSPICIOUS, DOUBTFUL = "audit", "suspicious", "doubtful"
SAMPLE = 30  # rows of the random sample
Texts = npt.NDArray[np.object_]

QUEUE = 100  # rows
PAIR_SHARE = 0.1  # of the queue that may ask about the same two classes, if there are other rows
RARE = 20  # examples, at most, of a rare class, which has less than half as many as the average
OF_SET = 0.5  # share of a row's doubt that its set must explain before it is asked about the set


def review_rows(
    table: CleanedTable, n: int = QUEUE, urgency: npt.NDArray[np.float64] | None = None
) -> Numbers:
    """The rows whose labels are most probably wrong, spread over classes and groups.

    A row is as urgent as its label is doubtful, unless `urgency` says otherwise. Rows
    about the same two classes, and further rows of the same group, come after the others once there
    are too many of them. Rows that were reviewed before, rows without any doubt, and held-out rows
    are left out.

    Examples:
        >>> from ltpll.cleaning.stored_tables import read_cleaned
        >>> table = read_cleaned("ltpll-runs/birds")
        >>> len(review_rows(table, 5))
        5
    """
    import pandas as pd

    urgency = table.doubts if urgency is None else urgency
    may_ask = (table.labels.judged_by != "held out") & (urgency > 0)
    if table.reviewed is not None:
        may_ask &= ~table.reviewed
    order = np.argsort(-urgency, kind="stable")
    order = order[may_ask[order]]
    label, other = table.labels.label[order], alternatives(table)[order]
    pairs = np.minimum(label, other) * len(table.classes) + np.maximum(label, other)
    crowded = pd.Series(pairs).groupby(pairs).cumcount().to_numpy() >= math.ceil(PAIR_SHARE * n)
    if table.groups is not None:
        crowded |= pd.Series(table.groups[order]).duplicated().to_numpy()
    return np.asarray(order[np.argsort(crowded, kind="stable")][:n])


class Questions(NamedTuple):
    """Rows in the order in which people are asked about them, and why."""

    rows: Numbers
    asked: npt.NDArray[np.object_]  # "audit", "suspicious" or "doubtful"
    probability: npt.NDArray[np.float64]  # with which each row is asked about


def askable_rows(labels: CleanedLabels, reviewed: Flags | None) -> Numbers:
    """The rows that an audit is about: those that were trained on, and are not reviewed yet."""
    chosen = labels.judged_by != "held out"
    return np.flatnonzero(chosen if reviewed is None else chosen & ~reviewed)


def audit_rows(ids: Texts, labels: CleanedLabels, reviewed: Flags | None) -> Numbers:
    """The rows that a random audit may ask about, in its order; it depends on the ids."""
    rows = askable_rows(labels, reviewed)
    seed = zlib.crc32("\n".join(ids.tolist()).encode("utf-8", "replace"))
    return rows[audit_order(labels.label[rows], labels.confidence[rows], seed)]


def choose_questions(table: CleanedTable, n: int, sample: int = SAMPLE) -> Questions:
    """Choose rows to ask about: a random sample, suspicious sets and doubtful labels, mixed.

    A larger sample holds every smaller one, and so does any beginning of the questions. Half of the
    other rows are drawn from the suspicious ones, the most suspicious first, and the rest are those
    of `review_rows`.

    Args:
        table: A table as its run has stored it, without answers.
        n: How many rows to ask about, at most.
        sample: How many of them are drawn at random.

    Examples:
        >>> from ltpll.cleaning.stored_tables import read_cleaned
        >>> questions = choose_questions(read_cleaned("ltpll-runs/birds"), 20, sample=10)
        >>> int((questions.asked == "audit").sum())
        10
    """
    found, order = table.labels, audit_rows(table.ids, table.labels, table.reviewed)
    rows, n = np.sort(order), min(n, len(order))
    ranking = rows[np.argsort(-found.contradicted[rows], kind="stable")]
    rungs, by_rank = ladder(len(rows), max(n - sample, 0) // 2, seed=0)
    suspicious = ranking[rungs]
    doubtful = review_rows(table, n + len(suspicious))
    drawn = order[: min(sample, n)]
    others = np.concatenate([suspicious, doubtful[~np.isin(doubtful, suspicious)]])
    others = others[~np.isin(others, drawn)][: n - len(drawn)]
    drawn = np.concatenate([drawn, order[~np.isin(order, others)][len(drawn) :]])[: n - len(others)]
    asked = np.full(len(table.ids), DOUBTFUL, dtype=object)
    asked[suspicious], asked[drawn] = SUSPICIOUS, AUDIT
    rare, random, chosen = is_rare(found.label[rows]), np.isin(rows, drawn), np.zeros(len(asked))
    for stratum in (rare, ~rare):
        chosen[rows[stratum]] = random[stratum].sum() / max(stratum.sum(), 1)
    probability = chosen.copy()
    probability[ranking] = 1 - (1 - chosen[ranking]) * (1 - by_rank)
    probability[others[asked[others] == DOUBTFUL]] = 1
    # Each kind is spread evenly over the whole, so that any beginning holds all of them.
    kinds = [drawn, *(others[asked[others] == kind] for kind in (SUSPICIOUS, DOUBTFUL))]
    turns = np.concatenate([(np.arange(len(kind)) + 0.5) / max(len(kind), 1) for kind in kinds])
    mixed = np.concatenate(kinds)[np.argsort(turns, kind="stable")]
    return Questions(mixed, asked[mixed], probability[mixed])


def asks_about_set(table: CleanedTable) -> npt.NDArray[np.bool_]:
    """Whether a label is doubted because its set may lack it, and not for another candidate."""
    cleaned = table.labels
    doubted = cleaned.suspicion > OF_SET * (1 - cleaned.confidence)
    return np.asarray((cleaned.outside >= 0) & doubted & (cleaned.suspicion > 0))


def alternatives(table: CleanedTable) -> Numbers:
    """The likeliest label beside the chosen one, inside or outside the set; itself if none is."""
    return np.where(asks_about_set(table), table.labels.outside, table.labels.runner_up)


def review_columns(table: CleanedTable, rows: Numbers, separator: str | None = None) -> Columns:
    """The queue as a table, with the reason for each row and an empty column for the answer.

    Examples:
        >>> from ltpll.cleaning.stored_tables import read_cleaned
        >>> table = read_cleaned("ltpll-runs/birds")
        >>> from ltpll.tables.writers import write_table
        >>> write_table(Path("queue.csv"), review_columns(table, review_rows(table)))
    """
    names, cleaned = table.classes, table.labels
    of_set, sets = (asks_about_set(table) | cleaned.issue)[rows], table.sets(separator)
    label, runner_up = cleaned.label[rows], cleaned.runner_up[rows]
    columns: Columns = {"rank": np.arange(1, len(rows) + 1), "id": table.ids[rows]}
    if table.paths is not None:
        columns["path"] = table.paths[rows]
    own = {
        "candidates": [sets[i] for i in rows],
        "label": names[label],
        "confidence": rounded_column(cleaned.confidence[rows]),
        "runner_up": np.where(runner_up != label, names[runner_up], NO_NAME),
        "suggestion": np.where(of_set, names[cleaned.outside[rows]], NO_NAME),
        "why": reasons(table, rows),
        "answer": [""] * len(rows),
    }
    for name, values in table.shown.items():
        taken = name in {*columns, *own}  # answers are read from these
        columns[f"{name} (of the row)" if taken else name] = values[rows]
    return columns | own


def reasons(table: CleanedTable, rows: Numbers) -> list[str]:
    """Why each row is asked about, in a few words."""
    names = table.classes.tolist()
    label, other, of_set = table.labels.label, alternatives(table), asks_about_set(table)
    issue, sizes = table.labels.issue, np.bincount(label, minlength=len(names))
    rare = (sizes <= RARE) & (2 * sizes < sizes.sum() / max(int((sizes > 0).sum()), 1))
    found = []
    for i in rows.tolist():
        mine, instead = label[i], other[i]
        if of_set[i]:
            lacks = "set may lack" if issue[i] else "the set possibly lacks"
            words = f"{lacks} the true label: {names[instead]}?"
        elif instead != mine:
            words = f"doubtful between {names[mine]} and {names[instead]}"
        else:
            words = f"unsure of {names[mine]}"
        rarest = min((mine, instead), key=lambda c: sizes[c])
        size = counted(int(sizes[rarest]), "example") if sizes[rarest] else "no example yet"
        found.append(f"{words}; rare class {names[rarest]}, {size}" if rare[rarest] else words)
    return found
