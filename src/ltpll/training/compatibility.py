"""Compatibility: refuse parts and data that do not fit together, before training."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from ltpll.candidates import Candidates
from ltpll.errors import InputError, InputWarning
from ltpll.formatting import counted
from ltpll.interfaces import Method, Rebalancer
from ltpll.rebalancers.none import NoRebalancing
from ltpll.validation import rows_per_chunk
from ltpll.views import Views, ViewSource


def check_parts(head: nn.Linear, method: Method, rebalancer: Rebalancer, views: ViewSource) -> None:
    """Raise an InputError if the parts cannot be combined; warn if that makes no sense."""
    if method.why_no_rebalancer and not isinstance(rebalancer, NoRebalancing):
        raise InputError(
            f"The method {method.name!r} cannot be combined with the rebalancer "
            f"{rebalancer.name!r}: {method.why_no_rebalancer}"
        )
    try:
        with torch.no_grad():
            fits = len(rebalancer.log_prior(head)) == head.out_features
    except RuntimeError:
        fits = False
    if not fits:
        raise InputError(
            f"The rebalancer {rebalancer.name!r} was created for another model or other classes: this one's head "
            f"takes {counted(head.in_features, 'feature')} and has "
            f"{counted(head.out_features, 'class', 'classes')}."
        )
    if len(set(method.views)) > 1 and isinstance(views, Views) and not (views.weak or views.strong):
        warnings.warn(
            f"The method {method.name!r} compares a weak with a strong view, but without "
            "augmentation both are equal: pass views=Views(weak=…, strong=…).",
            InputWarning,
            stacklevel=3,
        )


def check_data(inputs: Tensor, sets: Candidates, head: nn.Linear) -> None:
    """Raise an InputError if the data do not fit the model or each other, or teach nothing."""
    if len(inputs) != len(sets):
        rows, others = counted(len(inputs), "row"), counted(len(sets), "candidate set")
        raise InputError(
            f"The data have {rows} of features but {others}: they must be the same rows."
        )
    if sets.n_classes != head.out_features:
        raise InputError(
            f"The candidates have {sets.n_classes} classes, "
            f"but the model's head has {head.out_features}."
        )
    sets.check_learnable()
    check_features_differ(inputs)


def check_features_differ(inputs: Tensor) -> None:
    """Raise an InputError if all rows are the same."""
    if all(bool((part == inputs[:1]).all()) for part in inputs.split(rows_per_chunk(inputs))):
        raise InputError(
            f"All {len(inputs)} rows of the features are identical: "
            "nothing can be learned from them."
        )
