"""PiCO (Wang et al., "PiCO: Contrastive Label Disambiguation for Partial Label Learning", ICLR 2022): believe the nearest prototype."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, one_hot

from ltpll.blocks.contrastive import Memory, contrastive_loss
from ltpll.errors import InputError
from ltpll.interfaces import Method, Outputs, Step, Training, linear_head


class PiCO(Method):
    """Cross-entropy against the targets, and a contrastive loss that draws examples believed to be of one class together.

    Examples are compared as projections of their features: the weak view's, which is trained, with the strong view's through networks that
    follow the trained ones, and with a queue of earlier ones. Each class has a prototype, the running mean of the projections whose
    likeliest candidate it is; targets move towards the candidate with the nearest prototype, φ·w + (1 − φ)·onehot, with φ falling.

    Before `first_epoch` an example's only positive is its own other view. A rebalancer acts on which candidate is likeliest and on
    predictions.
    Differs from the authors' code: places of the queue that are still empty are left out, where theirs hold random vectors, and the
    queue is never longer than the data.
    """

    name = "pico"
    views = ("weak", "strong")
    prototypes: Tensor
    phi: Tensor
    by_label: Tensor

    def __init__(
        self,
        weight: float = 0.5,
        temperature: float = 0.07,
        width: int = 128,
        queue: int = 8192,
        momentum: float = 0.999,
        prototype_momentum: float = 0.99,
        phi: tuple[float, float] = (0.95, 0.8),
        first_epoch: int = 1,
    ) -> None:
        super().__init__()
        if not (weight >= 0 and temperature > 0 and width >= 1 and queue >= 1):
            raise InputError("PiCO's temperature, width and queue must be positive, and its weight not negative.")
        if len(phi) != 2 or not all(0 <= number <= 1 for number in (momentum, prototype_momentum, *phi)):
            raise InputError("PiCO's momenta lie between 0 and 1, and phi is two such numbers, for the first epoch and the last.")
        self.weight, self.temperature, self.width, self.queue_size = weight, temperature, width, queue
        self.momentum, self.prototype_momentum, self.phis, self.first_epoch = momentum, prototype_momentum, phi, first_epoch
        self.register_buffer("phi", torch.tensor(float(phi[0])))
        self.register_buffer("by_label", torch.zeros((), dtype=torch.bool))

    @property
    def n_forward_views(self) -> int:
        return 1

    @property
    def cost(self) -> float:
        return 4 / 3  # the other view only goes forward, which is a third of a pass

    def attach(self, model: nn.Module) -> None:
        head = linear_head(model)
        self.memory = Memory(model, self.width, self.queue_size, self.momentum)
        self.register_buffer("prototypes", torch.zeros(head.out_features, self.width))

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        self.phi.fill_(self.phis[0] + (self.phis[1] - self.phis[0]) * epoch / n_epochs)
        self.by_label.fill_(epoch >= self.first_epoch)

    def loss(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        return cross_entropy(outputs.logits[0], targets)

    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        near = self.memory.projector(outputs.features[0]) @ self.prototypes.T
        nearest = near.masked_fill(~candidates, -torch.inf).argmax(1)
        return self.phi * targets + (1 - self.phi) * one_hot(nearest, targets.shape[1])

    def step_loss(self, step: Step) -> Tensor:
        labels = step.adjusted().logits[0].masked_fill(~step.batch.candidates, -torch.inf).argmax(1)
        query, key = self.memory.projector(step.outputs.features[0]), self.memory.keys(step)
        self.move_prototypes(query.detach(), labels)
        similarities, same, allowed = self.memory.compare(query, key, labels, self.temperature)
        n = len(labels)
        own = torch.eye(n, same.shape[1] - n, dtype=torch.bool, device=same.device)  # behind the batch itself come its second views
        own = torch.cat([torch.zeros_like(own[:, :n]), own], dim=1)
        contrast = contrastive_loss(similarities, torch.where(self.by_label, same, own).float(), allowed)
        return self.loss(step.outputs, step.batch.targets, step.batch.candidates) + self.weight * contrast

    def end_epoch(self, training: Training) -> None:
        self.memory.queue.limit_to(len(training.targets))

    @torch.no_grad()
    def move_prototypes(self, vectors: Tensor, labels: Tensor) -> None:
        """A running mean over one example after the other, worked out for the batch at once."""
        m = self.prototype_momentum
        members = one_hot(labels, len(self.prototypes)).to(vectors.dtype)
        later = members.flip(0).cumsum(0).flip(0) - members  # examples of each class behind this one
        weights = members * (1 - m) * m**later
        kept = m ** members.sum(0)
        self.prototypes.copy_(normalize(kept[:, None] * self.prototypes + weights.T @ vectors, dim=1))
