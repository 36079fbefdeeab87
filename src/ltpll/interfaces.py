"""What a method, a rebalancer and an extra are: the three interfaces that the trainer composes and the tests check.

Shapes, stated here once: `batch` is the number of examples in a step, `classes` the number of classes, `dim` the width of the features.
Targets and candidates are always dense inside a step, (batch, classes); their storage is another matter (`targets.py`, `candidates.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from ltpll.errors import InputError
from ltpll.registry import Configurable
from ltpll.targets import Targets

Place = Literal["targets", "prediction"]
ViewKind = Literal["weak", "strong"]


def linear_head(model: nn.Module) -> nn.Linear:
    """The model's last layer, which methods and rebalancers rely on."""
    head = getattr(model, "head", None)
    if not isinstance(head, nn.Linear):
        raise InputError("The model has no linear layer `.head`: wrap it with ltpll.models.split_head or Classifier.")
    return head


class Outputs(NamedTuple):
    """What the network says of one batch, one entry per view."""

    logits: tuple[Tensor, ...]  # each (batch, classes), float32
    features: tuple[Tensor, ...]  # each (batch, dim)

    def detach(self) -> Outputs:
        return Outputs(tuple(z.detach() for z in self.logits), tuple(f.detach() for f in self.features))

    def first(self, n: int) -> Outputs:
        """Those of the first `n` views."""
        return Outputs(self.logits[:n], self.features[:n])


class Batch(NamedTuple):
    """What one step trains on."""

    views: Sequence[Tensor]  # each (batch, ...)
    targets: Tensor  # (batch, classes), float32
    candidates: Tensor  # (batch, classes), bool


class Forward(Protocol):
    """Sends views through the network in training, or, without gradients, through another one of the same shape."""

    def __call__(self, views: Sequence[Tensor], network: nn.Module | None = None) -> Outputs: ...


@dataclass(frozen=True)
class Step:
    """One training step, for parts that need more of it than the network's outputs."""

    batch: Batch
    outputs: Outputs
    head: nn.Linear
    rebalancer: Rebalancer
    forward: Forward
    generator: torch.Generator

    def log_prior(self) -> Tensor:
        """The logarithm of the prior that is subtracted when targets are refined, (classes,); zeros if none is."""
        return self.rebalancer.subtracted("targets", self.head)

    def adjusted(self) -> Outputs:
        """The outputs as they refine targets, detached."""
        return self.rebalancer.adjust(self.outputs.detach(), "targets", self.head)


class Training(Protocol):
    """What a method may look at between two epochs."""

    @property
    def targets(self) -> Targets: ...

    def plain_outputs(self) -> Iterator[tuple[Outputs, Tensor]]:
        """What the network says of the training examples as they are, with their candidates, a part of them at a time."""


class Method(Configurable, nn.Module, ABC):
    """A loss against targets, and a rule that refines them, written as if classes were balanced.

    Most methods are `loss` and `disambiguate`. The hooks below them are for systems that bring networks, queues, priors or a schedule of
    their own; what such a system keeps is made of buffers and modules, so that it is checkpointed, and changed in place, so that a
    captured step sees it change.
    """

    name: ClassVar[str]
    views: tuple[ViewKind, ...] = ("weak",)
    """Which views of an example are drawn."""
    targets_on: ClassVar[Literal["candidates", "classes"]] = "candidates"
    """Whether targets live on the candidates alone (zero elsewhere, rows sum to one) or on all classes."""
    why_no_rebalancer: ClassVar[str] = ""
    """Why a rebalancer must not be added; empty for methods that leave imbalance to the rebalancer."""
    waits: ClassVar[bool] = False
    """Whether `step_loss` writes what `disambiguate` reads, and so has to come after it, not beside it."""
    variants: tuple[str, ...] = ()
    """Names of other ways to predict that the same training gives."""

    @property
    def n_views(self) -> int:
        return len(self.views)

    @property
    def n_forward_views(self) -> int:
        """How many of the views, from the first on, go through the network; `outputs` has one entry for each."""
        return self.n_views

    @property
    def cost(self) -> float:
        """What a step takes, in forward and backward passes of one view of each example."""
        return float(self.n_forward_views)

    @abstractmethod
    def loss(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        """A scalar, the mean over the batch."""

    @abstractmethod
    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        """New (batch, classes) targets; never called with a gradient to keep."""

    def attach(self, model: nn.Module) -> None:
        """Called once, before training: make whatever depends on the model (whose last layer is `model.head`)."""

    def restart(self, n_epochs: int) -> int:
        """The epoch before which network, optimizer, schedule and targets start anew; 0 for never."""
        return 0

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        """Called before the first step of every epoch; epochs count from 0."""

    def step_loss(self, step: Step) -> Tensor:
        """What a step minimises; systems that need more than `loss` compute it here."""
        return self.loss(step.outputs, step.batch.targets, step.batch.candidates)

    def end_epoch(self, training: Training) -> None:
        """Called after the last step of every epoch."""

    def predict(self, outputs: Outputs, variant: str = "") -> Outputs:
        """The outputs that predictions come from; `variant` is one of `variants`."""
        return outputs

    def log_prior(self) -> Tensor | None:
        """The logarithm of the class prior that this method has estimated itself, (classes,), if it does."""
        return None


class Rebalancer(Configurable, nn.Module, ABC):
    """A class prior, and the places where its logarithm is subtracted from the logits."""

    name: ClassVar[str]
    places: ClassVar[frozenset[Place]] = frozenset({"targets", "prediction"})
    estimates_prior: ClassVar[bool] = False
    """Whether `log_prior` is learned from training (and so worth comparing with the truth)."""

    def attach(self, model: nn.Module) -> None:
        """Called once, before training: make whatever depends on the model (whose last layer is `model.head`)."""

    def observe(self, outputs: Outputs, head: nn.Linear) -> None:
        """Sees the network's outputs on every training batch."""

    @abstractmethod
    def log_prior(self, head: nn.Linear) -> Tensor:
        """The logarithm of the prior, (classes,), up to an additive constant."""

    @torch.no_grad()
    def subtracted(self, place: Place, head: nn.Linear) -> Tensor:
        """What is subtracted from the logits in this place, (classes,): the log-prior, or zeros if this rebalancer does not act there."""
        log_prior = self.log_prior(head)
        return log_prior if place in self.places else torch.zeros_like(log_prior)

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


class Extra(Configurable, nn.Module, ABC):
    """A loss term added to any method; the parameters, queues and networks that it needs are its own, never the classifier's."""

    name: ClassVar[str]
    n_views: ClassVar[int] = 1
    """How many views of an example it needs; what the method does not draw is added, as strong views."""
    n_forward_views: ClassVar[int] = 1
    """How many of them, from the first on, go through the network."""
    waits: ClassVar[bool] = False
    """Whether it reads what the rebalancer observes, and so has to come after it, not beside it."""

    def attach(self, model: nn.Module) -> None:
        """Called once, before training: make whatever depends on the model (whose last layer is `model.head`)."""

    def active(self, epoch: int) -> bool:
        """Whether the term takes part in this epoch; the only place where an extra may look at the clock."""
        return True

    def inputs(self, batch: Batch, generator: torch.Generator) -> Batch | None:
        """More examples to send through the network in the same forward pass; `batch` has the views that the method compares."""
        return None

    @abstractmethod
    def loss(self, method: Method, step: Step, own: Batch | None, own_outputs: Outputs | None) -> Tensor:
        """The term to add: `own` is what `inputs` returned for this step, `own_outputs` what the network said of it."""
