"""Row blocks: the losses of a large step, computed for as many rows at a time as fit into a cache.

With 10,000 classes, the dense targets and losses of a whole batch take hundreds of megabytes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress

import torch
from torch import Tensor

from ltpll.interfaces import Outputs

VALUES = 2**18  # rows times classes that each thread computes at once


def rows_of_block(n_classes: int, together: int = 1) -> int:
    """The rows of a block: a multiple of `together`, and at least so many."""
    rows = VALUES * torch.get_num_threads() // n_classes
    return max(rows // together, 1) * together


def views_of(logits: Tensor, features: Tensor, n_views: int) -> Outputs:
    """The outputs of each view, which follow one another."""
    return Outputs(logits.chunk(n_views), features.chunk(n_views))


def backward_in_blocks(
    parts: tuple[Tensor, Tensor],
    n_views: int,
    size: int,
    loss_of: Callable[[slice, Outputs], Tensor],
) -> None:
    """The backward pass of a loss that is a sum over blocks of `size` rows.

    Args:
        parts: The logits and the features of all views, one view after the other.
        n_views: The number of views.
        size: The rows of a block.
        loss_of: Returns the loss of some rows, given their outputs.
    """
    # Not views that autograd knows: it would copy their gradients once more.
    whole = [part.detach().unflatten(0, (n_views, -1)) for part in parts]
    gradients = [torch.empty_like(part) for part in whole]
    for start in range(0, whole[0].shape[1], size):
        rows = slice(start, start + size)
        leaves = [[view[rows].requires_grad_() for view in part] for part in whole]
        loss_of(rows, Outputs(*map(tuple, leaves))).backward()
        for gradient, part in zip(gradients, leaves, strict=True):
            for own, leaf in zip(gradient, part, strict=True):
                own[rows] = 0.0 if leaf.grad is None else leaf.grad
    learned = [part.requires_grad for part in parts]
    torch.autograd.backward(
        [*compress(parts, learned)],
        [*compress((one.flatten(0, 1) for one in gradients), learned)],
    )
