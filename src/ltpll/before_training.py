"""Before training: how sets are best trained on, and how many lack the true label, by folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
import torch
from sklearn.base import clone

from ltpll.candidates import Candidates
from ltpll.errors import InputError, shown
from ltpll.evaluation.missing_labels import missing_by_size
from ltpll.evaluation.set_information import set_information
from ltpll.evaluation.set_predictions import SetPredictions, judged
from ltpll.folds import Rows, fold_splits, number_of_groups
from ltpll.interfaces import Rebalancer
from ltpll.priors import estimate_prior
from ltpll.priors.joining import can_weigh
from ltpll.rebalancers import Anchor, MeanTarget, SetEvidence
from ltpll.rebalancers.auto import AVERAGE, PLAIN, Auto, rejects_independence
from ltpll.training.checkpoint import Tensors
from ltpll.training.distributed import current_world
from ltpll.training.fold_training import CallbacksOf, FoldRun, KeptFolds, fold_parts, train_folds
from ltpll.training.job import Part

FOLDS = 3
FEWEST_ROWS = 60  # with fewer, the decisions are mostly noise
MOST_PROBABILITIES = 2**26  # of all rows and classes, which are held in memory
WAYS = (PLAIN, AVERAGE)

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

FoldsOf = tuple[()] | tuple[CallbacksOf, KeptFolds]
"""The callbacks of each training run of a cross-validation, and where the runs are kept."""


def _enough(sets: Candidates) -> bool:
    """Whether there are enough rows and groups for a cross-validation."""
    return len(sets) >= FEWEST_ROWS and number_of_groups(sets) >= FOLDS


def _splits(sets: Candidates) -> list[tuple[Rows, Rows]]:
    return fold_splits(sets, FOLDS, seed=0)


# ---- class shares --------------------------------------------------------------------------------


def can_compare(rebalancer: Rebalancer, x: Any, candidates: Candidates) -> TypeGuard[Auto]:
    """Whether "auto" cannot decide by the sets, and a comparison is affordable: for tables only."""
    affordable = x.ndim == 2 and len(candidates) * candidates.n_classes <= MOST_PROBABILITIES
    affordable = affordable and _enough(candidates)
    return isinstance(rebalancer, Auto) and affordable and rebalancer.is_undecided(candidates)


def comparison_parts(classifier: Any, candidates: Candidates) -> list[Part]:
    """The training runs of a comparison, as parts of a job."""
    return fold_parts("comparison", classifier, _splits(candidates) * len(WAYS))


def held_out_scores(
    classifier: Any,
    rebalancer: Auto,
    x: Any,
    candidates: Candidates,
    callbacks_of: CallbacksOf = lambda number: (),
    kept: KeptFolds | None = None,
) -> dict[str, float]:
    """Score class shares left alone, and fixed at the average of the sets, by cross-validation.

    Where shares are left alone, targets weigh which labels share sets if "auto" would do so.

    Returns:
        The set information of "plain" and of "average", in nats.
    """
    average = Anchor("average", "point", warmup=rebalancer.warmup, lift="warm-up")
    weighs = can_weigh(candidates) and rejects_independence(rebalancer.estimate(candidates))
    plain: Rebalancer = SetEvidence() if weighs else MeanTarget()
    options = dict(classifier.options or {})
    options.pop("auto", None)
    world, scores = current_world(), {}
    for k, (way, instead) in enumerate(zip(WAYS, (plain, average), strict=True)):
        found = np.empty((len(candidates), candidates.n_classes), dtype=np.float32)
        other = clone(classifier).set_params(rebalancer=instead, options=options or None)
        other.set_params(goal="accuracy")
        runs = [
            FoldRun(number, other, x, split, _probabilities)
            for number, split in enumerate(_splits(candidates), k * FOLDS)
        ]
        for rows, tensors in train_folds(runs, candidates, callbacks_of, kept):
            found[rows] = tensors["accuracy"].numpy()
        if world.first:
            scores[way] = set_information(found, candidates).nats
    agreed: dict[str, float] = world.value_of_first_process(scores)
    return agreed


def _probabilities(classifier: Any, x: Any, sets: Candidates) -> Tensors:
    return {"accuracy": torch.from_numpy(classifier.predict_proba(x))}


# ---- missing labels ------------------------------------------------------------------------------


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
    return fold_parts("estimate", classifier, _splits(candidates) if _enough(candidates) else [])


def estimate_missing(
    classifier: Any,
    x: Any,
    candidates: Candidates,
    callbacks_of: CallbacksOf = lambda number: (),
    kept: KeptFolds | None = None,
) -> list[float]:
    """Estimate the share of sets that lack the true label, by out-of-fold predictions.

    Returns:
        The share for sets of each size, from 0 to the number of classes; all zero if hardly any set
        seems to lack the true label.
    """
    nothing = [0.0] * (candidates.n_classes + 1)
    least = LEAST_SHARE[estimate_prior(candidates).regime] if _enough(candidates) else 1.0
    if least == 1:
        return nothing
    found, world = SetPredictions.empty(candidates), current_world()
    guessing = clone(classifier).set_params(truth_missing=GUESS, goal="accuracy")
    runs = [
        FoldRun(number, guessing, x, split, judged)
        for number, split in enumerate(_splits(candidates))
    ]
    for rows, predictions in train_folds(runs, candidates, callbacks_of, kept):
        found.store_rows(rows, SetPredictions.from_tensors(predictions))
    by_size = missing_by_size(found, candidates.n_classes) if world.first else nothing
    shares: list[float] = world.value_of_first_process(by_size)
    return shares if overall_share(shares, candidates) >= least else nothing


def overall_share(shares: Sequence[float], candidates: Candidates) -> float:
    """The share of all sets together, from the shares for sets of each size."""
    return float(np.asarray(shares)[candidates.sizes.cpu().numpy()].mean())
