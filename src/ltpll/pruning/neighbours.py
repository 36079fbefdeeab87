"""Neighbours: the exact nearest other rows of every row, in blocks, so that memory does not grow with the square of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ltpll.training.cpu_threads import Threads
from ltpll.validation import rows_per_chunk

BLOCK = 2048  # rows of a block; smaller ones multiply more slowly, and products of larger ones leave the processor's cache
SPARE = 4  # further neighbours that are kept until distances are computed without cancellation
RERANKED_VALUES = 1 << 20
NOBODY = -1

OnProgress = Callable[[int, int], None]
"""Called with the amount of finished work and its total."""


class Neighbours(NamedTuple):
    """The nearest rows of each row, the nearest first: their numbers and distances, both (N, k), or (N, N) if there are fewer rows.

    Where a row has fewer than k others, the number is −1 and the distance is infinite.
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
    shifted = x - x.mean(0)
    half = shifted.square().sum(1) / 2
    index = torch.full((n, kept), NOBODY)
    threads = Threads()
    with threads.restored():
        threads.choose(lambda: lambda rows: shifted[:rows] @ shifted[:rows].T, BLOCK)
        for start in range(0, n, BLOCK):
            rows = slice(start, start + BLOCK)
            nearest = torch.full_like(shifted[rows, :1], torch.inf).repeat(1, kept)
            for begin in range(0, n, BLOCK):
                columns = slice(begin, begin + BLOCK)
                # Half the squared distances, without what the distances of a row have in common.
                distances = torch.addmm(half[columns], shifted[rows], shifted[columns].T, alpha=-1)
                if rows == columns:
                    distances.fill_diagonal_(torch.inf)
                if groups is not None:
                    distances[groups[rows][:, None] == groups[columns]] = torch.inf
                near, found = distances.topk(min(kept, distances.shape[1]), dim=1, largest=False)
                nearest, best = torch.cat([nearest, near], dim=1).topk(kept, dim=1, largest=False)
                index[rows] = torch.cat([index[rows], found + begin], dim=1).gather(1, best)
            index[rows] = index[rows].masked_fill(nearest.isinf(), NOBODY)
            if on_progress is not None:
                on_progress(rows.stop // BLOCK, -(-n // BLOCK))
        return _reranked(x, index, k)


def _reranked(x: Tensor, index: Tensor, k: int) -> Neighbours:
    """The k nearest, by distances that are computed from differences: those from products are inexact for rows that are close together."""
    distance = torch.empty(index.shape)
    for rows in torch.arange(len(x)).split(
        max(1, rows_per_chunk(x, RERANKED_VALUES) // index.shape[1])
    ):
        given, _ = index[rows].sort(dim=1)
        difference = x[given.clamp_min(0)].sub_(x[rows][:, None])
        found = torch.linalg.vector_norm(difference, dim=2).masked_fill_(given == NOBODY, torch.inf)
        distance[rows], by_distance = found.sort(dim=1, stable=True)
        index[rows] = given.gather(1, by_distance)
    return Neighbours(index[:, :k], distance[:, :k])
