"""PaPi (Xia et al., "Towards Effective Visual Representations for Partial-Label Learning", CVPR
2023): prototypes of blended examples agree with the targets.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax

from ltpll.blocks.contrastive import Projector, move_prototypes
from ltpll.blocks.selection import blend, symmetric_beta
from ltpll.interfaces import Outputs, Step, linear_head
from ltpll.methods.proden import PRODEN
from ltpll.settings import Count, Fractions, NotNegative, Positive
from ltpll.targets import restricted_softmax

FIRST = 0.99  # φ and γ in the first epoch


class PaPi(PRODEN):
    """PaPi (Xia et al., CVPR 2023): blends are as near to prototypes as the targets say.

    The classifier's predictions refine the targets, and the features of blended examples learn to
    be as similar to each class's prototype as the targets of both examples say. In PiCO it is the
    other way round: there, prototypes refine the targets. Each view and each of the two blends
    passes through the network by itself; the strong view itself only moves the prototypes.

    A rebalancer affects the targets, which label moves which prototype, and the predictions.
    Differs from the authors' code: the hidden layer of the projector is as wide as the features.

    Formula:
        loss    = CE(w, z_weak) + α · Σ_{v = weak, strong} [ b · KL(w ‖ s_v) + (1−b) · KL(w′ ‖ s_v) ]
        s_v     = softmax(q_v·μ / T),  q_v = projection of f of the blend b·v + (1−b)·v′
        b       ~ Beta(alpha, alpha), one for the batch; v′, w′ are another example's
        α       = weight · min(e / ramp_epochs, 1);  e counts from 0
        targets = φ · w + (1−φ) · softmax_S(ẑ_weak), from the first epoch on and before the loss of
                  the same step
        μ_y     ← γ · μ_y + (1−γ) · q after the loss, for the weak and then the strong view of each
                  example in turn, then normalised;  y = argmax_{j∈S} ẑ_j of the view
        φ, γ    = 0.99 in the first epoch, then first + (last − first) · (e−1)/E, with
                  (first, last) = phi and prototype_momentum

    References:
        Shiyu Xia, Jiaqi Lv, Ning Xu, Gang Niu and Xin Geng: Towards Effective Visual
        Representations for Partial-Label Learning, CVPR 2023.
        https://arxiv.org/abs/2305.06080

    Args:
        weight: The weight of the loss on blends.
        temperature: T, the temperature of the similarities to prototypes.
        width: The dimension of the projections.
        alpha: The parameter of the Beta distribution, a positive integer.
        ramp_epochs: The number of epochs in which the loss on blends reaches its weight.
        phi: φ in the second epoch and at the end.
        prototype_momentum: γ in the second epoch and at the end.

    Examples:
        >>> classifier = PartialLabelClassifier(method=PaPi(temperature=1.0, alpha=5))
    """

    name = "papi"
    views = ("weak", "strong")
    warmup_epochs = 0
    separate_views = True
    learns_refined = True
    stored_as: ClassVar[dict[str, str]] = {"phi": "phi_range"}
    prototypes: Tensor
    phi: Tensor
    moving: Tensor
    ramp: Tensor

    def __init__(
        self,
        weight: NotNegative = 1.0,
        temperature: Positive = 0.3,
        width: Count = 128,
        alpha: Count = 8,
        ramp_epochs: Count = 10,
        phi: Fractions = (0.95, 0.8),
        prototype_momentum: Fractions = (0.9, 0.5),
    ) -> None:
        super().__init__()
        self.weight, self.temperature, self.width, self.alpha = weight, temperature, width, alpha
        self.ramp_epochs, self.phi_range = ramp_epochs, phi
        self.prototype_momentum = prototype_momentum
        for name in ("phi", "moving", "ramp"):
            self.register_buffer(name, torch.zeros(()))

    @property
    def cost(self) -> float:
        return 10 / 3  # the strong view only needs a forward pass

    def attach(self, model: nn.Module) -> None:
        head = linear_head(model)
        self.projector = Projector(head.in_features, self.width)
        self.register_buffer("prototypes", torch.zeros(head.out_features, self.width))

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        for buffer, (first, last) in (
            (self.phi, self.phi_range),
            (self.moving, self.prototype_momentum),
        ):
            # As in the authors' code, which sets both after each epoch.
            now = first + (last - first) * (epoch - 1) / n_epochs
            buffer.fill_(now if epoch else FIRST)
        self.ramp.fill_(self.weight * min(epoch / self.ramp_epochs, 1.0))

    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        refined = restricted_softmax(outputs.logits[0], candidates)
        return self.phi * targets + (1 - self.phi) * refined

    def step_loss(self, step: Step) -> Tensor:
        targets, candidates = step.batch.targets, step.batch.candidates
        share = symmetric_beta(self.alpha, step.generator)
        partner = torch.randperm(len(targets), generator=step.generator, device=targets.device)
        blends = step.forward([blend(view, partner, share) for view in step.batch.views[:2]])
        prototypes = self.prototypes.clone()  # they move before the backward pass
        agreement = torch.zeros_like(self.ramp)
        for features in blends.features:
            similarities = self.projector(features) @ prototypes.T / self.temperature
            log_s = log_softmax(similarities, dim=1)
            for part, labels in ((share, targets), (1 - share, targets[partner])):
                agreement = agreement + part * kl_div(log_s, labels, reduction="batchmean")
        labels = torch.cat(
            [z.masked_fill(~candidates, -torch.inf).argmax(1) for z in step.adjusted().logits]
        )
        with torch.no_grad():
            vectors = self.projector(torch.cat(step.outputs.features))
        move_prototypes(self.prototypes, vectors, labels, self.moving)
        return self.loss(step.outputs, targets, candidates) + self.ramp * agreement
