"""Temp Oracle-LA (Hong et al., ICLR 2023, "other dynamic strategies"): subtract the true prior with
a strength that grows from 0 to 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ltpll.rebalancers.oracle_la import OracleLA


class TempOracleLA(OracleLA):
    """Tempered oracle logit adjustment (Hong et al., ICLR 2023): t times the true log-prior.

    t grows linearly from 0 in the first epoch to 1 in the last.

    Formula:
        π          = class_frequencies / their sum;  a class with frequency 0 counts as the rarest
                     other one
        targets    from ẑ = z − t log π,  t = e / (E − 1)
        prediction = z − t log π,  t = 1 after training

    References:
        Feng Hong, Jiangchao Yao, Zhihan Zhou, Ya Zhang and Yanfeng Wang: Long-Tailed Partial Label
        Learning via Dynamic Rebalancing, ICLR 2023. https://openreview.net/forum?id=sXfWoK4KvSW

    Args:
        class_frequencies: The number or the share of training examples of each class.

    Examples:
        >>> rebalancer = TempOracleLA(class_frequencies=[600, 300, 10])
        >>> classifier = PartialLabelClassifier(rebalancer=rebalancer)
    """

    name = "temp-oracle-la"
    strength: Tensor

    def __init__(self, class_frequencies: Any) -> None:
        super().__init__(class_frequencies)
        # A buffer, so that it is checkpointed and a captured step sees it change.
        self.register_buffer("strength", torch.zeros(()))

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        self.strength.fill_(epoch / max(n_epochs - 1, 1))

    def log_prior(self, head: torch.nn.Linear) -> Tensor:
        return self.strength * self.log_frequencies
