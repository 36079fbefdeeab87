"""HTC (Jia et al., "… Head Classifier and Tail Classifier Cooperation", AAAI 2024): one head for
frequent and one for rare classes.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, leaky_relu, normalize

from ltpll.blocks.selection import (
    blend,
    fill_with_chosen,
    lowest_losses_per_class,
    masked_mean,
    mixup_partners,
    mixup_weights,
)
from ltpll.interfaces import Outputs, Step, Training, ViewKind, linear_head
from ltpll.methods.proden import PRODEN
from ltpll.settings import Count, Fraction, Fractions, NotNegative
from ltpll.targets import restricted_softmax

MIXUP_ALPHA = 4
EPSILON = 1e-5


class Branch(NamedTuple):
    """What one head learns from in a step."""

    weak: Tensor  # logits
    strong: Tensor
    labels: Tensor  # (batch, classes)
    prior: Tensor  # decides the quota of reliable examples of each class


class HTC(PRODEN):
    """HTC (Jia et al., AAAI 2024): a head for imbalanced, and a tail head for balanced labels.

    The labels of the tail head are the head's logits minus `tau` times the log-prior. Both heads
    learn from the targets, and from blends and strong views of reliable examples: those with the
    lowest loss in each class, with quotas in proportion to the prior for the head and equal quotas
    for the tail head. Targets move towards the tail head's predictions, the prior is the mean
    target of the last epoch, and a small layer learns to weight the two heads for prediction.

    The tail head and this layer belong to the method. `variants` predict with one head only.
    As in the authors' code, each view and the blends of each head pass through the network by
    themselves. Differs from it: so that shapes stay the same, blends of reliable examples are
    repeated with zero weight until they fill the batch. Batch norm then counts some of them once
    more than the others, unless the batch is a multiple of their number. Where the tail head's
    labels are made, their code adds nothing to the prior before its logarithm.

    Formula:
        t          = tail head of f
        b          = softmax(z_weak − τ log π̂), the labels of the tail head
        loss       = CE(w, z_weak)
                   + η · mean over R  of [CE(w, z_strong) + CE(λw + (1−λ)w′, z_blend)]
                   + CE(w, t_weak)
                   + η · mean over R′ of [CE(b, t_strong) + CE(λb + (1−λ)b′, t_blend)]
                   + ½ e/E · CE(w, g), which trains the weights α only
        R          = of each class k = argmax w the ⌈B · π̂_k · ρ⌉ examples with the lowest
                     CE(w, z_weak); none in the first epoch
        R′         = of each class k = argmax b the ⌈B/C · ρ⌉ examples with the lowest
                     CE(b, t_weak); none in the first epoch
        η          = strength · min(e / ramp_epochs, 1);  ρ grows likewise from quota[0] to quota[1]
        g          = α₁ softmax(z − log π̂) + α₂ softmax(t)
        (α₁, α₂)   = a linear layer of both, positive, of unit length
        targets    = (1 − move) · w + move · softmax_S(t_weak + log a), from the first epoch on
        π̂          = mean target of the last epoch, uniform in the first;  10⁻⁵ is added before a
                     logarithm
        prediction = g;  z for the variant "head", t for "tail"

    References:
        Yuheng Jia, Xiaorui Peng, Ran Wang and Min-Ling Zhang: Long-Tailed Partial Label Learning by
        Head Classifier and Tail Classifier Cooperation, AAAI 2024.
        https://doi.org/10.1609/aaai.v38i11.29182

    Args:
        tau: The strength of the logit adjustment that makes the tail head's labels.
        move: How far targets move towards the tail head's predictions in a step, from 0 to 1.
        strength: The final weight of the loss on reliable examples.
        quota: The share of the batch that is considered reliable, at the start and after
            `ramp_epochs`.
        ramp_epochs: The number of epochs in which `strength` and `quota` reach their final values.

    Examples:
        >>> classifier = PartialLabelClassifier(method=HTC(tau=1.0), rebalancer="none")
    """

    name = "htc"
    views: tuple[ViewKind, ...] = ("weak", "strong")
    warmup_epochs = 0
    separate_views = True
    phase: tuple[bool, ...] = (False,)  # whether reliable examples are learned
    variants = ("head", "tail")
    why_no_rebalancer = "it has a head for rare classes, with its own estimate of the prior."
    stored_as: ClassVar[dict[str, str]] = {"strength": "final_strength"}
    prior: Tensor
    share: Tensor
    strength: Tensor
    fusing: Tensor
    relies: Tensor

    def __init__(
        self,
        tau: NotNegative = 2.0,
        move: Fraction = 0.6,
        strength: Fraction = 0.9,
        quota: Fractions = (0.2, 0.6),
        ramp_epochs: Count = 50,
    ) -> None:
        super().__init__()
        self.tau, self.move, self.final_strength = tau, move, strength
        self.quota, self.ramp_epochs = quota, ramp_epochs
        for name in ("share", "strength", "fusing"):
            self.register_buffer(name, torch.zeros(()))
        self.register_buffer("relies", torch.zeros((), dtype=torch.bool))

    @property
    def cost(self) -> float:
        return 4.0  # two views, and blends for each head

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
        self.phase = (epoch > 0,)

    def end_epoch(self, training: Training) -> None:
        self.prior.copy_(training.targets.mean())

    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        return self._moved_targets(self._tail_outputs(outputs), targets, candidates)

    def refined_targets(self, step: Step) -> Tensor:
        weighted = self._tail_outputs(step.outputs.detach()).weighted(step.batch.log_weights)
        return self._moved_targets(weighted, step.batch.targets, step.batch.candidates)

    def _tail_outputs(self, outputs: Outputs) -> Outputs:
        return outputs._replace(logits=(self.tail(outputs.features[0]),))

    def _moved_targets(self, tail: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        refined = restricted_softmax(tail.logits[0], candidates)
        return (1 - self.move) * targets + self.move * refined

    def step_loss(self, step: Step) -> Tensor:
        weak, strong = step.outputs.logits[:2]
        tail_weak, tail_strong = (self.tail(features) for features in step.outputs.features[:2])
        fused = self._fused(weak.detach(), tail_weak.detach())
        loss = self.fusing * cross_entropy(fused, step.batch.targets)
        for logits in (weak, tail_weak):
            loss = loss + cross_entropy(logits, step.batch.targets)
        if not self.phase[0]:
            return loss
        uniform = torch.full_like(self.prior, 1 / len(self.prior))
        head = Branch(weak, strong, step.batch.targets, self.prior)
        tail = Branch(tail_weak, tail_strong, self._tail_labels(weak.detach()), uniform)
        reliable = self._reliable(head), self._reliable_for_tail(tail, step)
        parts = [
            self._blend(branch, chosen, step)
            for branch, chosen in zip((head, tail), reliable, strict=True)
        ]
        mixed = self._logits_of_blends(step, *(blended for blended, _ in parts))
        for branch, chosen, (_, labels), logits in zip(
            (head, tail), reliable, parts, mixed, strict=True
        ):
            losses = cross_entropy(logits, labels, reduction="none")
            losses = losses + cross_entropy(branch.strong, branch.labels, reduction="none")
            loss = loss + self.strength * masked_mean(losses, chosen)
        return loss

    def _tail_labels(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits - self.tau * self.log_prior(), dim=1)

    @torch.no_grad()
    def _reliable(self, branch: Branch) -> Tensor:
        """Which examples are reliable for a head."""
        losses = cross_entropy(branch.weak, branch.labels, reduction="none")
        quotas = torch.ceil(len(losses) * branch.prior * self.share).clamp_min(1)
        return lowest_losses_per_class(losses, branch.labels.argmax(1), quotas) & self.relies

    def _reliable_for_tail(self, branch: Branch, step: Step) -> Tensor:
        return self._reliable(branch)

    @torch.no_grad()
    def _blend(self, branch: Branch, chosen: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """The blends of the chosen examples with each other, and their labels."""
        share = mixup_weights(MIXUP_ALPHA, step.generator)
        partner = mixup_partners(chosen, step.generator)
        views = fill_with_chosen(blend(step.batch.views[0], partner, share), chosen)
        return views, blend(branch.labels, partner, share)

    def _logits_of_blends(self, step: Step, head: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
        outputs = step.forward((head, tail))
        return outputs.logits[0], self.tail(outputs.features[1])

    def _fused(self, head: Tensor, tail: Tensor) -> Tensor:
        """The weighted sum of both heads' probabilities, the head's with the prior removed."""
        both = torch.softmax(head - self.log_prior(), dim=1), torch.softmax(tail, dim=1)
        weights = torch.softmax(leaky_relu(self.weighing(torch.cat(both, dim=1))), dim=1)
        weights = normalize(weights, dim=1)
        return weights[:, :1] * both[0] + weights[:, 1:] * both[1]

    def predict(self, outputs: Outputs, variant: str = "") -> Outputs:
        if variant == "head":
            return outputs
        tail = tuple(self.tail(features) for features in outputs.features)
        if variant == "tail":
            return outputs._replace(logits=tail)
        pairs = zip(outputs.logits, tail, strict=True)
        return outputs._replace(logits=tuple(self._fused(*logits) for logits in pairs))

    def log_prior(self) -> Tensor:
        return (self.prior + EPSILON).log()
