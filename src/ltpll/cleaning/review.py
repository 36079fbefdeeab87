"""Review: which rows of a cleaned table to show to a person, who answers what their label is."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.cleaning.results import CleanedLabels, CleanedTable, Flags, Numbers
from ltpll.evaluation.audit import audit_order, is_rare, ladder

AUDIT, SUSPICIOUS, DOUBTFUL = "audit", "suspicious", "doubtful"
SAMPLE = 30  # rows of the random sample
Texts = npt.NDArray[np.object_]

QUEUE = 100  # rows


def review_rows(table: CleanedTable, n: int = QUEUE) -> Numbers:
    """The rows whose labels are most probably wrong.

    Further rows of the same group come after the others. Rows that were reviewed before, rows
    without any doubt, and held-out rows are left out.

    Examples:
        >>> from ltpll.cleaning.stored_tables import read_cleaned
        >>> table = read_cleaned("ltpll-runs/birds")
        >>> len(review_rows(table, 5))
        5
    """
    rows = askable_rows(table.labels, table.reviewed)
    rows = rows[np.argsort(-table.doubts[rows], kind="stable")]
    rows = rows[table.doubts[rows] > 0]
    if table.groups is not None:
        first = np.unique(table.groups[rows], return_index=True)[1]
        later = ~np.isin(np.arange(len(rows)), first)
        rows = rows[np.argsort(later, kind="stable")]
    return rows[:n]


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
