"""Comparison: which of two ways to train knows more about held-out candidate sets."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
import torch
from sklearn.base import clone

from ltpll.candidates import Candidates
from ltpll.evaluation.set_information import set_information
from ltpll.folds import enough_to_estimate, estimate_splits
from ltpll.interfaces import Rebalancer
from ltpll.priors.joining import can_weigh
from ltpll.rebalancers import Anchor, MeanTarget, SetEvidence
from ltpll.rebalancers.auto import AVERAGE, PLAIN, Auto, rejects_independence
from ltpll.training.checkpoint import Tensors
from ltpll.training.distributed import current_world
from ltpll.training.fold_training import CallbacksOf, FoldRun, KeptFolds, fold_parts, train_folds
from ltpll.training.job import Part

MOST_PROBABILITIES = 2**26  # of all rows and classes, which are held in memory
WAYS = (PLAIN, AVERAGE)


def can_compare(rebalancer: Rebalancer, x: Any, candidates: Candidates) -> TypeGuard[Auto]:
    """Whether "auto" cannot decide by the sets, and a comparison is affordable: for tables only."""
    affordable = x.ndim == 2 and len(candidates) * candidates.n_classes <= MOST_PROBABILITIES
    affordable = affordable and enough_to_estimate(candidates)
    return isinstance(rebalancer, Auto) and affordable and rebalancer.is_undecided(candidates)


def comparison_parts(classifier: Any, candidates: Candidates) -> list[Part]:
    """The training runs of a comparison, as parts of a job."""
    return fold_parts("comparison", classifier, estimate_splits(candidates) * len(WAYS))


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

    Args:
        classifier: A classifier with the rebalancer "auto"; its other settings are used.
        rebalancer: That rebalancer.
        x: The features, (rows, features).
        candidates: The candidate sets.
        callbacks_of: Callbacks of each training run.
        kept: Where the training runs are kept.

    Returns:
        The set information of "plain" and of "average", in nats.
    """
    average = Anchor("average", "point", warmup=rebalancer.warmup, lift="warm-up")
    weighs = can_weigh(candidates) and rejects_independence(rebalancer.estimate(candidates))
    plain: Rebalancer = SetEvidence() if weighs else MeanTarget()
    ways: dict[str, Rebalancer] = dict(zip(WAYS, (plain, average), strict=True))
    options = dict(classifier.options or {})
    options.pop("auto", None)
    splits, world, scores = estimate_splits(candidates), current_world(), {}
    shape = len(candidates), candidates.n_classes
    for k, (way, instead) in enumerate(ways.items()):
        found = np.empty(shape, dtype=np.float32)
        other = clone(classifier).set_params(rebalancer=instead, options=options or None)
        other.set_params(goal="accuracy")
        runs = [
            FoldRun(number, other, x, split, _predicted)
            for number, split in enumerate(splits, k * len(splits))
        ]
        for rows, tensors in train_folds(runs, candidates, callbacks_of, kept):
            found[rows] = tensors["accuracy"].numpy()
        if world.first:
            scores[way] = set_information(found, candidates).nats
    agreed: dict[str, float] = world.value_of_first_process(scores)
    return agreed


def _predicted(classifier: Any, x: Any, sets: Candidates) -> Tensors:
    return {"accuracy": torch.from_numpy(classifier.predict_proba(x))}
