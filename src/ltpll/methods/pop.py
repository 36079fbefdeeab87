"""POP (Xu et al., "Progressive Purification for Instance-Dependent Partial Label Learning", ICML
2023): candidate sets lose labels that stay improbable.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ltpll.interfaces import Outputs, Training, ViewKind
from ltpll.methods.proden import PRODEN
from ltpll.settings import Count, Fraction, NotNegative, Whole

HIGHEST_THRESHOLD = 0.4  # from which on it does not grow
FEW = 1e-4  # of all pairs of an example and a class: the threshold grows where fewer are dropped


class POP(PRODEN):
    """POP (Xu et al., ICML 2023): PRODEN whose sets lose labels that stay improbable.

    Every `window` epochs, candidates leave a set for good if their mean target over these epochs is
    below a threshold, relative to the largest one of the set. The targets of the others are then
    their means.

    The defaults are those of the authors' code for CIFAR, which trains for 500 epochs: in a short
    run nothing is dropped unless `first_epoch` is lowered. Differs from their code: the first view
    is a weak view instead of the image itself, targets are restricted to the remaining candidates
    instead of the classes whose target is above zero (there, a target that was once rounded to zero
    never returns), and of the candidates that were given, the likeliest one always remains.

    Formula:
        loss    = mean of CE(w, z) over the weak and the strong views
        targets = softmax_R(ẑ_weak), from the first epoch on
        R       = S at the start; after each epoch e (from 0) that is a multiple of window and at
                  least first_epoch: R ← {j ∈ R : m_j ≥ θ · max_k m_k}, w ← m on R, normalised
        m       = mean of w at the ends of the last epochs, of which there are `window`
        θ       = threshold; ← θ · (1 + growth) after a purification that drops fewer than
                  N·C/10,000 labels, while θ < 0.4

    References:
        Ning Xu, Biao Liu, Jiaqi Lv, Congyu Qiao and Xin Geng: Progressive Purification for
        Instance-Dependent Partial Label Learning, ICML 2023.
        https://proceedings.mlr.press/v202/xu23l.html

    Args:
        strong_views: The number of strong views beside the weak one; 0 trains a third as long.
        threshold: θ at the start.
        growth: By which share θ grows after a purification that drops few labels.
        window: The epochs between two purifications, over which targets are averaged.
        first_epoch: The epoch (from 0) after which sets can first lose labels.

    Examples:
        >>> classifier = PartialLabelClassifier(method=POP(strong_views=0, first_epoch=5))
    """

    name = "pop"
    warmup_epochs = 0
    separate_views = True
    per_example = ("remaining", "total")
    remaining: Tensor
    total: Tensor
    current_threshold: Tensor

    def __init__(
        self,
        strong_views: Whole = 2,
        threshold: Fraction = 1e-3,
        growth: NotNegative = 1e-3,
        window: Count = 5,
        first_epoch: Whole = 20,
    ) -> None:
        super().__init__()
        self.strong_views, self.threshold, self.growth = strong_views, threshold, growth
        self.window, self.first_epoch = window, first_epoch
        strong: ViewKind = "strong"
        self.views = ("weak", *(strong,) * strong_views)
        self.register_buffer("current_threshold", torch.tensor(float(threshold)))
        self._epoch = 0

    def start_training(self, training: Training) -> None:
        values = training.targets.values
        shape = len(training.targets), training.candidates.n_classes
        everything = torch.ones(shape, dtype=torch.bool, device=values.device)
        self.register_buffer("remaining", everything)
        self.register_buffer("total", values.new_zeros(shape))  # of the targets of the last epochs

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        self._epoch = epoch

    def remaining_classes(self, rows: Tensor) -> Tensor:
        return self.remaining[rows]

    def loss(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        return torch.stack([cross_entropy(z, targets) for z in outputs.logits]).mean()

    def end_epoch(self, training: Training) -> None:
        blocks = training.candidates.row_blocks(training.candidates.n_classes)
        for rows in blocks:
            self.total[rows] += training.targets[rows]
        if self._epoch % self.window == 0:
            if self._epoch >= self.first_epoch:
                dropped = sum(self._purify(training, rows) for rows in blocks)
                if (
                    self.current_threshold < HIGHEST_THRESHOLD
                    and dropped < FEW * self.total.numel()
                ):
                    self.current_threshold *= 1 + self.growth
            self.total.zero_()

    def _purify(self, training: Training, rows: Tensor) -> int:
        """Drop improbable candidates of some rows, and return how many."""
        # Not those of open sets that come from outside, which have their own rule.
        given = training.candidates[rows] & self.remaining[rows]
        shares = self.total[rows] * given
        dropped = given & (shares < self.current_threshold * shares.max(1, keepdim=True).values)
        self.remaining[rows] &= ~dropped
        left = self.total[rows] * ~dropped
        training.targets[rows] = left / left.sum(1, keepdim=True)
        return int(dropped.sum())
