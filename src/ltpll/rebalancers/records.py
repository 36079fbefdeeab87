"""RECORDS (Hong et al., "Long-Tailed Partial Label Learning via Dynamic Rebalancing", ICLR 2023):
subtract the prior absorbed so far.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ltpll.interfaces import Outputs, Rebalancer, linear_head
from ltpll.settings import Fraction

EPSILON = 1e-9


class RECORDS(Rebalancer):
    """RECORDS (Hong et al., ICLR 2023): the prior is the head's prediction for a mean feature.

    F starts at zero and is updated from the first step on, with the features of all views.

    Formula:
        F          ← momentum · F + (1 − momentum) · mean of f over the batch and the views,
                     in every step
        π̂          = softmax(head(F))
        targets    from ẑ = z − log(π̂ + 10⁻⁹)
        prediction = z − log(π̂ + 10⁻⁹)

    References:
        Feng Hong, Jiangchao Yao, Zhihan Zhou, Ya Zhang and Yanfeng Wang: Long-Tailed Partial Label
        Learning via Dynamic Rebalancing, ICLR 2023. https://openreview.net/forum?id=sXfWoK4KvSW

    Args:
        momentum: How slowly F moves, from 0 (the last batch only) to 1 (F never changes).

    Examples:
        >>> classifier = PartialLabelClassifier(rebalancer=RECORDS(momentum=0.99))
    """

    name = "records"
    estimates_prior = True
    observes_logits = False
    mean_feature: Tensor

    def __init__(self, momentum: Fraction = 0.9) -> None:
        super().__init__()
        self.momentum = momentum

    def attach(self, model: nn.Module) -> None:
        head = linear_head(model)
        start = torch.zeros(head.in_features, device=head.weight.device)
        self.register_buffer("mean_feature", start)

    @torch.no_grad()
    def observe(self, outputs: Outputs, head: nn.Linear) -> None:
        batch_mean = torch.stack([f.mean(0) for f in outputs.features]).mean(0)
        self.mean_feature.lerp_(batch_mean.to(self.mean_feature.dtype), 1 - self.momentum)

    @torch.no_grad()
    def log_prior(self, head: nn.Linear) -> Tensor:
        logits = head(self.mean_feature.to(head.weight.dtype)).to(self.mean_feature.dtype)
        return torch.log(torch.softmax(logits, dim=0) + EPSILON)
