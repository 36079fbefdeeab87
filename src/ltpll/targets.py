"""Targets: what we now believe of each example, kept beside the candidates and read and written by row number."""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch import Tensor

from ltpll.candidates import Candidates

CHUNK = 1 << 14


def restricted_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the classes where `mask` is true, zero elsewhere; a row without any stays all zero.

    Equal to `p * mask / sum(p * mask)` where that is defined, but it cannot underflow to NaN or to a dead row.
    """
    # The smallest number rather than -inf: a row of -inf gives NaN, and its mask makes it zero below anyway.
    lowest = torch.finfo(logits.dtype).min
    return torch.softmax(logits.masked_fill(~mask, lowest), dim=1) * mask


class Targets(Protocol):
    """What the trainer needs of targets, however they are stored."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Tensor) -> Tensor:
        """Dense (batch, classes) targets of the rows in `index`."""

    def __setitem__(self, index: Tensor, rows: Tensor) -> None:
        """Store dense (batch, classes) targets for the rows in `index`."""

    def labels(self) -> Tensor:
        """The candidate believed most in each row, (N,)."""

    def mean(self) -> Tensor:
        """Mean target on the candidates over all rows, (classes,): the class prior that the targets imply."""

    @property
    def values(self) -> Tensor:
        """Everything there is to checkpoint, one tensor."""


class CandidateTargets:
    """One number for each candidate, in the order of `candidates.labels`; zero for every other class."""

    def __init__(self, candidates: Candidates, dtype: torch.dtype = torch.float32) -> None:
        self.candidates = candidates
        sizes = candidates.sizes.long()
        self.values = (1.0 / sizes).to(dtype).repeat_interleave(sizes)

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, index: Tensor) -> Tensor:
        slots = self.candidates.slots(index)
        dense = torch.zeros(len(index), self.candidates.n_classes, dtype=self.values.dtype, device=self.values.device)
        return dense.scatter_(1, self.candidates.labels[slots].long(), self.values[slots])

    def __setitem__(self, index: Tensor, rows: Tensor) -> None:
        slots = self.candidates.slots(index)
        self.values[slots] = rows.gather(1, self.candidates.labels[slots].long()).to(self.values.dtype)

    def labels(self) -> Tensor:
        best = []
        for index in torch.arange(len(self), device=self.values.device).split(CHUNK):
            slots = self.candidates.slots(index)
            at = self.values[slots].argmax(1, keepdim=True)
            best.append(self.candidates.labels[slots].gather(1, at).squeeze(1).long())
        return torch.cat(best)

    def mean(self) -> Tensor:
        total = torch.zeros(self.candidates.n_classes, dtype=torch.float64, device=self.values.device)
        total.index_add_(0, self.candidates.labels.long(), self.values.double())
        return (total / len(self)).float()


class ClassTargets:
    """One number for each class of each row, candidate or not (LW weighs non-candidates too); starts at 1/C."""

    def __init__(self, candidates: Candidates, dtype: torch.dtype = torch.float32) -> None:
        self.candidates = candidates
        shape, share = (len(candidates), candidates.n_classes), 1.0 / candidates.n_classes
        self.values = torch.full(shape, share, dtype=dtype, device=candidates.device)

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, index: Tensor) -> Tensor:
        return self.values[index]

    def __setitem__(self, index: Tensor, rows: Tensor) -> None:
        self.values[index] = rows.to(self.values.dtype)

    def _on_candidates(self, index: Tensor) -> Tensor:
        """The part on the candidates, rows summing to one."""
        part = self.values[index] * self.candidates[index]
        return part / part.sum(1, keepdim=True)

    def labels(self) -> Tensor:
        chunks = torch.arange(len(self), device=self.values.device).split(CHUNK)
        return torch.cat([self.values[index].masked_fill(~self.candidates[index], -1).argmax(1) for index in chunks])

    def mean(self) -> Tensor:
        chunks = torch.arange(len(self), device=self.values.device).split(CHUNK)
        total = torch.stack([self._on_candidates(index).sum(0, dtype=torch.float64) for index in chunks]).sum(0)
        return (total / len(self)).float()


def initial_targets(
    candidates: Candidates, covers: Literal["candidates", "classes"] = "candidates", dtype: torch.dtype = torch.float32
) -> Targets:
    """Uniform targets in the layout that a method's `covers` asks for."""
    return CandidateTargets(candidates, dtype) if covers == "candidates" else ClassTargets(candidates, dtype)
