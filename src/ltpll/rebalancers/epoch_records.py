"""Epoch RECORDS (Hong et al., ICLR 2023, "other dynamic strategies"): subtract the mean prediction
over the last whole epoch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ltpll.interfaces import Outputs, Rebalancer, Training, linear_head

EPSILON = 1e-9


class EpochRECORDS(Rebalancer):
    """Epoch RECORDS (Hong et al., ICLR 2023): the prior is the mean prediction of an epoch.

    The mean is over all examples and views of the epoch. Before the first epoch has finished, the
    prior is uniform.

    Formula:
        π̂          = mean of softmax(z) over all examples and views of the last finished epoch
        targets    from ẑ = z − log(π̂ + 10⁻⁹)
        prediction = z − log(π̂ + 10⁻⁹)

    References:
        Feng Hong, Jiangchao Yao, Zhihan Zhou, Ya Zhang and Yanfeng Wang: Long-Tailed Partial Label
        Learning via Dynamic Rebalancing, ICLR 2023. https://openreview.net/forum?id=sXfWoK4KvSW

    Examples:
        >>> classifier = PartialLabelClassifier(rebalancer=EpochRECORDS())
    """

    name = "epoch-records"
    estimates_prior = True
    prior: Tensor
    total: Tensor
    count: Tensor

    def attach(self, model: nn.Module) -> None:
        head = linear_head(model)
        n_classes, device = head.out_features, head.weight.device
        self.register_buffer("prior", torch.full((n_classes,), 1.0 / n_classes, device=device))
        self.register_buffer("total", torch.zeros(n_classes, device=device))
        self.register_buffer("count", torch.zeros((), device=device))

    @torch.no_grad()
    def observe(self, outputs: Outputs, head: nn.Linear) -> None:
        for logits in outputs.logits:
            self.total += torch.softmax(logits, dim=1).sum(0)
            self.count += logits.shape[0]

    def end_epoch(self, training: Training) -> None:
        self.prior.copy_(self.total / self.count)
        self.total.zero_()
        self.count.zero_()

    def log_prior(self, head: nn.Linear) -> Tensor:
        return torch.log(self.prior + EPSILON)
