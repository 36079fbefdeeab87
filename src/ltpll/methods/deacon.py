"""DEACON (IJCAI 2026): an encoder for frequent and one for rare classes, with contrastive losses of
their own.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Annotated, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, normalize, one_hot

from ltpll.blocks.contrastive import Projector, contrastive_loss
from ltpll.blocks.selection import lowest_losses_per_class
from ltpll.errors import InputError
from ltpll.interfaces import Step, Training, linear_head
from ltpll.methods.htc import HTC, Branch
from ltpll.settings import Count, Fraction, Fractions, NotNegative, Wholes, Within

TEMPERATURE, BASE_TEMPERATURE = 0.1, 0.07
SIMILAR_WIDTH = 256  # of the vectors that the consistency loss compares
LARGEST_CONCENTRATION = 1e5


class DEACON(HTC):
    """DEACON (IJCAI 2026): HTC with an encoder for each head, which also learn from contrasts.

    Both encoders learn to give two weak views similar vectors. Later, the head's encoder gets a
    supervised contrastive loss, and the tail's a contrast with classes: each class is a von
    Mises–Fisher distribution of vectors, so that rare classes have as many comparisons as frequent
    ones. From then on, the tail's reliable examples are selected among all training examples
    instead of in each batch. All else is as in HTC, its `variants` included.

    The defaults are the authors', who train for 850 epochs: in a short run, lower `contrast_from`
    and `ramp_epochs`. Differs from their code: there, vectors do not have unit length, so means are
    often longer than 1, for which κ is 100,000; their recurrence for I is off by 0.003 at 2,000 and
    by 2.8 at 100,000. The paper's appendix names another blend (σ = 0.6). As in their code, class
    means are never reset. Not known from the sources that could be read, and decided here: the
    second encoder starts as a copy of the first; both contrasts use all examples and both weak
    views; D is averaged over its two directions; the selection among all looks at examples without
    augmentation. HTC's page says what differs in the selection in batches.

    Formula:
        loss       = that of HTC, with z of the head's and t of the tail's encoder
                   + consistency · (D_head + D_tail)
                   + T/0.07 · SupCon, from epoch contrast_from[0] on
                   + CE(argmax b, c), from epoch contrast_from[1] on
        D          = −½ [cos(P(v), v′) + cos(P(v′), v)], v and v′ linear maps of f of the two weak
                     views, without gradients where P, another linear map, is not applied
        SupCon     = mean over i of −mean_{u∈P(i)} log( exp(q_i·u/T) / Σ_{v≠q_i} exp(q_i·v/T) ), q
                     = the head's projections of both weak views, P(i) = those with the same argmax w
        c_j        = L(‖κ_j m_j/R_j + q/T‖) − L(κ_j), q = the tail's projection
        L(x)       = log I_ν(x) − ν log x, I the modified Bessel function, ν = width/2 − 1
        m_j        = mean of all q so far with j = argmax b;  R_j = ‖m_j‖
        κ_j        = width · R_j / (1 − R_j²), at most 100,000
        R′         = from epoch contrast_from[0] on, of each class k = argmax b the ⌈N/C · ρ⌉ of all
                     examples with the lowest CE(b, t), found after each epoch
        T          = 0.1
        targets    = as in HTC, with t of the tail's encoder;  prediction likewise

    References:
        DEACON, IJCAI 2026, from its formulas and its public code.

    Args:
        tau: The strength of the logit adjustment that makes the tail head's labels.
        move: How far targets move towards the tail head's predictions in a step, from 0 to 1.
        strength: The final weight of the loss on reliable examples.
        quota: The share of the examples that is considered reliable, at the start and after
            `ramp_epochs`.
        ramp_epochs: The number of epochs in which `strength` and `quota` reach their final values.
        consistency: The weight of the similarity of two weak views.
        contrast_from: The epochs (from 0) from which on the head's and the tail's contrast are
            learned.
        width: The dimension of the projections.

    Examples:
        >>> classifier = PartialLabelClassifier(DEACON(contrast_from=(10, 15)), rebalancer="none")
    """

    name = "deacon"
    views = ("weak", "strong", "weak")
    # Whether blends, the head's and the tail's contrast are learned.
    phase: tuple[bool, ...] = (False, False, False)
    per_example = ("reliable",)
    reliable: Tensor
    means: Tensor
    counts: Tensor

    def __init__(
        self,
        tau: NotNegative = 2.0,
        move: Fraction = 0.6,
        strength: Fraction = 0.9,
        quota: Fractions = (0.2, 0.6),
        ramp_epochs: Count = 50,
        consistency: NotNegative = 10.0,
        contrast_from: Wholes = (80, 100),
        width: Annotated[int, Within(8)] = 128,
    ) -> None:
        super().__init__(tau, move, strength, quota, ramp_epochs)
        self.consistency, self.contrast_from, self.width = consistency, contrast_from, width
        self._epoch = 0

    @property
    def cost(self) -> float:
        return 8.0  # three views for two encoders, and blends for each

    def network_around(self, model: nn.Module) -> nn.Module:
        if hasattr(model, "lr_factor_of"):
            raise InputError("DEACON trains two encoders: a backbone cannot be fine-tuned with it.")
        return TwoEncoders(model)

    def attach(self, model: nn.Module) -> None:
        super().attach(model)
        n, n_classes = linear_head(model).in_features // 2, len(self.prior)
        self.tail = SomeFeatures(slice(-n, None), n, n_classes)
        self.projectors = nn.ModuleList(Projector(n, self.width) for _ in range(2))
        self.similar = nn.ModuleList(nn.Linear(n, SIMILAR_WIDTH) for _ in range(2))
        self.predicting = nn.ModuleList(nn.Linear(SIMILAR_WIDTH, SIMILAR_WIDTH) for _ in range(2))
        self.register_buffer("means", torch.zeros(n_classes, self.width))
        self.register_buffer("counts", torch.zeros(n_classes, dtype=torch.float64))
        # In a list, so that the model does not become a submodule.
        self._network = [cast(TwoEncoders, model)]

    # ---- which examples are reliable for the tail ------------------------------------------------

    def start_training(self, training: Training) -> None:
        device = training.targets.values.device
        everyone = torch.zeros(len(training.targets), dtype=torch.bool, device=device)
        self.register_buffer("reliable", everyone)

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        super().start_epoch(epoch, n_epochs)
        self._epoch = epoch
        self.phase = (*self.phase[:1], *(epoch >= first for first in self.contrast_from))

    def end_epoch(self, training: Training) -> None:
        super().end_epoch(training)
        if self._epoch + 1 < self.contrast_from[0]:
            return
        found = []
        for outputs, _ in training.plain_outputs():
            labels = self._tail_labels(outputs.logits[0])
            losses = cross_entropy(self.tail(outputs.features[0]), labels, reduction="none")
            found.append((losses, labels.argmax(1)))
        losses, names = (torch.cat(parts) for parts in zip(*found, strict=True))
        quotas = torch.ceil(len(losses) / len(self.prior) * self.share).expand_as(self.prior)
        self.reliable.copy_(lowest_losses_per_class(losses, names, quotas.clamp_min(1)))

    def _reliable_for_tail(self, branch: Branch, step: Step) -> Tensor:
        return self.reliable[step.rows] if self.phase[1] else self._reliable(branch)

    # ---- a step ----------------------------------------------------------------------------------

    def _logits_of_blends(self, step: Step, head: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
        (network,) = self._network
        of_head = step.forward((head,), network.first)
        of_tail = step.forward((tail,), network.second)
        return of_head.logits[0], self.tail(of_tail.features[0])

    def step_loss(self, step: Step) -> Tensor:
        loss = super().step_loss(step)
        weak = [step.outputs.features[view].chunk(2, dim=1) for view in (0, 2)]
        by_encoder = list(zip(*weak, strict=True))
        for similar, predicting, features in zip(
            self.similar, self.predicting, by_encoder, strict=True
        ):
            one, other = (similar(part) for part in features)
            both = cosine_similarity(predicting(one), other.detach())
            both = both + cosine_similarity(predicting(other), one.detach())
            loss = loss - self.consistency / 2 * both.mean()
        names = step.batch.targets.argmax(1)
        tail_names = self._tail_labels(step.outputs.logits[0].detach()).argmax(1).repeat(2)
        head, tail = (
            projector(torch.cat(features))
            for projector, features in zip(self.projectors, by_encoder, strict=True)
        )
        self._count(tail.detach(), tail_names)
        _, contrasts_head, contrasts_tail = self.phase
        if contrasts_head:
            others = ~torch.eye(len(head), dtype=torch.bool, device=head.device)
            same = (names.repeat(2)[:, None] == names.repeat(2)) & others
            contrast = contrastive_loss(head @ head.T / TEMPERATURE, same.to(head.dtype), others)
            loss = loss + TEMPERATURE / BASE_TEMPERATURE * contrast
        if contrasts_tail:
            loss = loss + cross_entropy(class_logits(tail, self.means), tail_names)
        return loss

    @torch.no_grad()
    def _count(self, vectors: Tensor, names: Tensor) -> None:
        """Let vectors take part in the means of their classes."""
        members = one_hot(names, len(self.means)).to(vectors.dtype)
        new = members.sum(0)
        self.counts += new
        step = members.T @ vectors - new[:, None] * self.means
        self.means += step / self.counts.clamp_min(1)[:, None].to(step.dtype)


class SomeFeatures(nn.Linear):
    """A linear layer of some of the features."""

    def __init__(self, part: slice, n: int, n_classes: int, device: str | None = None) -> None:
        super().__init__(n, n_classes, device=device)
        self.part = part

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features[:, self.part])


class TwoEncoders(nn.Module):
    """A classifier with a second encoder, which starts as a copy; the features are those of both.

    The logits are those of the first one.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.first, self.second = model, deepcopy(model)
        self.second.head = nn.Identity()

    @property
    def head(self) -> nn.Linear:
        """The head of the first classifier, for the features of both encoders."""
        own = linear_head(self.first)
        # Without memory and random numbers of its own.
        head = SomeFeatures(slice(own.in_features), own.in_features, own.out_features, "meta")
        head.weight, head.bias, head.in_features = own.weight, own.bias, 2 * own.in_features
        return head

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, features = self.first(x)
        return logits, torch.cat([features, self.second(x)[1]], dim=1)


