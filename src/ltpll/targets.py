"""Targets: the current estimate of each example's label distribution."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.candidates import Candidates
from ltpll.candidates.open_sets import OpenSets


def restricted_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the classes where `mask` is true, and zero elsewhere.

    Equal to `p * mask / sum(p * mask)` where that is defined, but cannot underflow to NaN or to
    zero.

    Args:
        logits: (N, C).
        mask: (N, C), boolean, such as the candidates of each row.

    Returns:
        Rows that sum to one; a row whose mask is all false is all zero.

    Examples:
        >>> restricted_softmax(torch.zeros(1, 3), torch.tensor([[True, False, True]]))
        tensor([[0.5000, 0.0000, 0.5000]])
    """
    # The smallest number rather than -inf, since a row of -inf gives NaN; the mask sets it to zero
    # below.
    lowest = torch.finfo(logits.dtype).min
    return torch.softmax(logits.masked_fill(~mask, lowest), dim=1) * mask


class Targets(ABC):
    """What the trainer needs from targets, however they are stored.

    `values` is the state to checkpoint, as one tensor.
    """

    candidates: Candidates
    values: Tensor

    def __len__(self) -> int:
        return len(self.candidates)

    @abstractmethod
    def __getitem__(self, index: Tensor) -> Tensor:
        """Dense (batch, classes) targets of the rows in `index`."""

    @abstractmethod
    def __setitem__(self, index: Tensor, rows: Tensor) -> None:
        """Store dense (batch, classes) targets for the rows in `index`."""

    @abstractmethod
    def on_candidates(self, index: Tensor) -> Tensor:
        """Targets of each row's own candidates, (batch, max_size), in the order of
        `Candidates.rows`; short rows repeat their last one.
        """

    @abstractmethod
    def mean(self) -> Tensor:
        """The class prior that the targets imply: their mean on the candidates, (classes,)."""

    def labels(self) -> Tensor:
        """The candidate with the largest target in each row, (N,)."""
        best = []
        for index in self.candidates.row_blocks(self.candidates.max_size):
            at = self.on_candidates(index).argmax(1, keepdim=True)
            best.append(self.candidates.rows(index).labels.gather(1, at).squeeze(1))
        return torch.cat(best)


class CandidateTargets(Targets):
    """One target per candidate, in the order of `candidates.labels`.

    All other classes have zero.
    """

    def __init__(self, candidates: Candidates, dtype: torch.dtype = torch.float32) -> None:
        self.candidates = candidates
        sizes = candidates.sizes.long()
        if candidates.weights is None:
            self.values = (1.0 / sizes).to(dtype).repeat_interleave(sizes)
        else:
            self.values = candidates.weights.to(dtype, copy=True)
        if isinstance(candidates, OpenSets):
            # Added labels follow (targets, then class numbers): one tensor is the whole state.
            guests = candidates.outside_labels.to(dtype)
            self.values = torch.cat([self.values, torch.zeros_like(guests), guests])
            candidates.outside_labels = self.values[candidates.n_slots :]

    def __getitem__(self, index: Tensor) -> Tensor:
        return self.candidates.spread_over_classes(self.values, index)

    def __setitem__(self, index: Tensor, rows: Tensor) -> None:
        where, labels = self.candidates.rows(index)
        if isinstance(self.candidates, OpenSets):  # a replaced label gives up its share
            kept = (rows * self.candidates[index]).sum(1, keepdim=True)
            rows = rows / kept.clamp_min(torch.finfo(rows.dtype).tiny)
        values = rows.gather(1, labels).to(self.values.dtype)
        self.candidates.scatter_values(self.values, where, values)

    def on_candidates(self, index: Tensor) -> Tensor:
        return self.candidates.gather_values(self.values, self.candidates.rows(index).where)

    def set_on_candidates(self, index: Tensor, values: Tensor) -> None:
        """Store what `on_candidates` has returned, perhaps in another process."""
        self.candidates.scatter_values(self.values, self.candidates.rows(index).where, values)

    def mean(self) -> Tensor:
        sets, device = self.candidates, self.values.device
        total = torch.zeros(sets.n_classes, dtype=torch.float64, device=device)
        total.index_add_(0, sets.class_of_slots(), self.values[: sets.n_slots].double())
        return (total / len(self)).float()


