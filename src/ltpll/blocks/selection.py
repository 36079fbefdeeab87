"""Selection: which examples of a batch a self-training system relies on, and how it blends them; in fixed shapes, for captured steps."""

from __future__ import annotations

import torch
from torch import Tensor


def lowest_in_class(losses: Tensor, labels: Tensor, quotas: Tensor) -> Tensor:
    """Which examples, (batch,), are among the `quotas[k]` lowest losses of those labelled k; the earlier one where losses are equal."""
    order = torch.arange(len(losses), device=losses.device)
    same = labels[:, None] == labels[None, :]
    earlier = (losses[None, :] == losses[:, None]) & (order[None, :] < order[:, None])
    before = (same & ((losses[None, :] < losses[:, None]) | earlier)).sum(1)
    return before < quotas[labels]


def partners_among(chosen: Tensor, generator: torch.Generator) -> Tensor:
    """A random permutation of the chosen examples, as the partner of each; all others have themselves."""
    everyone = torch.arange(len(chosen), device=chosen.device)
    draws = torch.rand(len(chosen), generator=generator, device=chosen.device)
    # The chosen ones in random order, then the others.
    shuffled = torch.where(chosen, draws, draws + 1).argsort()
    place = chosen.cumsum(0) - 1
    return torch.where(chosen, shuffled[place.clamp_min(0)], everyone)


def folded_beta(alpha: int, generator: torch.Generator) -> Tensor:
    """One number from Beta(α, α), or one minus it, whichever is larger: the share of the first example in a blend."""
    # The median of 2α − 1 uniform numbers is Beta(α, α); torch's Beta takes no generator and would hide state.
    share = torch.rand(2 * alpha - 1, generator=generator, device=generator.device).median()
    return torch.maximum(share, 1 - share)


def blend(values: Tensor, partner: Tensor, share: Tensor) -> Tensor:
    """Each row's share of itself and the rest of its partner."""
    return share * values + (1 - share) * values[partner]


def mean_over(values: Tensor, chosen: Tensor) -> Tensor:
    """The mean of the chosen values; 0 if there are none."""
    return torch.where(chosen, values, 0.0).sum() / chosen.sum().clamp_min(1)
