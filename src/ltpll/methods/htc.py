"""HTC (Jia et al., "… Head Classifier and Tail Classifier Cooperation", AAAI 2024): a head for frequent classes and one for rare ones."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, leaky_relu, normalize

from ltpll.blocks.selection import blend, folded_beta, lowest_in_class, mean_over, partners_among
from ltpll.errors import InputError
from ltpll.interfaces import Method, Outputs, Step, Training, linear_head
from ltpll.targets import restricted_softmax

MIXUP_ALPHA = 4
EPSILON = 1e-5


class Branch(NamedTuple):
    """What one head learns in a step."""

    weak: Tensor  # logits
    strong: Tensor
    labels: Tensor  # (batch, classes)
    prior: Tensor  # by which the classes' quotas of reliable examples are shared out


class HTC(Method):
    """The model's head learns the classes as frequent as they are; a second one learns what it says less `tau` times the log-prior.

    Both learn from the targets, and from blends and strong views of reliable examples: of each class a quota with the lowest loss, shared
    out by the prior for the first head and equally for the second. Targets move towards the second head's prediction, the prior is the
    mean target of the last epoch, and a small layer learns how to weigh the two heads against each other in predictions.

    The second head and the layer belong to the method; `variants` are the heads by themselves.
    Differs from the authors' code: targets are not refined in the first epoch, and examples that are not relied on go along when blends
    are formed, unblended and without weight, so that shapes stay the same.
    """

    name = "htc"
    views = ("weak", "strong")
    variants = ("head", "tail")
    why_no_rebalancer = "it has a head for the tail classes, with a prior that it estimates itself."
    prior: Tensor
    share: Tensor
    strength: Tensor
    fusing: Tensor
    relies: Tensor

    def __init__(
        self, tau: float = 2.0, move: float = 0.6, strength: float = 0.9, quota: tuple[float, float] = (0.2, 0.6), ramp_epochs: int = 50
    ) -> None:
        super().__init__()
        if len(quota) != 2 or not all(0 <= number <= 1 for number in (*quota, strength, move)):
            raise InputError("HTC's quota is two shares from 0 to 1, and its strength and move one each.")
        if ramp_epochs < 1 or not tau >= 0:
            raise InputError("HTC's ramp_epochs must be positive, and its tau not negative.")
        self.tau, self.move, self.final_strength, self.quota, self.ramp_epochs = tau, move, strength, quota, ramp_epochs
        for name in ("share", "strength", "fusing"):
            self.register_buffer(name, torch.zeros(()))
        self.register_buffer("relies", torch.zeros((), dtype=torch.bool))

    @property
    def cost(self) -> float:
        return 4.0  # blends for each head are two more views

    def attach(self, model: nn.Module) -> None:
        head = linear_head(model)
        self.tail = nn.Linear(head.in_features, head.out_features)
        self.weighing = nn.Linear(2 * head.out_features, 2)
        self.register_buffer("prior", torch.full((head.out_features,), 1 / head.out_features))

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        ramp = min(epoch / self.ramp_epochs, 1.0)
        self.strength.fill_(self.final_strength * ramp)
        self.share.fill_(self.quota[0] + (self.quota[1] - self.quota[0]) * ramp)
        self.fusing.fill_(0.5 * epoch / n_epochs)
        self.relies.fill_(epoch > 0)

    def end_epoch(self, training: Training) -> None:
        self.prior.copy_(training.targets.mean())

    def loss(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        return cross_entropy(outputs.logits[0], targets)

    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        balanced = restricted_softmax(self.tail(outputs.features[0]), candidates)
        return (1 - self.move) * targets + self.move * balanced

    def step_loss(self, step: Step) -> Tensor:
        weak, strong = step.outputs.logits
        tail_weak, tail_strong = (self.tail(features) for features in step.outputs.features)
        balanced = torch.softmax(weak.detach() - self.tau * self.log_prior(), dim=1)
        uniform = torch.full_like(self.prior, 1 / len(self.prior))
        head = Branch(weak, strong, step.batch.targets, self.prior)
        tail = Branch(tail_weak, tail_strong, balanced, uniform)
        chosen, blends, labels = zip(*(self._blend(branch, step) for branch in (head, tail)), strict=True)
        said = step.forward(blends)
        blended = (said.logits[0], self.tail(said.features[1]))
        loss = self.fusing * cross_entropy(self._fused(weak.detach(), tail_weak.detach()), step.batch.targets)
        for branch, who, mixed, mixed_labels in zip((head, tail), chosen, blended, labels, strict=True):
            relied = mean_over(cross_entropy(mixed, mixed_labels, reduction="none"), who)
            relied = relied + mean_over(cross_entropy(branch.strong, branch.labels, reduction="none"), who)
            loss = loss + cross_entropy(branch.weak, step.batch.targets) + self.strength * relied
        return loss

    @torch.no_grad()
    def _blend(self, branch: Branch, step: Step) -> tuple[Tensor, Tensor, Tensor]:
        """Which examples a head relies on, their blends with each other, and the labels of those."""
        losses = cross_entropy(branch.weak, branch.labels, reduction="none")
        quotas = torch.ceil(len(losses) * branch.prior * self.share).clamp_min(1)
        chosen = lowest_in_class(losses, branch.labels.argmax(1), quotas) & self.relies
        share, partner = folded_beta(MIXUP_ALPHA, step.generator), partners_among(chosen, step.generator)
        return chosen, blend(step.batch.views[0], partner, share), blend(branch.labels, partner, share)

    def _fused(self, head: Tensor, tail: Tensor) -> Tensor:
        """Logits out of both heads' probabilities, the first head's without the prior."""
        both = torch.softmax(head - self.log_prior(), dim=1), torch.softmax(tail, dim=1)
        weights = normalize(torch.softmax(leaky_relu(self.weighing(torch.cat(both, dim=1))), dim=1), dim=1)
        return weights[:, :1] * both[0] + weights[:, 1:] * both[1]

    def predict(self, outputs: Outputs, variant: str = "") -> Outputs:
        if variant == "head":
            return outputs
        tail = tuple(self.tail(features) for features in outputs.features)
        if variant == "tail":
            return Outputs(tail, outputs.features)
        return Outputs(tuple(self._fused(*logits) for logits in zip(outputs.logits, tail, strict=True)), outputs.features)

    def log_prior(self) -> Tensor:
        return (self.prior + EPSILON).log()