class ClassTargets(Targets):
    """One target per row and class, candidate or not: LW weights non-candidates too."""

    def __init__(self, candidates: Candidates, dtype: torch.dtype = torch.float32) -> None:
        self.candidates = candidates
        shape, share = (len(candidates), candidates.n_classes), 1.0 / candidates.n_classes
        self.values = torch.full(shape, share, dtype=dtype, device=candidates.device)
        if candidates.weights is not None:
            # The candidates of a row keep their total, so that they do not count more or less than
            # the other classes.
            sizes = candidates.sizes.long()
            rows = torch.arange(len(candidates), device=candidates.device).repeat_interleave(sizes)
            shares = candidates.weights * sizes[rows] * share
            self.values[rows, candidates.labels.long()] = shares.to(dtype)
        if isinstance(candidates, OpenSets):
            # The last column has the added labels, so that one tensor is the whole state.
            outside = candidates.outside_labels.to(dtype)[:, None]
            self.values = torch.cat([self.values, outside], dim=1)
            candidates.outside_labels = self.values[:, -1]

    def __getitem__(self, index: Tensor) -> Tensor:
        return self.values[index, : self.candidates.n_classes]

    def __setitem__(self, index: Tensor, rows: Tensor) -> None:
        self.values[index, : self.candidates.n_classes] = rows.to(self.values.dtype)

    def on_candidates(self, index: Tensor) -> Tensor:
        return self.values[index[:, None], self.candidates.rows(index).labels]

    def mean(self) -> Tensor:
        n, device = self.candidates.n_classes, self.values.device
        total = torch.zeros(n, dtype=torch.float64, device=device)
        for index in self.candidates.row_blocks(n):
            part = self[index] * self.candidates[index]
            total += (part / part.sum(1, keepdim=True)).sum(0, dtype=torch.float64)
        return (total / len(self)).float()


def initial_targets(
    candidates: Candidates,
    targets_on: Literal["candidates", "classes"] = "candidates",
    dtype: torch.dtype = torch.float32,
) -> Targets:
    """Create the targets before training: the weights of the candidates, or uniform ones.

    Args:
        candidates: The candidate sets.
        targets_on: The layout that the method asks for: targets of the candidates alone, or of all
            classes.
        dtype: The type in which targets are stored.

    Returns:
        1 / size for each candidate of a row, or 1 / C for each class; with weights, they divide the
        total of the candidates.

    Examples:
        >>> initial_targets(Candidates.of([[0, 1], [2]]))[torch.tensor([0, 1])]
        tensor([[0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 1.0000]])
    """
    kind = CandidateTargets if targets_on == "candidates" else ClassTargets
    return kind(candidates, dtype)


def floored(shares: Tensor, n: int) -> Tensor:
    """Class shares of n examples, each at least half an example, for logarithms."""
    return shares.clamp_min(0.5 / n)


class Transduced(NamedTuple):
    """The disambiguated labels of the training examples, one entry per row."""

    labels: npt.NDArray[Any]
    confidence: npt.NDArray[np.float32]
    runner_up: npt.NDArray[Any]  # equal to the label if it is the only candidate
    margin: npt.NDArray[np.float32]  # confidence of the label minus that of the runner-up


def transduce(targets: Targets, candidates: Candidates) -> Transduced:
    """Find the two candidates with the largest targets in each row.

    Args:
        targets: Targets, such as those of `PartialLabelTrainer.final_targets`.
        candidates: The candidates they belong to.

    Returns:
        Class numbers and confidences; the lower class number comes first in a tie.

    Examples:
        >>> candidates = Candidates.of([[0, 1], [2]])
        >>> transduce(initial_targets(candidates), candidates).confidence
        array([0.5, 1. ], dtype=float32)
    """
    parts = []
    for index in candidates.row_blocks(candidates.max_size):
        labels = candidates.rows(index).labels
        repeated = ~candidates.is_candidate_slot(index)
        shares = targets.on_candidates(index).masked_fill(repeated, -1.0)
        # 1 unless the method weights non-candidates too.
        total = shares.clamp_min(0).sum(1, keepdim=True)
        first = shares.argmax(1, keepdim=True)
        most = shares.gather(1, first)
        shares.scatter_(1, first, -1.0)
        second = shares.argmax(1, keepdim=True)
        next_most = shares.gather(1, second)
        second = torch.where(next_most < 0, first, second)
        confidence = most / total
        margin = confidence - next_most.clamp_min(0) / total
        columns = (labels.gather(1, first), confidence, labels.gather(1, second), margin)
        parts.append([column.squeeze(1) for column in columns])
    return Transduced(*(torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)))
