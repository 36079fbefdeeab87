"""PiCO (Wang et al., "PiCO: Contrastive Label Disambiguation for Partial Label Learning", ICLR
2022): trust the nearest prototype.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from ltpll.blocks.contrastive import (
    Memory,
    contrastive_loss,
    labels_or_own_view,
    move_prototypes,
)
from ltpll.interfaces import Method, Outputs, Step, Training, linear_head
from ltpll.settings import Count, Fraction, Fractions, NotNegative, Positive, Whole


class PiCO(Method):
    """PiCO (Wang et al., ICLR 2022): cross-entropy plus a contrastive loss.

    The contrastive loss compares projected features: those of the weak view, with gradients,
    against those of the strong view from a momentum encoder and a queue of earlier ones. Each class
    has a prototype, the running mean of the projections of examples whose likeliest candidate it
    is. Before the loss of a step, targets move towards the candidate with the nearest prototype:
    φ·w + (1 − φ)·onehot, with decreasing φ.

    Before `first_epoch`, targets stay as they are, and the contrastive loss is MoCo's: the only
    positive of an example is its other view, and all others are those of the queue.

    A rebalancer affects which candidate is likeliest, and the predictions. Differs from the
    authors' code: empty places of the queue are left out, whereas theirs hold random vectors, and
    the queue is never longer than the data set; with `first_epoch=0`, their φ is 0.99 in the first
    epoch.

    Formula:
        y       = argmax_{j∈S} ẑ_j
        q       = projection of f_weak,   k = projection of f_strong by the momentum encoder
        loss    = CE(w, z_weak) + weight · mean over i of
                  −mean_{u∈P(i)} log( exp(q_i·u/T) / Σ_{v∈A(i)} exp(q_i·v/T) )
        A(i)    = all q but q_i, all k, and the queue of earlier k;
                  before first_epoch only k_i and the queue
        P(i)    = the vectors of A(i) with the same y;  only k_i before first_epoch
        μ_y     ← γ · μ_y + (1 − γ) · q for each example in turn, then normalised
        γ       = prototype_momentum
        targets = φ · w + (1 − φ) · onehot(argmax_{j∈S} q·μ_j / T + log a_j)
                  from first_epoch on; they move before the loss of the same step
        φ       = phi[0] + (phi[1] − phi[0]) · max(e − 1, 0)/E;  e counts from 0

    References:
        Haobo Wang, Ruixuan Xiao, Yixuan Li, Lei Feng, Gang Niu, Gang Chen and Junbo Zhao: PiCO:
        Contrastive Label Disambiguation for Partial Label Learning, ICLR 2022.
        https://openreview.net/forum?id=EhYjZy6e1gJ

    Args:
        weight: The weight of the contrastive loss.
        temperature: The temperature of the contrastive loss.
        width: The dimension of the projections.
        queue: The number of earlier projections to compare with.
        momentum: The momentum of the momentum encoder.
        prototype_momentum: The momentum of the prototypes.
        phi: φ at the start and at the end.
        first_epoch: The epoch (from 0) from which on targets move and examples with the same likely
            label are positives.

    Examples:
        >>> classifier = PartialLabelClassifier(method=PiCO(queue=4096))
    """

    name = "pico"
    views = ("weak", "strong")
    learns_refined = True
    stored_as: ClassVar[dict[str, str]] = {"phi": "phi_range"}
    prototypes: Tensor
    phi: Tensor
    by_label: Tensor

    def __init__(
        self,
        weight: NotNegative = 0.5,
        temperature: Positive = 0.07,
        width: Count = 128,
        queue: Count = 8192,
        momentum: Fraction = 0.999,
        prototype_momentum: Fraction = 0.99,
        phi: Fractions = (0.95, 0.8),
        first_epoch: Whole = 1,
    ) -> None:
        super().__init__()
        self.weight, self.temperature, self.width, self.queue = weight, temperature, width, queue
        self.momentum, self.prototype_momentum = momentum, prototype_momentum
        self.phi_range, self.first_epoch = phi, first_epoch
        self.warmup_epochs = first_epoch
        self.register_buffer("phi", torch.tensor(float(phi[0])))
        self.register_buffer("by_label", torch.zeros((), dtype=torch.bool))

    @property
    def n_forward_views(self) -> int:
        return 1

    @property
    def cost(self) -> float:
        return 4 / 3  # the second view only needs a forward pass, a third of a step's work

    def attach(self, model: nn.Module) -> None:
        head = linear_head(model)
        self.memory = Memory(model, self.width, self.queue, self.momentum)
        self.register_buffer("prototypes", torch.zeros(head.out_features, self.width))

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        first, last = self.phi_range
        # As in the authors' code, which sets φ after each epoch.
        self.phi.fill_(first + (last - first) * max(epoch - 1, 0) / n_epochs)
        self.by_label.fill_(epoch >= self.first_epoch)

    def loss(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        return cross_entropy(outputs.logits[0], targets)

    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        return self._moved_targets(self._similarities(outputs), targets, candidates)

    def refined_targets(self, step: Step) -> Tensor:
        similarities = self._similarities(step.outputs.detach())
        if step.batch.log_weights is not None:
            similarities = similarities / self.temperature + step.batch.log_weights
        return self._moved_targets(similarities, step.batch.targets, step.batch.candidates)

    def _similarities(self, outputs: Outputs) -> Tensor:
        similarities: Tensor = self.memory.projector(outputs.features[0]) @ self.prototypes.T
        return similarities

    def _moved_targets(self, similarities: Tensor, targets: Tensor, candidates: Tensor) -> Tensor:
        nearest = similarities.masked_fill(~candidates, -torch.inf).argmax(1)
        return self.phi * targets + (1 - self.phi) * one_hot(nearest, targets.shape[1])

    def step_loss(self, step: Step) -> Tensor:
        labels = step.adjusted().logits[0].masked_fill(~step.batch.candidates, -torch.inf).argmax(1)
        plain = self.loss(step.outputs, step.batch.targets, step.batch.candidates)
        return plain + self.weight * self.contrast(step, labels)

    def contrast(self, step: Step, labels: Tensor) -> Tensor:
        """The contrastive loss of a step whose examples have these likely labels, by which the
        prototypes move.
        """
        query, key = (
            self.memory.projector(step.outputs.features[0]),
            self.memory.project_second_view(step),
        )
        move_prototypes(self.prototypes, query.detach(), labels, self.prototype_momentum)
        similarities, same, allowed = self.memory.compare_and_store(
            query, key, labels, self.temperature
        )
        positives, compared = labels_or_own_view(self.by_label, same.float(), allowed)
        return contrastive_loss(similarities, positives, compared)

    def end_epoch(self, training: Training) -> None:
        self.memory.queue.shorten_to(len(training.targets))
