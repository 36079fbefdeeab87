"""SoLar (Wang et al., "SoLar: Sinkhorn Label Refinery …", NeurIPS 2022): labels are dealt out so that each class gets its share."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ltpll.blocks.contrastive import Queue
from ltpll.blocks.selection import blend, folded_beta, lowest_in_class, mean_over, partners_among
from ltpll.blocks.sinkhorn import sinkhorn
from ltpll.errors import InputError
from ltpll.interfaces import Method, Outputs, Step, Training, linear_head
from ltpll.targets import restricted_softmax

MIXUP_ALPHA = 4


class SoLar(Method):
    """Optimal transport labels a batch and a queue of earlier ones so that each class gets its share of a class prior.

    Each class's examples with the lowest loss against these labels are relied on (both views and blends of the weak one); the rest learn
    from targets like PRODEN's. The prior follows the labels that the network gives the training examples, quickly for
    `estimation_epochs` (a quarter of all, at most 100); then network, targets and schedule start anew and it follows slowly. `la` subtracts
    it at prediction.

    The defaults are the authors' for CIFAR-10; for CIFAR-100 they take `quota=(0.2, 0.5)`, `estimation_epochs=20` and rates of 0.05 and
    0.01. `queue` counts examples (64 batches of 256) and is never longer than the data.
    Differs from the authors' code: a queue that is not full yet is used as far as it is filled, and examples that are not relied on go
    along when blends are formed, unblended and without weight, so that shapes stay the same.
    """

    name = "solar"
    views = ("weak", "strong")
    why_no_rebalancer = "it deals out labels by a prior that it estimates itself; its option `la` subtracts that prior at prediction."
    prior: Tensor
    rate: Tensor
    share: Tensor
    strength: Tensor
    relies: Tensor

    def __init__(
        self,
        la: bool = False,
        estimation_epochs: int | None = None,
        ramp_epochs: int = 50,
        quota: tuple[float, float] = (0.2, 0.6),
        strength: float = 0.9,
        confident: float = 0.99,
        sharpness: float = 3.0,
        queue: int = 64 * 256,
        rates: tuple[float, float] = (0.1, 0.01),
    ) -> None:
        super().__init__()
        if estimation_epochs is not None and estimation_epochs < 0:
            raise InputError(f"SoLar's estimation_epochs is {estimation_epochs}: it counts epochs and must not be negative.")
        if ramp_epochs < 1 or queue < 1 or not sharpness > 0:
            raise InputError("SoLar's ramp_epochs, queue and sharpness must be positive.")
        if len(quota) != 2 or len(rates) != 2 or not all(0 <= number <= 1 for number in (*quota, *rates, strength, confident)):
            raise InputError("SoLar's quota and rates are two shares each, from 0 to 1, and its strength and confident one.")
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
        return 3.0  # the blends are a third view

    def attach(self, model: nn.Module) -> None:
        head = linear_head(model)
        self.register_buffer("prior", torch.full((head.out_features,), 1 / head.out_features))
        self.queue = Queue(self.queue_size, head.out_features)

    # ---- schedule -------------------------------------------------------------------------------------------------

    def restart(self, n_epochs: int) -> int:
        return min(100, n_epochs // 4) if self.estimation_epochs is None else self.estimation_epochs

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        anew = self.restart(n_epochs)
        if epoch == anew:
            self.queue.empty()
        self.rate.fill_(self.rates[0] if epoch < anew or not anew else self.rates[1])
        epoch -= anew if epoch >= anew else 0
        ramp = min(epoch / self.ramp_epochs, 1.0)
        self.strength.fill_(self.final_strength * ramp)
        self.share.fill_(self.quota[0] + (self.quota[1] - self.quota[0]) * ramp)
        self.relies.fill_(epoch > 0)

    def end_epoch(self, training: Training) -> None:
        counts = torch.zeros_like(self.prior)
        for outputs, candidates in training.plain_outputs():
            labels = outputs.logits[0].masked_fill(~candidates, -torch.inf).argmax(1)
            counts += torch.bincount(labels, minlength=len(counts))
        self.prior.lerp_(counts / counts.sum(), self.rate)
        self.queue.limit_to(len(training.targets))

    # ---- a step ---------------------------------------------------------------------------------------------------

    def loss(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        return cross_entropy(outputs.logits[0], targets)

    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        return restricted_softmax(outputs.logits[0], candidates)

    @torch.no_grad()
    def dealt_out(self, logits: Tensor, candidates: Tensor) -> Tensor:
        """Labels of a batch, (batch, classes), that together with the queue's give each class its share; the batch joins the queue."""
        scores = logits.masked_fill(~candidates, -torch.inf)
        scores = scores - scores.max(1, keepdim=True).values
        earlier, held = self.queue.held()
        filled = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
        weights = torch.cat([held, filled]) >= 0
        dealt = sinkhorn(self.sharpness * torch.cat([earlier, scores]), self.prior, weights.to(scores.dtype))
        self.queue.push(scores, filled)
        return dealt[-len(scores) :]

    @torch.no_grad()
    def reliable(self, logits: Tensor, dealt: Tensor) -> Tensor:
        """Which examples, (batch,), are relied on: of each class its quota with the lowest loss, and whatever is nearly certain."""
        losses = cross_entropy(logits, dealt, reduction="none")
        quotas = torch.ceil(len(dealt) * self.prior * self.share).clamp_min(1)
        certain = (dealt * torch.softmax(logits, dim=1)).sum(1) > self.confident
        return (lowest_in_class(losses, dealt.argmax(1), quotas) | certain) & self.relies

    def step_loss(self, step: Step) -> Tensor:
        weak, strong = step.outputs.logits
        dealt = self.dealt_out(weak.detach(), step.batch.candidates)
        chosen = self.reliable(weak.detach(), dealt)
        share, partner = folded_beta(MIXUP_ALPHA, step.generator), partners_among(chosen, step.generator)
        blended = step.forward((blend(step.batch.views[0], partner, share),)).logits[0]
        relied = [(weak, dealt), (strong, dealt), (blended, blend(dealt, partner, share))]
        with_labels = sum(mean_over(cross_entropy(z, labels, reduction="none"), chosen) for z, labels in relied)
        with_targets = mean_over(cross_entropy(weak, step.batch.targets, reduction="none"), ~chosen)
        return self.strength * with_labels + (1 - self.strength) * with_targets

    # ---- prediction -----------------------------------------------------------------------------------------------

    def predict(self, outputs: Outputs, variant: str = "") -> Outputs:
        if not self.la and variant != "la":
            return outputs
        log_prior = self.log_prior()
        return Outputs(tuple(z - log_prior for z in outputs.logits), outputs.features)

    def log_prior(self) -> Tensor:
        return self.prior.clamp_min(1e-9).log()
