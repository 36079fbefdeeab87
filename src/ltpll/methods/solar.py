"""SoLar (Wang et al., "SoLar: Sinkhorn Label Refinery …", NeurIPS 2022): assign labels so that each
class gets its share.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ltpll.blocks.contrastive import Queue
from ltpll.blocks.selection import (
    blend,
    fill_with_chosen,
    lowest_losses_per_class,
    masked_mean,
    mixup_partners,
    mixup_weights,
)
from ltpll.blocks.sinkhorn import sinkhorn
from ltpll.interfaces import Outputs, Step, Training, linear_head
from ltpll.methods.proden import PRODEN
from ltpll.settings import Count, Fraction, Fractions, Positive, Whole

MIXUP_ALPHA = 4


class SoLar(PRODEN):
    """SoLar (Wang et al., NeurIPS 2022): labels whose class shares match an estimated prior.

    Labels are assigned to the batch together with a queue of earlier batches. The examples of each
    class with the lowest loss against these labels are reliable and learn them, on both views and
    on blends of the weak view; all others learn from targets like PRODEN's. After each epoch the
    prior moves towards the share of training examples that the network assigns to each class. After
    `estimation_epochs`, the network, the targets and the schedule restart, and the prior moves more
    slowly.

    The defaults are the authors' for CIFAR-10; for CIFAR-100 they use `quota=(0.2, 0.5)`,
    `estimation_epochs=20`, `rates=(0.05, 0.01)`. As in their code, each view and the blends pass
    through the network by themselves. Differs from their code: the queue is never longer than the
    data set and is used before it is full, and, so that shapes stay the same, blends of reliable
    examples are repeated with zero weight until they fill the batch. Batch norm then counts some of
    them once more than the others, unless the batch is a multiple of their number.

    Formula:
        q          = the labels closest to softmax_S(sharpness · ẑ_weak) whose mean over the batch
                     and the queue is r (Sinkhorn)
        loss       = η · mean over R of
                     [CE(q, z_weak) + CE(q, z_strong) + CE(λq + (1−λ)q′, z_blend)]
                   + (1 − η) · mean over the others of CE(w, z_weak)
        R          = of each class k = argmax q the ⌈B · r_k · ρ⌉ examples with the lowest
                     CE(q, z_weak), and all with
                     Σ_j q_j p_j > confident; none in the first epoch of a stage
        η          = strength · min(e / ramp_epochs, 1);  e counts from 0 in each stage
        ρ          grows likewise from quota[0] to quota[1]
        targets    = softmax_S(ẑ_weak), from the first epoch on
        r          ← (1 − rate) · r + rate · share of each class among argmax_{j∈S} z of all
                     training examples, after each epoch
        prediction = z;  z − log r with `la`, and for the variant "la"

    References:
        Haobo Wang, Mingxuan Xia, Yixuan Li, Yuren Mao, Lei Feng, Gang Chen and Junbo Zhao: SoLar:
        Sinkhorn Label Refinery for Imbalanced Partial-Label Learning, NeurIPS 2022.
        https://proceedings.neurips.cc/paper_files/paper/2022/hash/357a0a771bf65ee07926d6af41b75030-Abstract-Conference.html

    Args:
        la: Whether to subtract the log-prior from the logits at prediction.
        estimation_epochs: The length of the first stage, which only estimates the prior; by default
            a quarter of all epochs, at most 100.
        ramp_epochs: The number of epochs in which `quota` and `strength` reach their final values.
        quota: The share of the batch that is considered reliable, at the start and after
            `ramp_epochs`.
        strength: The final weight of the loss on reliable examples; targets get the rest.
        confident: An example is also reliable if its assigned label has at least this probability.
        sharpness: The inverse of the regularisation in optimal transport: larger values give harder
            labels.
        queue: The number of earlier examples that take part in the assignment; never more than the
            data set has.
        rates: How fast the prior moves, before and after the restart.

    Examples:
        >>> classifier = PartialLabelClassifier(method=SoLar(la=True), rebalancer="none")
    """

    name = "solar"
    views = ("weak", "strong")
    warmup_epochs = 0
    separate_views = True
    phase = (False,)  # whether blends of reliable examples are learned
    lr_factor = 0.2  # at the default rate for tables, the three losses on its own labels diverge
    why_no_rebalancer = (
        "it assigns labels by its own estimate of the prior; its option `la` subtracts that prior "
        "at prediction."
    )
    stored_as: ClassVar[dict[str, str]] = {"strength": "final_strength", "queue": "queue_size"}
    prior: Tensor
    rate: Tensor
    share: Tensor
    strength: Tensor
    relies: Tensor

    def __init__(
        self,
        la: bool = False,
        estimation_epochs: Whole | None = None,
        ramp_epochs: Count = 50,
        quota: Fractions = (0.2, 0.6),
        strength: Fraction = 0.9,
        confident: Fraction = 0.99,
        sharpness: Positive = 3.0,
        queue: Count = 64 * 256,
        rates: Fractions = (0.1, 0.01),
    ) -> None:
        super().__init__()
        self.la = la
        self.variants = () if la else ("la",)
        self.estimation_epochs = estimation_epochs
        self.ramp_epochs = ramp_epochs
        self.quota, self.final_strength, self.rates = quota, strength, rates
        self.confident, self.sharpness, self.queue_size = confident, sharpness, queue
        for name in ("rate", "share", "strength"):
            self.register_buffer(name, torch.zeros(()))
        self.register_buffer("relies", torch.zeros((), dtype=torch.bool))

    @property
    def cost(self) -> float:
        return 3.0  # two views and the blends

    def attach(self, model: nn.Module) -> None:
        head = linear_head(model)
        self.register_buffer("prior", torch.full((head.out_features,), 1 / head.out_features))
        self.queue = Queue(self.queue_size, head.out_features)

    # ---- schedule --------------------------------------------------------------------------------

    def restart(self, n_epochs: int) -> int:
        return min(100, n_epochs // 4) if self.estimation_epochs is None else self.estimation_epochs

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        restart = self.restart(n_epochs)
        if epoch == restart:
            self.queue.forget_all()
        self.rate.fill_(self.rates[0] if epoch < restart or not restart else self.rates[1])
        epoch -= restart if epoch >= restart else 0
        ramp = min(epoch / self.ramp_epochs, 1.0)
        self.strength.fill_(self.final_strength * ramp)
        self.share.fill_(self.quota[0] + (self.quota[1] - self.quota[0]) * ramp)
        self.relies.fill_(epoch > 0)
        self.phase = (epoch > 0,)

    def end_epoch(self, training: Training) -> None:
        counts = torch.zeros_like(self.prior)
        for outputs, candidates in training.plain_outputs():
            labels = outputs.logits[0].masked_fill(~candidates, -torch.inf).argmax(1)
            counts += torch.bincount(labels, minlength=len(counts))
        self.prior.lerp_(counts / counts.sum(), self.rate)
        self.queue.shorten_to(len(training.targets))

    # ---- a step ----------------------------------------------------------------------------------

    @torch.no_grad()
    def assign_labels(self, logits: Tensor, candidates: Tensor) -> Tensor:
        """Labels for a batch, (batch, classes), that together with the queue give each class its
        share; adds the batch to the queue.
        """
        scores = logits.masked_fill(~candidates, -torch.inf)
        scores = scores - scores.max(1, keepdim=True).values
        earlier, marks = self.queue.stored_vectors()  # a mark of −1 is an empty place
        filled = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
        weights = torch.cat([marks, filled]) >= 0
        scaled = self.sharpness * torch.cat([earlier, scores])
        labels = sinkhorn(scaled, self.prior, weights.to(scores.dtype))
        self.queue.replace_oldest(scores, filled)
        return labels[-len(scores) :]

    @torch.no_grad()
    def reliable(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Which examples, (batch,), are reliable: a quota of each class with the lowest loss, and
        those that are nearly certain.
        """
        losses = cross_entropy(logits, labels, reduction="none")
        quotas = torch.ceil(len(labels) * self.prior * self.share).clamp_min(1)
        certain = (labels * torch.softmax(logits, dim=1)).sum(1) > self.confident
        return (lowest_losses_per_class(losses, labels.argmax(1), quotas) | certain) & self.relies

    def step_loss(self, step: Step) -> Tensor:
        weak, strong = step.outputs.logits
        weighted = step.outputs.detach().weighted(step.batch.log_weights)
        assigned = self.assign_labels(weighted.logits[0], step.batch.candidates)
        losses = cross_entropy(weak, step.batch.targets, reduction="none")
        (relies,) = self.phase
        if not relies:
            return losses.mean()
        chosen = self.reliable(weak.detach(), assigned)
        share = mixup_weights(MIXUP_ALPHA, step.generator)
        partner = mixup_partners(chosen, step.generator)
        blends = fill_with_chosen(blend(step.batch.views[0], partner, share), chosen)
        blended, mixed = step.forward((blends,)).logits[0], blend(assigned, partner, share)
        with_labels = sum(
            masked_mean(cross_entropy(logits, labels, reduction="none"), chosen)
            for logits, labels in ((weak, assigned), (strong, assigned), (blended, mixed))
        )
        with_targets = masked_mean(losses, ~chosen)
        return self.strength * with_labels + (1 - self.strength) * with_targets

    # ---- prediction ------------------------------------------------------------------------------

    def predict(self, outputs: Outputs, variant: str = "") -> Outputs:
        if not self.la and variant != "la":
            return outputs
        log_prior = self.log_prior()
        return outputs._replace(logits=tuple(z - log_prior for z in outputs.logits))

    def log_prior(self) -> Tensor:
        return self.prior.clamp_min(1e-9).log()
