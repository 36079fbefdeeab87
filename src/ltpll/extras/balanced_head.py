"""Balanced head (ours, after the balanced softmax of Ren et al., NeurIPS 2020): a second head that
is trained for balanced predictions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ltpll.interfaces import Batch, Extra, Method, Outputs, Step, Training, linear_head
from ltpll.targets import floored


class BalancedHead(Extra):
    """A second linear head, with the log of the mean target added to its logits in training.

    Adding it leaves nothing of the class prior for the head to learn, so its own logits predict
    balanced classes. They are used instead of the rebalancer's correction if every class counts the
    same (`goal="balanced"`).

    Formula:
        h          = second head of f
        term       = weight · mean over the method's views of CE(w on S, normalised; h + log m)
        prediction = h

    References:
        Ours, after the balanced softmax.

        Jiawei Ren, Cunjun Yu, Shunan Sheng, Xiao Ma, Haiyu Zhao, Shuai Yi and Hongsheng Li:
        Balanced Meta-Softmax for Long-Tailed Visual Recognition, NeurIPS 2020.
        https://arxiv.org/abs/2007.10740

    Args:
        weight: The weight of the term.

    Examples:
        >>> classifier = PartialLabelClassifier(extras=[BalancedHead()])
    """

    name = "balanced-head"
    log_mean_target: Tensor

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight

    def attach(self, model: nn.Module) -> None:
        head = linear_head(model)
        sizes, weight = (head.in_features, head.out_features), head.weight
        self.head = nn.Linear(*sizes, device=weight.device, dtype=weight.dtype)
        start = torch.zeros(head.out_features, device=head.weight.device)
        self.register_buffer("log_mean_target", start)

    def start_training(self, training: Training) -> None:
        self.end_epoch(training)

    def end_epoch(self, training: Training) -> None:
        self.log_mean_target.copy_(floored(training.targets.mean(), len(training.targets)).log())

    def loss(
        self, method: Method, step: Step, added: Batch | None, added_outputs: Outputs | None
    ) -> Tensor:
        # Some methods have targets on other classes as well.
        targets = step.batch.targets * step.batch.candidates
        targets = targets / targets.sum(1, keepdim=True)
        features = step.outputs.features[: method.n_forward_views]
        losses = [
            cross_entropy(self.head(f.to(self.head.weight.dtype)) + self.log_mean_target, targets)
            for f in features
        ]
        return self.weight * torch.stack(losses).mean()

    def balanced_logits(self, outputs: Outputs) -> Tensor:
        logits: Tensor = self.head(outputs.features[0].to(self.head.weight.dtype))
        return logits
