"""Missing share: how many candidate sets lack the true label, estimated by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from ltpll.candidates import Candidates
from ltpll.errors import InputError, shown
from ltpll.evaluation.missing_labels import missing_by_size
from ltpll.evaluation.set_predictions import SetPredictions, judged
from ltpll.folds import enough_to_estimate, estimate_splits
from ltpll.priors import estimate_prior
from ltpll.training.distributed import current_world
from ltpll.training.fold_training import CallbacksOf, FoldRun, KeptFolds, fold_parts, train_folds
from ltpll.training.job import Part

NEVER, AUTO = "never", "auto"
# The share that the classifiers of the cross-validation assume: they are not misled if it is zero,
# and better if it is large.
GUESS = 0.2
# The estimated share below which sets are taken to hold the true label, by how the sets arose
# (`ltpll.priors`). The estimate assumes that wrong labels are drawn at random. Where they are not,
# the classifier's own mistakes look like missing labels: up to 0.18 where none was missing. Where
# sets hold what occurs together, opening them gained nothing with any share
# (docs/missing-labels.md).
LEAST_SHARE = {"independent": 0.02, "unclear": 0.2, "co-occurrence": 1.0}


def check_truth_missing(value: Any) -> None:
    """Refuse a setting that is neither "never" nor "auto" nor a share."""
    shares = value if isinstance(value, list | tuple) else [value]
    numbers = all(isinstance(share, int | float) and 0 <= share < 1 for share in shares)
    if value not in (NEVER, AUTO) and (not numbers or not shares or bool in map(type, shares)):
        raise InputError(
            f"truth_missing is {shown(value)}: choose {NEVER!r}, {AUTO!r}, or the share of sets "
            "that lack the true label, below 1."
        )


def missing_parts(classifier: Any, candidates: Candidates) -> list[Part]:
    """The training runs of the estimate, as parts of a job; none if there are too few rows."""
    splits = estimate_splits(candidates) if enough_to_estimate(candidates) else []
    return fold_parts("estimate", classifier, splits)


def estimate_missing(
    classifier: Any,
    x: Any,
    candidates: Candidates,
    callbacks_of: CallbacksOf = lambda number: (),
    kept: KeptFolds | None = None,
) -> list[float]:
    """Estimate the share of sets that lack the true label, by out-of-fold predictions.

    Args:
        classifier: The classifier whose settings are used.
        x: The examples.
        candidates: Their candidate sets.
        callbacks_of: Callbacks of each training run.
        kept: Where the training runs are kept.

    Returns:
        The share for sets of each size, from 0 to the number of classes; all zero if hardly any set
        seems to lack the true label.

    Examples:
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = uniform_candidates(y, n_classes=4, ambiguity=0.3, seed=0)
        >>> classifier = PartialLabelClassifier(rebalancer="records", epochs=1)
        >>> share = estimate_missing(classifier, X, sets)
    """
    nothing, enough = [0.0] * (candidates.n_classes + 1), enough_to_estimate(candidates)
    least = LEAST_SHARE[estimate_prior(candidates).regime] if enough else 1.0
    if least == 1:
        return nothing
    found, world = SetPredictions.empty(candidates), current_world()
    guessing = clone(classifier).set_params(truth_missing=GUESS, goal="accuracy")
    runs = [
        FoldRun(number, guessing, x, split, judged)
        for number, split in enumerate(estimate_splits(candidates))
    ]
    for rows, predictions in train_folds(runs, candidates, callbacks_of, kept):
        found.store_rows(rows, SetPredictions.from_tensors(predictions))
    by_size = missing_by_size(found, candidates.n_classes) if world.first else nothing
    shares: list[float] = world.value_of_first_process(by_size)
    return shares if overall_share(shares, candidates) >= least else nothing


def overall_share(shares: Sequence[float], candidates: Candidates) -> float:
    """The share of all sets together, from the shares for sets of each size."""
    return float(np.asarray(shares)[candidates.sizes.cpu().numpy()].mean())
