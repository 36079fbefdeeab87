"""Pruned tables: a user's table whose candidate sets are pruned by neighbours before training."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ltpll.cleaning.dataset import Examples
from ltpll.cleaning.settings import DEFAULT_PRIOR, TrainingSettings
from ltpll.errors import InputError
from ltpll.methods import METHODS
from ltpll.pruning.neighbours import OnProgress
from ltpll.pruning.votes import Lost, Pruned, prune_candidates, remove_marked_labels
from ltpll.rebalancers.auto import Auto, shares_of

NEEDS_FEATURES = "Neighbours are found by features, not by pixels"


class PrunedExamples(NamedTuple):
    """Examples whose sets were pruned, and what was removed."""

    examples: Examples
    of_training: Pruned  # of the training rows, the only ones that change
    lost: Lost | None  # the true labels of the training rows, if any are known


def prune_examples(examples: Examples, on_progress: OnProgress | None = None) -> PrunedExamples:
    """Prune the candidate sets of a table; held-out rows neither vote nor change.

    Args:
        examples: The examples, from `read_examples`, with features.
        on_progress: Called several times with the amount of finished work and its total.

    Returns:
        The examples with the sets that are left, and what was removed.

    Raises:
        InputError: The examples are pictures, or none of them is for training.
    """
    if examples.x.ndim != 2:
        raise InputError(f"{NEEDS_FEATURES}: give a pretrained network with --backbone.")
    chosen, sets = examples.training(), examples.candidates
    training = np.flatnonzero(chosen)
    if not len(training):
        raise InputError(
            "No row is for training, so there is nothing to prune: write train in the "
            "column of splits."
        )
    everything = len(training) == len(examples)
    x, own = (examples.x, sets) if everything else (examples.x[training], sets.select(training))
    found = prune_candidates(x, own, on_progress=on_progress)
    left, labels = found.candidates, examples.table.labels
    if not everything:
        removed = np.zeros(len(sets.labels), dtype=bool)
        removed[np.repeat(chosen, sets.sizes.numpy())] = found.removed.numpy()
        left = remove_marked_labels(sets, removed).candidates
    lost = None if labels is None else found.lost(labels[training])
    pruned = replace(examples, table=replace(examples.table, candidates=left))
    return PrunedExamples(pruned, found, lost if lost is not None and lost.rows else None)


def settings_after_pruning(settings: TrainingSettings, found: PrunedExamples) -> TrainingSettings:
    """The settings for training on pruned sets, with class shares from the sets before pruning."""
    chosen = (
        settings.rebalancer == Auto.name
        and settings.prior == DEFAULT_PRIOR
        and not METHODS[settings.method].why_no_rebalancer
    )
    shares = shares_of(found.of_training.given) if chosen else None
    return settings if shares is None else replace(settings, prior=shares)
