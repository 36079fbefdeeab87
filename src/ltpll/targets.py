"""Targets: what we now believe of each example, kept beside the candidates and read and written by row number."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.candidates import Candidates


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

    def on_candidates(self, index: Tensor) -> Tensor:
        """Those of each row's own candidates, (batch, max_size), in the order of `Candidates.rows`; short rows repeat their last one."""

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
        where, labels = self.candidates.rows(index)
        dense = self.values.new_zeros(len(labels), self.candidates.n_classes)
        return dense.scatter_(1, labels, self.candidates.read(self.values, where))

    def __setitem__(self, index: Tensor, rows: Tensor) -> None:
        where, labels = self.candidates.rows(index)
        self.candidates.write(self.values, where, rows.gather(1, labels).to(self.values.dtype))

    def on_candidates(self, index: Tensor) -> Tensor:
        return self.candidates.read(self.values, self.candidates.rows(index).where)

    def labels(self) -> Tensor:
        return _most_believed(self, self.candidates)

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

    def on_candidates(self, index: Tensor) -> Tensor:
        return self.values[index[:, None], self.candidates.rows(index).labels]

    def labels(self) -> Tensor:
        return _most_believed(self, self.candidates)

    def mean(self) -> Tensor:
        total = torch.zeros(self.candidates.n_classes, dtype=torch.float64, device=self.values.device)
        for index in self.candidates.parts(self.candidates.n_classes):
            part = self.values[index] * self.candidates[index]
            total += (part / part.sum(1, keepdim=True)).sum(0, dtype=torch.float64)
        return (total / len(self)).float()


def _most_believed(targets: Targets, candidates: Candidates) -> Tensor:
    best = []
    for index in candidates.parts(candidates.max_size):
        at = targets.on_candidates(index).argmax(1, keepdim=True)
        best.append(candidates.rows(index).labels.gather(1, at).squeeze(1))
    return torch.cat(best)


def initial_targets(
    candidates: Candidates, targets_on: Literal["candidates", "classes"] = "candidates", dtype: torch.dtype = torch.float32
) -> Targets:
    """Uniform targets in the layout that a method's `targets_on` asks for."""
    return CandidateTargets(candidates, dtype) if targets_on == "candidates" else ClassTargets(candidates, dtype)


class Transduced(NamedTuple):
    """What training came to believe of its own examples, one entry a row."""

    labels: npt.NDArray[Any]
    confidence: npt.NDArray[np.float32]
    runner_up: npt.NDArray[Any]  # the label itself where it is the only candidate
    margin: npt.NDArray[np.float32]  # by how much the label is believed more than the runner-up


def transduce(targets: Targets, candidates: Candidates) -> Transduced:
    """Class numbers and beliefs of the two most believed candidates of each row; the lower number where both are believed as much."""
    parts = []
    places, sizes = torch.arange(candidates.max_size, device=candidates.device), candidates.sizes
    for index in candidates.parts(candidates.max_size):
        labels = candidates.rows(index).labels
        beliefs = targets.on_candidates(index).masked_fill(places >= sizes[index][:, None], -1.0)  # not the repeated ones
        total = beliefs.clamp_min(0).sum(1, keepdim=True)  # one, except for methods that weigh the other classes too
        first = beliefs.argmax(1, keepdim=True)
        most = beliefs.gather(1, first)
        beliefs.scatter_(1, first, -1.0)
        second = beliefs.argmax(1, keepdim=True)
        next_most = beliefs.gather(1, second)
        second = torch.where(next_most < 0, first, second)
        confidence, beside = most / total, next_most.clamp_min(0) / total
        columns = (labels.gather(1, first), confidence, labels.gather(1, second), confidence - beside)
        parts.append([column.squeeze(1) for column in columns])
    return Transduced(*(torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)))