def class_logits(vectors: Tensor, means: Tensor) -> Tensor:
    """The log of the expected exp(vector · u / T) for u of each class's von Mises–Fisher
    distribution, given the means of the classes' vectors of unit length.
    """
    vectors, means = vectors.double(), means.double()  # of differences of large numbers
    width, lengths = means.shape[1], means.norm(dim=1)
    spread = (1 - lengths**2).clamp_min(torch.finfo(lengths.dtype).tiny)
    kappa = (width * lengths / spread).clamp_max(LARGEST_CONCENTRATION)
    # ‖κ m/R + q/T‖² for q of unit length, without a root whose gradient could be infinite.
    cosines = vectors @ normalize(means, dim=1).T
    squares = (kappa - 1 / TEMPERATURE) ** 2 + 2 * kappa / TEMPERATURE * (1 + cosines)
    order = width / 2 - 1
    logits = scaled_log_bessel(squares, order) - scaled_log_bessel(kappa**2, order)
    return logits.to(torch.get_default_dtype())


def scaled_log_bessel(squares: Tensor, order: float) -> Tensor:
    """log I_ν(x) − ν log x for x², by Debye's uniform expansion to the third order.

    It holds for all x ≥ 0; the error is about 0.02/ν⁴.
    """
    root = (squares + order**2).sqrt()
    t = order / root
    first = (3 * t - 5 * t**3) / 24
    second = (81 * t**2 - 462 * t**4 + 385 * t**6) / 1152
    third = (30375 * t**3 - 369603 * t**5 + 765765 * t**7 - 425425 * t**9) / 414720
    series = first / order + second / order**2 + third / order**3
    return root - order * (order + root).log() - (2 * math.pi * root).log() / 2 + series.log1p()
