"""Interfaces: methods, rebalancers and extras, the parts that the trainer composes.

Shapes, stated here once: `batch` is the number of examples in a step, `classes` the number of
classes, `dim` the width of the features. Inside a step, targets and candidates are always dense,
(batch, classes); `targets.py` and `candidates/` store them sparsely.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.registry import Configurable
from ltpll.targets import Targets

Place = Literal["targets", "prediction"]
Goal = Literal["balanced", "accuracy"]
"""What predictions are for: every class counts the same, or every example counts the same."""
ViewKind = Literal["weak", "strong"]


def linear_head(model: nn.Module) -> nn.Linear:
    """Return the last layer of a model, on which methods and rebalancers rely.

    Raises:
        InputError: If `model.head` is not a linear layer.
    """
    head = getattr(model, "head", None)
    if not isinstance(head, nn.Linear):
        raise InputError(
            "The model has no linear layer `.head`: wrap it with ltpll.models.split_head or "
            "Classifier."
        )
    return head


class Outputs(NamedTuple):
    """What the network returns for one batch, with one entry per view.

    Examples:
        >>> model = build_model("mlp", seed=0, n_inputs=2, n_classes=4)
        >>> weak, strong = torch.zeros(8, 2), torch.ones(8, 2)
        >>> outputs = Outputs.from_views([model(weak), model(strong)])
        >>> outputs.logits[0].shape
        torch.Size([8, 4])
    """

    logits: tuple[Tensor, ...]  # each (batch, classes), float32
    features: tuple[Tensor, ...]  # each (batch, dim)

    @classmethod
    def from_views(cls, pairs: Iterable[tuple[Tensor, Tensor]]) -> Outputs:
        """Collect the (logits, features) pairs that a model returns for each view."""
        logits, features = zip(*pairs, strict=True)
        return cls(logits, features)

    def detach(self) -> Outputs:
        """The same outputs without gradients."""
        logits, features = (tuple(one.detach() for one in part) for part in self)
        return Outputs(logits, features)

    def first(self, n: int) -> Outputs:
        """The outputs of the first `n` views."""
        return Outputs(self.logits[:n], self.features[:n])

    def weighted(self, log_weights: Tensor | None) -> Outputs:
        """Add what is known about the candidates to the logits of every view.

        None changes nothing.
        """
        if log_weights is None:
            return self
        return Outputs(tuple(z + log_weights for z in self.logits), self.features)


class Batch(NamedTuple):
    """The data of one training step.

    `log_weights` is what is known about the candidates: their weights, and the evidence of the
    sets. `given` are the sets as they were given, if the candidates hold classes from outside them.
    """

    views: Sequence[Tensor]  # each (batch, ...)
    targets: Tensor  # (batch, classes), float32
    candidates: Tensor  # (batch, classes), bool
    log_weights: Tensor | None = None  # (batch, classes)
    given: Tensor | None = None  # (batch, classes), bool


class Forward(Protocol):
    """Passes views through the training network, or through another one."""

    def __call__(self, views: Sequence[Tensor], network: nn.Module | None = None) -> Outputs: ...


@dataclass(frozen=True)
class Step:
    """One training step, for parts that need more than the network's outputs.

    `rows` are the numbers of the batch's examples, (batch,), for parts with state per example.
    """

    batch: Batch
    outputs: Outputs
    head: nn.Linear
    rebalancer: Rebalancer
    forward: Forward
    generator: torch.Generator
    rows: Tensor

    def adjusted(self) -> Outputs:
        """The detached outputs, adjusted as for refining targets.

        They are adjusted by the rebalancer, and by the weights of the candidates.
        """
        adjusted = self.rebalancer.adjust(self.outputs.detach(), "targets", self.head)
        return adjusted.weighted(self.batch.log_weights)

    def likeliest_candidates(self) -> Tensor:
        """The candidate of each row with the largest target, (batch,).

        Of equal targets, which all rows have before the first refinement, it is the one with the
        largest adjusted logit.
        """
        targets = self.batch.targets.masked_fill(~self.batch.candidates, -1)
        largest = targets == targets.max(1, keepdim=True).values
        return self.adjusted().logits[0].masked_fill(~largest, -torch.inf).argmax(1)


class Training(Protocol):
    """What parts can access before the first step and between two epochs."""

    @property
    def candidates(self) -> Candidates: ...

    @property
    def targets(self) -> Targets: ...

    @property
    def truth_missing(self) -> float | Sequence[float]:
        """The share of sets that lack the true label, or that share for each size of a set."""

    def plain_outputs(self) -> Iterator[tuple[Outputs, Tensor]]:
        """Yield outputs for the training examples without augmentation, with their candidates."""


class Part(Configurable, nn.Module, ABC):
    """What methods, rebalancers and extras have in common: a name, options, and hooks."""

    name: ClassVar[str]

    def attach(self, model: nn.Module) -> None:
        """Create whatever depends on the model (whose last layer is `model.head`).

        Called once before training.
        """

    def start_training(self, training: Training) -> None:
        """Called before the first step, with the candidate sets and the initial targets.

        A method makes its state per example here, as buffers on the device of
        `training.targets.values` that `per_example` names.
        """

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        """Called before the first step of every epoch; epochs count from 0."""

    def end_epoch(self, training: Training) -> None:
        """Called after the last step of every epoch."""


class Method(Part):
    """A loss against targets and a rule that refines them, written as if classes were balanced.

    Most methods only define `loss` and `disambiguate`. The other hooks are for systems with their
    own networks, queues, priors or schedules. State must be kept in buffers and modules, so that it
    is checkpointed, and changed in place, so that steps recorded as CUDA graphs see the change.

    Examples:
        A complete method; in a file of `ltpll/methods/`, it is available by its name everywhere:

            class PRODEN(Method):
                name = "proden"

                def loss(self, outputs, targets, candidates):
                    return -(targets * torch.log_softmax(outputs.logits[0], dim=1)).sum(1).mean()

                def disambiguate(self, outputs, targets, candidates):
                    return restricted_softmax(outputs.logits[0], candidates)
    """

    views: tuple[ViewKind, ...] = ("weak",)
    """The kinds of views to draw for each example."""
    targets_on: ClassVar[Literal["candidates", "classes"]] = "candidates"
    """Whether targets are stored for the candidates only (zero elsewhere, rows sum to one) or for
    all classes.
    """
    warmup_epochs: int = 1
    """Epochs before targets are refined. In the RECORDS paper targets stay uniform in the first
    epoch; some methods start at once.
    """
    separate_views: ClassVar[bool] = False
    """Whether each view passes through the network by itself, so that batch norm normalises it by
    its own statistics; otherwise all views of a step are one batch, also those that extras add.
    """
    phase: tuple[bool, ...] = ()
    """Decisions that Python takes inside `step_loss`, which may change between epochs only: a step
    recorded as a CUDA graph is valid for one value.
    """
    learns_refined: ClassVar[bool] = False
    """Whether the loss of a step uses the targets as this step refines them, instead of those from
    before it.

    Extras that add inputs to the forward pass, such as mixup, blend the targets from before the
    step in either case: their inputs pass through the network together with the views whose outputs
    refine the targets."""
    row_by_row: ClassVar[bool] = False
    """Whether the loss is the mean of losses of single rows, and each row's targets are refined
    from its own outputs, so that networks can be trained in lockstep (`training/lockstep.py`).
    Subclasses have to say it again."""
    why_no_rebalancer: ClassVar[str] = ""
    """Why this method cannot be combined with a rebalancer; empty if it can."""
    open_after: ClassVar[float] = 0.03
    """The share of the epochs after which targets may leave sets that may lack the true label:
    early, before the network has memorised the sets, but not before it can tell classes apart."""
    per_example: tuple[str, ...] = ()
    """Names of the buffers with a row for each training example, which `start_training` makes.

    They belong to the checkpoints of a training, but not to a saved classifier."""
    lr_factor: ClassVar[float] = 1.0
    """By which `PartialLabelClassifier` multiplies its default learning rate."""
    variants: tuple[str, ...] = ()
    """Names of alternative ways to predict with the same trained network."""

    @property
    def n_views(self) -> int:
        return len(self.views)

    @property
    def n_forward_views(self) -> int:
        """How many of the views, from the first, pass through the network.

        `outputs` has one entry for each.
        """
        return self.n_views

    @property
    def cost(self) -> float:
        """The cost of a step in forward and backward passes of one view per example."""
        return float(self.n_forward_views)

    @abstractmethod
    def loss(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        """Return the mean loss over the batch, a scalar.

        Args:
            outputs: Raw logits and features of the views, with gradients.
            targets: (batch, classes) targets from before this step or, with `learns_refined`, those
                that it refined.
            candidates: (batch, classes) boolean mask.
        """

    @abstractmethod
    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        """Return refined (batch, classes) targets; called without gradients.

        Args:
            outputs: Detached outputs, adjusted by the rebalancer and by the weights of the
                candidates.
            targets: (batch, classes) targets from before this step.
            candidates: (batch, classes) boolean mask.
        """

    def network_around(self, model: nn.Module) -> nn.Module:
        """Return the network that is trained, by default the model itself.

        A larger one contains the model, has a linear layer `head` for its own features, and returns
        logits and features like any model. All other hooks and parts get it instead of the model.
        """
        return model

    def restart(self, n_epochs: int) -> int:
        """The epoch before which the network, optimizer, schedule and targets are reset.

        0 for never.
        """
        return 0

    def step_loss(self, step: Step) -> Tensor:
        """The loss that a step minimises; override it if `loss` does not get enough information."""
        return self.loss(step.outputs, step.batch.targets, self.loss_mask(step.batch))

    def loss_mask(self, batch: Batch) -> Tensor:
        """The candidates that `loss` gets.

        Where sets may lack the true label, they hold a class from outside, unless overridden.
        """
        return batch.candidates

    def refined_targets(self, step: Step) -> Tensor:
        """The targets after a step.

        Override it if `disambiguate` does not get enough information. Called without gradients.
        """
        return self.disambiguate(step.adjusted(), step.batch.targets, step.batch.candidates)

    def remaining_classes(self, rows: Tensor) -> Tensor | None:
        """Which classes the method has not ruled out for some rows, (batch, classes), boolean.

        Their candidate sets are reduced to these classes, of which one must be a candidate. None
        leaves the sets as they are.
        """
        return None

    def predict(self, outputs: Outputs, variant: str = "") -> Outputs:
        """Return the outputs used for prediction; `variant` is one of `variants`."""
        return outputs

    def log_prior(self) -> Tensor | None:
        """The log of the class prior that this method estimates, (classes,).

        None if it does not estimate one.
        """
        return None


class Rebalancer(Part):
    """An estimate of the class prior, and where its logarithm is subtracted from logits."""

    places: ClassVar[frozenset[Place]] = frozenset({"targets", "prediction"})
    estimates_prior: ClassVar[bool] = False
    """Whether `log_prior` is estimated during training, so that comparing it with the true prior
    makes sense.
    """
    observes_logits: ClassVar[bool] = True
    """Whether `observe` reads the logits, which several processes would have to exchange."""
    because: str = ""
    """What was chosen at the start of the training and why, in one sentence.

    Empty if nothing was.
    """

    def observe(self, outputs: Outputs, head: nn.Linear) -> None:
        """Called in every training step with the detached outputs of the batch."""

    @abstractmethod
    def log_prior(self, head: nn.Linear) -> Tensor:
        """The log of the prior, (classes,); the prior sums to one."""

    @torch.no_grad()
    def subtracted(self, place: Place, head: nn.Linear) -> Tensor:
        """What `adjust` subtracts from the logits in this place, (classes,): the log-prior, or
        zeros.
        """
        log_prior = self.log_prior(head)
        return log_prior if place in self.places else torch.zeros_like(log_prior)

    def adjust(self, outputs: Outputs, place: Place, head: nn.Linear) -> Outputs:
        """Subtract `subtracted` from the logits of all views, if this part acts in this place."""
        if place not in self.places:
            return outputs
        subtracted = self.subtracted(place, head)
        return Outputs(tuple(z - subtracted for z in outputs.logits), outputs.features)

    def evidence(self, index: Tensor) -> Tensor | None:
        """What the sets of some rows say about their candidates, added to logits for targets.

        None if nothing is added; this must not change during a training run.
        """
        return None


class Extra(Part):
    """A loss term that can be added to any method.

    Its parameters, queues and networks are separate from the classifier's.
    """

    n_views: ClassVar[int] = 1
    """How many views per example it needs.

    Views that the method does not draw are added as strong views.
    """
    n_forward_views: ClassVar[int] = 1
    """How many of these views, from the first, pass through the network."""
    first_epoch: int = 0
    """The first epoch, from 0, in which the term is used."""

    def active(self, epoch: int) -> bool:
        """Whether the term is used in this epoch; the only decision that may depend on time."""
        return epoch >= self.first_epoch

    def inputs(self, batch: Batch, generator: torch.Generator) -> Batch | None:
        """Return additional examples for the same forward pass.

        `batch` has the views that the method forwards.
        """
        return None

    @abstractmethod
    def loss(
        self, method: Method, step: Step, added: Batch | None, added_outputs: Outputs | None
    ) -> Tensor:
        """Return the loss term.

        `added` is what `inputs` returned in this step, `added_outputs` the network's outputs for
        it.
        """

    def balanced_logits(self, outputs: Outputs) -> Tensor | None:
        """Return logits for balanced predictions, (batch, classes), if this term has a head for
        them; they replace the rebalancer's.
        """
        return None
