"""Selecting reliable examples of a batch and blending them, in fixed shapes for CUDA graphs."""

from __future__ import annotations

import torch
from torch import Tensor


def lowest_losses_per_class(losses: Tensor, labels: Tensor, quotas: Tensor) -> Tensor:
    """Which examples, (batch,), have one of the `quotas[k]` lowest losses among those with label k.

    The earlier one wins a tie.
    """
    by_loss = losses.argsort(stable=True)
    order = by_loss[labels[by_loss].argsort(stable=True)]  # by class, then by loss
    ordered = labels[order]
    places = torch.arange(len(losses), device=losses.device)
    before = places - torch.searchsorted(ordered, ordered)  # examples of the same class
    return torch.empty_like(places).scatter_(0, order, before) < quotas[labels]


def mixup_partners(chosen: Tensor, generator: torch.Generator) -> Tensor:
    """A random partner for each chosen example, by a permutation of the chosen ones.

    All others are their own partners.
    """
    everyone = torch.arange(len(chosen), device=chosen.device)
    draws = torch.rand(len(chosen), generator=generator, device=chosen.device)
    # The chosen examples in random order, then the others.
    shuffled = torch.where(chosen, draws, draws + 1).argsort()
    place = chosen.cumsum(0) - 1
    return torch.where(chosen, shuffled[place.clamp_min(0)], everyone)


def symmetric_beta(alpha: int, generator: torch.Generator) -> Tensor:
    """A draw from Beta(α, α), for a positive integer α."""
    # The median of 2α − 1 uniform numbers has this distribution; torch's Beta does not take a
    # generator.
    return torch.rand(2 * alpha - 1, generator=generator, device=generator.device).median()


def mixup_weights(alpha: int, generator: torch.Generator) -> Tensor:
    """max(λ, 1 − λ) with λ ~ Beta(α, α): the share of the first example in a blend."""
    share = symmetric_beta(alpha, generator)
    return torch.maximum(share, 1 - share)


def blend(values: Tensor, partner: Tensor, share: Tensor) -> Tensor:
    """share · row + (1 − share) · its partner."""
    return share * values + (1 - share) * values[partner]


def fill_with_chosen(values: Tensor, chosen: Tensor) -> Tensor:
    """Replace the rows that are not chosen by the chosen ones, in turn; all stay if none is chosen.

    Batch norm then computes the statistics of the chosen rows: exactly if their number divides that
    of all rows, and otherwise with some of them counted once more than the others.
    """
    everyone = torch.arange(len(chosen), device=chosen.device)
    chosen_first = chosen.to(torch.uint8).argsort(descending=True, stable=True)
    turn = ((~chosen).cumsum(0) - 1) % chosen.sum().clamp_min(1)
    return values[torch.where(chosen | ~chosen.any(), everyone, chosen_first[turn])]


def masked_mean(values: Tensor, chosen: Tensor) -> Tensor:
    """The mean of the chosen values; 0 if none are chosen."""
    return torch.where(chosen, values, 0.0).sum() / chosen.sum().clamp_min(1)
