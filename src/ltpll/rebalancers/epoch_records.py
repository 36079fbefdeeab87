"""Epoch RECORDS (Hong et al., ICLR 2023, "other dynamic strategies"): subtract the mean prediction over the whole last epoch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ltpll.interfaces import Outputs, Rebalancer

EPSILON = 1e-9


class EpochRECORDS(Rebalancer):
    """The prior is the mean of softmax(z) over every example and view of the last finished epoch; uniform before the first one."""

    name = "epoch-records"
    estimates_prior = True

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.prior: Tensor
        self.total: Tensor
        self.count: Tensor
        self.register_buffer("prior", torch.full((n_classes,), 1.0 / n_classes))
        self.register_buffer("total", torch.zeros(n_classes))
        self.register_buffer("count", torch.zeros(()))

    @torch.no_grad()
    def observe(self, outputs: Outputs, head: nn.Linear) -> None:
        for logits in outputs.logits:
            self.total += torch.softmax(logits, dim=1).sum(0)
            self.count += logits.shape[0]

    def end_epoch(self) -> None:
        self.prior.copy_(self.total / self.count)
        self.total.zero_()
        self.count.zero_()

    def log_prior(self, head: nn.Linear) -> Tensor:
        return torch.log(self.prior + EPSILON)
