"""Mean target (ours): train without rebalancing, and subtract the log of the mean target from the
predictions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ltpll.interfaces import Rebalancer, Training, linear_head
from ltpll.targets import floored


class MeanTarget(Rebalancer):
    """Post-hoc logit adjustment without an oracle: the prior is the mean of the targets.

    Training is the same as without rebalancing. A class counts as at least half an example, since
    its logarithm is taken.

    Formula:
        targets    from ẑ = z
        prediction = z − log m

    References:
        Ours; a form of post-hoc logit adjustment.

        Aditya Krishna Menon, Sadeep Jayasumana, Ankit Singh Rawat, Himanshu Jain, Andreas Veit and
        Sanjiv Kumar: Long-Tail Learning via Logit Adjustment, ICLR 2021.
        https://openreview.net/forum?id=37nvvqkCo5

    Examples:
        >>> classifier = PartialLabelClassifier(rebalancer=MeanTarget())
    """

    name = "mean-target"
    places = frozenset({"prediction"})
    estimates_prior = True
    mean_target: Tensor

    def attach(self, model: nn.Module) -> None:
        head = linear_head(model)
        n, device = head.out_features, head.weight.device
        self.register_buffer("mean_target", torch.full((n,), 1 / n, device=device))

    def start_training(self, training: Training) -> None:
        self.end_epoch(training)

    def end_epoch(self, training: Training) -> None:
        self.mean_target.copy_(floored(training.targets.mean(), len(training.targets)))

    def log_prior(self, head: nn.Linear) -> Tensor:
        return self.mean_target.log()
