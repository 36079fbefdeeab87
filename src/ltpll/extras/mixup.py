"""Mixup (Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018): the method's loss
on blends of two examples.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ltpll.blocks.selection import blend, mixup_weights
from ltpll.interfaces import Batch, Extra, Method, Outputs, Step
from ltpll.settings import Count, Whole


class Mixup(Extra):
    """Mixup (Zhang et al., ICLR 2018): the method's loss on blends of two examples.

    All views of a batch share one λ and one permutation. The candidates of a blend are the union of
    both candidate sets. Differs from the publication, as in the RECORDS paper: the loss on blends
    is added to the loss on the examples themselves, and λ is at least ½.

    Formula:
        λ    = max(λ₀, 1 − λ₀),  λ₀ ~ Beta(α, α)
        term = weight · the method's loss on (λx + (1−λ)x′, λw + (1−λ)w′, S ∪ S′)

    References:
        Hongyi Zhang, Moustapha Cisse, Yann N. Dauphin and David Lopez-Paz: mixup: Beyond Empirical
        Risk Minimization, ICLR 2018. https://openreview.net/forum?id=r1Ddp1-Rb

    Args:
        alpha: α, a positive integer.
        weight: The weight of the term.
        first_epoch: The first epoch (from 0) in which the term is added.

    Examples:
        >>> classifier = PartialLabelClassifier(extras=[Mixup(alpha=2)])
    """

    name = "mixup"

    def __init__(self, alpha: Count = 4, weight: float = 1.0, first_epoch: Whole = 1) -> None:
        super().__init__()
        self.alpha, self.weight, self.first_epoch = alpha, weight, first_epoch

    def inputs(self, batch: Batch, generator: torch.Generator) -> Batch:
        share = mixup_weights(int(self.alpha), generator)
        partner = torch.randperm(len(batch.targets), generator=generator, device=generator.device)
        return Batch(
            views=tuple(blend(view, partner, share) for view in batch.views),
            targets=blend(batch.targets, partner, share),
            candidates=batch.candidates | batch.candidates[partner],
            given=None if batch.given is None else batch.given | batch.given[partner],
        )

    def loss(
        self, method: Method, step: Step, added: Batch | None, added_outputs: Outputs | None
    ) -> Tensor:
        assert added is not None
        assert added_outputs is not None
        return self.weight * method.loss(added_outputs, added.targets, method.loss_mask(added))
