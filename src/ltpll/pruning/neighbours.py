"""Neighbours: the exact nearest other rows of every row, in blocks, so that memory does not grow with the square of the rows."""

from __future__ import annotations

import math
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


def nearest_neighbours(x: Tensor, k: int, *, groups: Tensor | None = None, on_progress: OnProgress | None = None) -> Neighbours:
    """Find the k nearest other rows of every row, by Euclidean distance.

    Args:
        x: (N, d) float32 features on the CPU.
        k: The number of neighbours.
        groups: (N,) integers; rows of the same group are not neighbours of each other.
        on_progress: Called after each block of distances.

    Returns:
        The neighbours; of rows at the same distance, the one with the lower number comes first. If more rows than k have the same smallest
        distance, it is arbitrary, but reproducible, which of them are found.

    Examples:
        >>> nearest_neighbours(torch.tensor([[0.0], [1.0], [3.0]]), k=1).rows.flatten()
        tensor([1, 0, 1])
    """
    n = len(x)
    # In random order: each new block then holds fewer and fewer rows that are nearer than those already kept, however the table is sorted.
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    search = _Search(x[order], min(k + SPARE, n), None if groups is None else groups[order])
    size = 8 * math.ceil(n / math.ceil(n / BLOCK) / 8)
    blocks = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    done, total = 0, len(blocks) * (len(blocks) + 1) // 2
    threads = Threads()
    with threads.restored():
        for distance in range(len(blocks)):  # first every block with itself, so that every row soon has a limit
            threads.choose(lambda: search.timed, size)
            for rows, columns in zip(blocks, blocks[distance:], strict=False):
                if distance:
                    search.compare(rows, columns)
                else:
                    search.begin(rows)
                done += 1
                if on_progress is not None:
                    on_progress(done, total)
        index = torch.empty_like(search.index)
        index[order] = torch.where(search.index == NOBODY, NOBODY, order[search.index])
        return _reranked(x, index, k)


class _Search:
    """The nearest rows found so far.

    Distances between two blocks of rows come from one matrix product, which serves the rows of both blocks. Few of them are below the
    largest distance that a row has kept so far, so they are only compared with it, and the few are sorted. scikit-learn's
    `NearestNeighbors` computes every product twice and in double precision, and takes more than twice as long on 100,000 × 512 values and
    two cores (`benchmarks/neighbours.py`); a `topk` of every block takes longer than its product.
    """

    def __init__(self, x: Tensor, kept: int, groups: Tensor | None) -> None:
        x = x - x.mean(0)
        half = x.square().sum(1, keepdim=True) / 2
        self.left = torch.cat([x, half, torch.ones_like(half)], dim=1)
        self.groups = groups
        self.kept = kept
        self.nearest = torch.full((len(x), kept), torch.inf)  # half the squared distances, ascending
        self.index = torch.full((len(x), kept), NOBODY)

    def distances(self, rows: slice, columns: slice) -> Tensor:
        """Half the squared distances, |a|²/2 + |b|²/2 − ab, as one product."""
        other = self.left[columns]
        return self.left[rows] @ torch.cat([-other[:, :-2], other[:, -1:], other[:, -2:-1]], dim=1).T

    def timed(self, rows: int) -> Tensor:
        return self.distances(slice(rows), slice(rows))

    def begin(self, rows: slice) -> None:
        """Compare the rows of a block with each other; nothing else has been compared with them before."""
        distances = self.distances(rows, rows).fill_diagonal_(torch.inf)
        if self.groups is not None:
            distances[self.groups[rows][:, None] == self.groups[rows]] = torch.inf
        most = min(self.kept, len(distances))
        nearest, found = distances.topk(most, dim=1, largest=False)
        self.nearest[rows, :most] = nearest
        self.index[rows, :most] = torch.where(nearest < torch.inf, found + rows.start, NOBODY)

    def compare(self, rows: slice, columns: slice) -> None:
        """Compare the rows of two blocks."""
        distances = self.distances(rows, columns)
        near = distances < self.nearest[rows, -1:]
        near |= distances < self.nearest[columns, -1]
        a, b = _positions(near)
        values, a, b = distances[a, b], a + rows.start, b + columns.start
        if self.groups is not None:
            other = self.groups[a] != self.groups[b]
            values, a, b = values[other], a[other], b[other]
        for one, another in ((a, b), (b, a)):
            nearer = values < self.nearest[one, -1]
            if bool(nearer.any()):
                self._merge(one[nearer], another[nearer], values[nearer])

    def _merge(self, rows: Tensor, others: Tensor, values: Tensor) -> None:
        """Put pairs of rows among the nearest ones of `rows`."""
        order = values.argsort()
        order = order[rows[order].argsort(stable=True)]
        rows, others, values = rows[order], others[order], values[order]
        changed, counts = rows.unique_consecutive(return_counts=True)
        line = torch.arange(len(changed)).repeat_interleave(counts)
        rank = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[line]
        width = min(int(counts.max()), self.kept)
        fits = rank < width
        new = values.new_full((len(changed), width), torch.inf)
        new_index = others.new_full((len(changed), width), NOBODY)
        new[line[fits], rank[fits]] = values[fits]
        new_index[line[fits], rank[fits]] = others[fits]
        self.nearest[changed], chosen = torch.cat([self.nearest[changed], new], dim=1).topk(self.kept, dim=1, largest=False)
        self.index[changed] = torch.cat([self.index[changed], new_index], dim=1).gather(1, chosen)


def _positions(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the true values; since there are few, eight values are tested at once where the width allows it."""
    if mask.shape[1] % 8:
        rows, columns = mask.nonzero(as_tuple=True)
        return rows, columns
    words = mask.view(torch.int64).flatten().nonzero().flatten()
    inside = mask.view(-1, 8)[words].nonzero()
    flat = 8 * words[inside[:, 0]] + inside[:, 1]
    return flat // mask.shape[1], flat % mask.shape[1]


def _reranked(x: Tensor, index: Tensor, k: int) -> Neighbours:
    """The k nearest, by distances that are computed from differences: those from products are inexact for rows that are close together."""
    distance = torch.empty(index.shape)
    for rows in torch.arange(len(x)).split(max(1, rows_per_chunk(x, RERANKED_VALUES) // index.shape[1])):
        given, _ = index[rows].sort(dim=1)
        difference = x[given.clamp_min(0)].sub_(x[rows][:, None])
        found = torch.linalg.vector_norm(difference, dim=2).masked_fill_(given == NOBODY, torch.inf)
        distance[rows], by_distance = found.sort(dim=1, stable=True)
        index[rows] = given.gather(1, by_distance)
    return Neighbours(index[:, :k], distance[:, :k])
