"""Temp Oracle-LA (Hong et al., ICLR 2023, "other dynamic strategies"): subtract the true prior, weakly at first and fully at the end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ltpll.rebalancers.oracle_la import OracleLA


class TempOracleLA(OracleLA):
    """The true log-prior times t, with t rising linearly from 0 in the first epoch to 1 in the last."""

    name = "temp-oracle-la"

    def __init__(self, class_frequencies: Any) -> None:
        super().__init__(class_frequencies)
        # A buffer, so that it is checkpointed and a captured step sees it change.
        self.strength: Tensor
        self.register_buffer("strength", torch.zeros(()))

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        self.strength.fill_(epoch / max(n_epochs - 1, 1))

    def log_prior(self, head: nn.Linear) -> Tensor:
        return self.strength * self.log_frequencies
