"""Neighbours: the exact nearest other rows of every row, found in blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

VALUES_PER_BLOCK = 1 << 24  # limits memory, which must not grow with the square of the rows
SPARE = 4  # further neighbours that are kept until distances are computed without cancellation
NOBODY = -1

OnProgress = Callable[[int, int], None]
"""Called with the amount of finished work and its total."""


class Neighbours(NamedTuple):
    """The nearest rows of each row, the nearest first.

    `rows` are their numbers and `distances` their distances, both (N, k), or (N, N) if there are
    fewer rows. Where a row has fewer than k others, the number is −1 and the distance is infinite.
    """

    rows: Tensor
    distances: Tensor


def nearest_neighbours(
    x: Tensor, k: int, *, groups: Tensor | None = None, on_progress: OnProgress | None = None
) -> Neighbours:
    """Find the k nearest other rows of every row, by Euclidean distance.

    Args:
        x: (N, d) float32 features on the CPU.
        k: The number of neighbours.
        groups: (N,) integers; rows of the same group are not neighbours of each other.
        on_progress: Called after each block of rows, with their number so far and the total.

    Returns:
        The neighbours; of rows at the same distance, the one with the lower number comes first. If
        more rows than k have the same smallest distance, it is arbitrary, but reproducible, which
        of them are found.

    Examples:
        >>> nearest_neighbours(torch.tensor([[0.0], [1.0], [3.0]]), k=1).rows.flatten()
        tensor([1, 0, 1])
    """
    n, kept = len(x), min(k + SPARE, len(x))
    groups = torch.arange(n) if groups is None else groups
    shifted = x - x.mean(0)
    half = shifted.square().sum(1) / 2
    blocks = torch.arange(n).split(max(1, VALUES_PER_BLOCK // max(n, kept * x.shape[1])))
    found = []
    for done, rows in enumerate(blocks, 1):
        # Half the squared distances, without what the distances of a row have in common.
        distances = torch.addmm(half, shifted[rows], shifted.T, alpha=-1)
        distances.masked_fill_(groups[rows][:, None] == groups, torch.inf)
        nearest, index = distances.topk(kept, dim=1, largest=False)
        index = index.masked_fill(nearest.isinf(), NOBODY).sort(dim=1).values
        # From differences, since distances from products are inexact for rows that are close.
        exact = torch.linalg.vector_norm(x[index.clamp_min(0)].sub_(x[rows][:, None]), dim=2)
        exact, order = exact.masked_fill_(index == NOBODY, torch.inf).sort(dim=1, stable=True)
        found.append((index.gather(1, order)[:, :k], exact[:, :k]))
        if on_progress is not None:
            on_progress(done, len(blocks))
    return Neighbours(*(torch.cat(parts) for parts in zip(*found, strict=True)))
