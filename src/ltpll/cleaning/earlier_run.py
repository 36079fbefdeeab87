"""Earlier run: the labels of a finished run as targets from which another training starts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ltpll.cleaning.dataset import Examples
from ltpll.cleaning.results import CleanedTable, Shares
from ltpll.errors import InputError
from ltpll.formatting import counted
from ltpll.tables.columns import id_key

TRUST = 0.5  # of two candidates, one that the run was sure of starts with three times the target


def candidate_shares(run: CleanedTable) -> Shares:
    """The share of each candidate in its set, as far as a run has stored it, and equal otherwise."""
    found, owners, sizes = run.labels, run.owners, run.sizes
    label = np.clip(found.confidence / np.maximum(1 - found.suspicion, 1e-6), 0, 1)
    other = np.clip(label - found.margin, 0, 1 - label)
    runner_up = np.where(found.runner_up == found.label, 0, other)
    rest = np.clip(1 - label - runner_up, 0, 1) / np.maximum(sizes - 2, 1)
    shares = np.where(run.candidates == found.runner_up[owners], runner_up[owners], rest[owners])
    shares = np.where(run.candidates == found.label[owners], label[owners], shares)
    return shares.astype(np.float32)


def starting_from(examples: Examples, run: CleanedTable, trust: float = TRUST) -> Examples:
    """Let training start from the labels of an earlier run on the same table.

    The first targets are a mixture of the candidates' weights, with the share `1 - trust`, and of
    the earlier run's shares. They are not evidence, which would count in every refinement, so that
    training can still overrule an earlier label. Reviewed rows, and rows that the earlier run does
    not have, start from their weights. Folds start from scratch, so that no row is judged by what
    was learned from it.

    Raises:
        InputError: The run has none of the examples, or other classes.
    """
    sets = examples.candidates
    advice = "give a run on this table, or leave --start-from out"
    if [str(name) for name in sets.classes] != run.record["classes"]:
        raise InputError(
            f"The earlier run (--start-from) has other classes than the table: {advice}."
        )
    place = {id_key(name): i for i, name in enumerate(run.ids.tolist())}
    rows = np.asarray([place.get(id_key(name), -1) for name in examples.table.ids.tolist()])
    if (rows < 0).all():
        all_rows = f"the {counted(len(rows), 'example')} of the table"
        raise InputError(f"The earlier run (--start-from) has none of {all_rows}: {advice}.")
    if examples.table.reviewed is not None:
        rows[examples.table.reviewed] = -1
    n, sizes = len(run.classes), sets.sizes.numpy()
    owners, labels = np.repeat(np.arange(len(sets)), sizes), sets.labels.numpy().astype(np.int64)
    # Candidates are found by row and class in the sorted ones of the earlier run, if they are
    # there.
    known = run.owners * n + run.candidates
    order = np.argsort(known)
    sought = rows[owners] * n + labels
    at = order[np.minimum(np.searchsorted(known[order], sought), len(order) - 1)]
    shares = np.where(known[at] == sought, candidate_shares(run)[at], 0)
    given = 1 / sizes[owners] if sets.weights is None else sets.weights.numpy()
    total = np.bincount(owners, weights=shares, minlength=len(sets))[owners]
    part = np.where((rows[owners] >= 0) & (total > 0), trust, 0.0)
    mixed = (1 - part) * given + part * shares / np.maximum(total, 1e-12)
    return replace(examples, start=mixed.astype(np.float32))
