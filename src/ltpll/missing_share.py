"""Missing share: how many candidate sets lack the true label, estimated by cross-validation without true labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from ltpll.candidates import Candidates
from ltpll.errors import InputError, shown
from ltpll.evaluation.missing_labels import missing_by_size
from ltpll.evaluation.set_predictions import SetPredictions, judged
from ltpll.folds import fold_splits
from ltpll.priors import estimate_prior
from ltpll.training.distributed import current_world
from ltpll.training.fold_training import CallbacksOf, KeptFolds, fold_parts, train_folds
from ltpll.training.job import Part

NEVER, AUTO = "never", "auto"
FOLDS = 3
# The share that the classifiers of the cross-validation assume: they are not misled if it is zero,
# and better if it is large.
GUESS = 0.2
# The estimated share below which sets are taken to hold the true label, by how the sets arose
# (`ltpll.priors`). The estimate assumes that wrong labels are drawn at random. Where they are not,
# the classifier's own mistakes look like missing labels: up to 0.18 where none was missing. Where
# sets hold what occurs together, opening them gained nothing with any share
# (docs/missing-labels.md).
LEAST_SHARE = {"independent": 0.02, "unclear": 0.2, "co-occurrence": 1.0}
FEWEST_ROWS = 60  # with fewer, sets are taken to hold the true label


def check_truth_missing(value: Any) -> None:
    """Refuse a setting that is neither "never" nor "auto" nor a share.

    Raises:
        InputError: It is something else.
    """
    shares = value if isinstance(value, list | tuple) else [value]
    numbers = all(
        isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share < 1
        for share in shares
    )
    if value not in (NEVER, AUTO) and not (numbers and len(shares)):
        raise InputError(
            f"truth_missing is {shown(value)}: choose {NEVER!r}, {AUTO!r}, or the share of sets that lack the true label, below 1."
        )


def missing_parts(classifier: Any, candidates: Candidates) -> list[Part]:
    """The trainings of the estimate, as parts of a job; none if there are too few rows."""
    return (
        fold_parts("estimate", classifier, fold_splits(candidates, FOLDS, seed=0))
        if _enough(candidates)
        else []
    )


def estimate_missing(
    classifier: Any,
    x: Any,
    candidates: Candidates,
    callbacks_of: CallbacksOf = lambda number: (),
    kept: KeptFolds | None = None,
) -> list[float]:
    """Estimate the share of sets that lack the true label, by the probability that out-of-fold classifiers give to classes outside them.

    Args:
        classifier: The classifier whose settings are used.
        x: The examples.
        candidates: Their candidate sets.
        callbacks_of: Callbacks of each training.
        kept: Where the trainings are kept.

    Returns:
        The share for sets of each size, from 0 to the number of classes; all zero if hardly any set
        seems to lack the true label.

    Examples:
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = uniform_candidates(y, n_classes=4, ambiguity=0.3, seed=0)
        >>> classifier = PartialLabelClassifier(rebalancer="records", epochs=1)
        >>> share = estimate_missing(classifier, X, sets)
    """
    nothing = [0.0] * (candidates.n_classes + 1)
    least = LEAST_SHARE[estimate_prior(candidates).regime] if _enough(candidates) else 1.0
    if least == 1:
        return nothing
    found = SetPredictions.empty(candidates)
    guessing = clone(classifier).set_params(truth_missing=GUESS, goal="accuracy")
    splits = fold_splits(candidates, FOLDS, seed=0)
    for rows, predictions in train_folds(
        guessing, x, candidates, splits, judged, callbacks_of=callbacks_of, kept=kept
    ):
        found.put(rows, SetPredictions.from_tensors(predictions))
    world = current_world()
    shares: list[float] = world.agreed(
        missing_by_size(found, candidates.n_classes) if world.first else nothing
    )
    return shares if overall_share(shares, candidates) >= least else nothing


def overall_share(shares: Sequence[float], candidates: Candidates) -> float:
    """The share of all sets together, from the shares for sets of each size."""
    return float(np.asarray(shares)[candidates.sizes.cpu().numpy()].mean())


def _enough(candidates: Candidates) -> bool:
    groups = candidates.groups
    return len(candidates) >= FEWEST_ROWS and (groups is None or len(groups.unique()) >= FOLDS)
