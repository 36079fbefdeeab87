"""ALIM (Xu et al., "ALIM: Adjusting Label Importance Mechanism for Noisy Partial Label Learning",
NeurIPS 2023): PiCO for sets that may lack the true label.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from ltpll.blocks.selection import blend, mixup_weights
from ltpll.interfaces import Outputs, Step, Training
from ltpll.methods.pico import PiCO
from ltpll.settings import Count, Fraction, Fractions, NotNegative, Positive, Whole

EPSILON = 1e-9
LEAST = 1e-12  # of a label; one whose candidates have nothing left counts them equally


class ALIM(PiCO):
    """ALIM (Xu et al., NeurIPS 2023): PiCO where classes outside the set count with weight λ.

    The labels that the loss learns may leave the sets: like PiCO's targets they move towards the
    nearest prototype, where other classes compete with λ times their probability. λ is found after
    each epoch such that the share `missing` of the examples would change over to another class.
    Mixup is part of the loss.

    The targets are these labels on the candidates only, so cleaned labels stay inside the sets; set
    `truth_missing` to let them leave. Differs from the authors' code: examples are blended with
    others of the batch instead of those of a second one. See PiCO for the queue and for what a
    rebalancer affects. The authors use the true share of sets that lack the true label.

    Formula:
        y       = argmax_j [ẑ_j + log M_j];  M = 1 in S, λ outside
        loss    = CE(ℓ, z_weak) + weight · the contrastive loss of PiCO, with positives of the same y
                  in every epoch + CE(b·ℓ + (1−b)·ℓ′, z_blend)
        z_blend = logits of b·x_weak + (1−b)·x′_weak;  b = max(b₀, 1−b₀), b₀ ~ Beta(alpha, alpha)
        r       = softmax(q·μ/T);  q and the prototypes μ as in PiCO
        ℓ       ← φ · ℓ + (1−φ) · o from first_epoch on, before the loss of the same step, uniform
                  in S at the start
        o       = onehot(argmax_j [r_j a_j M_j]), or r a M normalised for the form "scale"
        targets = ℓ on S, normalised
        λ       = 0 up to estimate_from; after that and each later epoch, the share `missing`
                  of the examples has a smaller max_{j∈S} r_j / max_{j∉S} r_j, at most 1; 0 if
                  missing is 0
        φ       = phi[0] + (phi[1] − phi[0]) · max(e − 1, 0)/E;  e counts from 0

    References:
        Mingyu Xu, Zheng Lian, Lei Feng, Bin Liu and Jianhua Tao: ALIM: Adjusting Label Importance
        Mechanism for Noisy Partial Label Learning, NeurIPS 2023. https://arxiv.org/abs/2301.12077

    Args:
        missing: The share of sets that lack the true label, as far as it is known.
        form: "onehot" (the authors' choice for CIFAR-10) or "scale" (for CIFAR-100).
        estimate_from: The epoch (from 0) after which λ is estimated for the first time.
        alpha: The parameter of mixup's Beta distribution, a positive integer.
        weight: The weight of the contrastive loss.
        temperature: The temperature of the contrastive loss, and of similarities to prototypes.
        width: The dimension of the projections.
        queue: The number of earlier projections to compare with.
        momentum: The momentum of the momentum encoder.
        prototype_momentum: The momentum of the prototypes.
        phi: φ at the start and at the end.
        first_epoch: The epoch (from 0) from which on labels move.

    Examples:
        >>> classifier = PartialLabelClassifier(method=ALIM(missing=0.2, estimate_from=20))
    """

    name = "alim"
    separate_views = True
    per_example = ("labels", "margins")
    stored_as: ClassVar[dict[str, str]] = {"phi": "phi_range"}
    labels: Tensor
    margins: Tensor
    outside: Tensor

    def __init__(
        self,
        missing: Fraction = 0.0,
        form: Literal["onehot", "scale"] = "onehot",
        estimate_from: Whole = 80,
        alpha: Count = 4,
        weight: NotNegative = 0.5,
        temperature: Positive = 0.07,
        width: Count = 128,
        queue: Count = 8192,
        momentum: Fraction = 0.999,
        prototype_momentum: Fraction = 0.99,
        phi: Fractions = (0.95, 0.8),
        first_epoch: Whole = 1,
    ) -> None:
        super().__init__(
            weight, temperature, width, queue, momentum, prototype_momentum, phi, first_epoch
        )
        self.missing, self.form, self.estimate_from = missing, form, estimate_from
        self.alpha = alpha
        self.register_buffer("outside", torch.zeros(()))  # λ
        self._epoch = 0

    @property
    def cost(self) -> float:
        return 7 / 3  # the weak view, the blend, and a forward pass of the strong view

    def start_training(self, training: Training) -> None:
        targets = training.targets
        rows = torch.arange(len(targets), device=targets.values.device)
        self.register_buffer("labels", targets[rows])
        self.register_buffer("margins", self.labels.new_ones(len(targets)))

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        super().start_epoch(epoch, n_epochs)
        self.by_label.fill_(True)
        self._epoch = epoch

    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        return self._inside(super().disambiguate(outputs, targets, candidates), candidates)

    def refined_targets(self, step: Step) -> Tensor:
        candidates, similarities = step.batch.candidates, self._similarities(step.outputs.detach())
        near = torch.softmax(similarities, dim=1)
        best_outside = (near * ~candidates).max(1).values
        self.margins[step.rows] = (near * candidates).max(1).values / (best_outside + EPSILON)
        if step.batch.log_weights is not None:
            similarities = similarities + step.batch.log_weights
        moved = self._moved_targets(similarities, self.labels[step.rows], candidates)
        self.labels[step.rows] = moved
        return self._inside(moved, candidates)

    def _similarities(self, outputs: Outputs) -> Tensor:
        return super()._similarities(outputs) / self.temperature

    def _moved_targets(self, similarities: Tensor, targets: Tensor, candidates: Tensor) -> Tensor:
        scores = self._weighted(similarities, candidates)
        if self.form == "onehot":
            found = one_hot(scores.argmax(1), scores.shape[1]).to(targets.dtype)
        else:
            found = torch.softmax(scores, dim=1)
        return self.phi * targets + (1 - self.phi) * found

    def _weighted(self, logits: Tensor, candidates: Tensor) -> Tensor:
        """Logits of probabilities that are multiplied by λ outside the sets."""
        return torch.where(candidates, logits, logits + self.outside.log())

    @staticmethod
    def _inside(labels: Tensor, candidates: Tensor) -> Tensor:
        kept = (labels + LEAST) * candidates
        return kept / kept.sum(1, keepdim=True)

    def step_loss(self, step: Step) -> Tensor:
        logits = self._weighted(step.adjusted().logits[0], step.batch.candidates)
        labels, view = self.labels[step.rows], step.batch.views[0]
        share = mixup_weights(self.alpha, step.generator)
        partner = torch.randperm(len(labels), generator=step.generator, device=labels.device)
        blended = step.forward((blend(view, partner, share),)).logits[0]
        return (
            cross_entropy(step.outputs.logits[0], labels)
            + self.weight * self.contrast(step, logits.argmax(1))
            + cross_entropy(blended, blend(labels, partner, share))
        )

    def end_epoch(self, training: Training) -> None:
        super().end_epoch(training)
        if self.missing and self._epoch >= self.estimate_from:
            place = min(int(self.missing * len(self.margins)), len(self.margins) - 1)
            self.outside.copy_(self.margins.sort().values[place].clamp_max(1.0))
