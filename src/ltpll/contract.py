"""What a method, a rebalancer and an extra are: the three interfaces that the trainer composes and the tests check.

Shapes, stated here once: `batch` is the number of examples in a step, `classes` the number of classes, `dim` the width of the features.
Targets and candidates are always dense inside a step, (batch, classes); their storage is another matter (`targets.py`, `candidates.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

Place = Literal["targets", "prediction"]
ViewKind = Literal["weak", "strong"]


class Outputs(NamedTuple):
    """What the network says of one batch, one entry per view."""

    logits: tuple[Tensor, ...]  # each (batch, classes), float32
    features: tuple[Tensor, ...]  # each (batch, dim)

    def detach(self) -> Outputs:
        return Outputs(tuple(z.detach() for z in self.logits), tuple(f.detach() for f in self.features))


class Batch(NamedTuple):
    """What one step trains on."""

    views: tuple[Tensor, ...]  # each (batch, ...)
    targets: Tensor  # (batch, classes), float32
    candidates: Tensor  # (batch, classes), bool


class Method(nn.Module, ABC):
    """A loss against targets, and a rule that refines them, written as if classes were balanced."""

    name: ClassVar[str]
    views: tuple[ViewKind, ...] = ("weak",)
    """Which views of an example the loss compares; `outputs` has one entry for each."""
    covers: ClassVar[Literal["candidates", "classes"]] = "candidates"
    """Whether targets live on the candidates alone (zero elsewhere, rows sum to one) or on all classes."""
    own_rebalancing: ClassVar[str] = ""
    """Why a rebalancer must not be added; empty for methods that leave imbalance to the rebalancer."""

    @property
    def n_views(self) -> int:
        return len(self.views)

    @abstractmethod
    def loss(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        """A scalar, the mean over the batch."""

    @abstractmethod
    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        """New (batch, classes) targets; never called with a gradient to keep."""

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        """Called before the first step of every epoch; epochs count from 0."""


class Rebalancer(nn.Module, ABC):
    """A class prior, and the places where its logarithm is subtracted from the logits."""

    name: ClassVar[str]
    places: ClassVar[frozenset[Place]] = frozenset({"targets", "prediction"})
    estimates_prior: ClassVar[bool] = False
    """Whether `log_prior` is learned from training (and so worth comparing with the truth)."""

    def observe(self, outputs: Outputs, head: nn.Linear) -> None:
        """Sees the network's outputs on every training batch."""

    @abstractmethod
    def log_prior(self, head: nn.Linear) -> Tensor:
        """The logarithm of the prior, (classes,), up to an additive constant."""

    def adjust(self, outputs: Outputs, place: Place, head: nn.Linear) -> Outputs:
        """The outputs with the log-prior subtracted from the logits of every view, if this rebalancer acts in this place."""
        if place not in self.places:
            return outputs
        with torch.no_grad():
            log_prior = self.log_prior(head)
        return Outputs(tuple(z - log_prior for z in outputs.logits), outputs.features)

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        """Called before the first step of every epoch; epochs count from 0."""

    def end_epoch(self) -> None:
        """Called after the last step of every epoch."""


class Extra(nn.Module, ABC):
    """A loss term added to any method."""

    name: ClassVar[str]

    def active(self, epoch: int) -> bool:
        """Whether the term takes part in this epoch; the only place where an extra may look at the clock."""
        return True

    def inputs(self, batch: Batch, generator: torch.Generator) -> Batch | None:
        """More examples to send through the network in the same forward pass as the batch's own views, or None."""
        return None

    @abstractmethod
    def loss(
        self, method: Method, head: nn.Linear, batch: Batch, outputs: Outputs, own: Batch | None, own_outputs: Outputs | None
    ) -> Tensor:
        """The term to add: `own` is what `inputs` returned for this step, `own_outputs` what the network said of it."""
