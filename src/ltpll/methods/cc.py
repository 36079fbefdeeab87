"""CC (Feng et al., "Provably Consistent Partial-Label Learning", NeurIPS 2020): raise the
probability of the whole set.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ltpll.interfaces import Method, Outputs, Step
from ltpll.targets import restricted_softmax


class CC(Method):
    """CC (Feng et al., NeurIPS 2020): the negative log-probability of the whole candidate set.

    Targets are still refined, for the cleaned labels. A rebalancer therefore affects predictions
    and cleaned labels, but not training.

    Formula:
        loss    = −log Σ_{j∈S} a_j p_j
        targets = softmax_S(ẑ)

    References:
        Lei Feng, Jiaqi Lv, Bo Han, Miao Xu, Gang Niu, Xin Geng, Bo An and Masashi Sugiyama:
        Provably Consistent Partial-Label Learning, NeurIPS 2020.
        https://proceedings.neurips.cc/paper/2020/hash/7bd28f15a49d5e5848d6ec70e584e625-Abstract.html

    Examples:
        >>> classifier = PartialLabelClassifier(method=CC())
    """

    name = "cc"

    def step_loss(self, step: Step) -> Tensor:
        # Candidates that are less probable before training count less.
        weighted = step.outputs.weighted(step.batch.log_weights).logits[0]
        whole = torch.logsumexp(step.outputs.logits[0], dim=1)
        return (whole - _logsumexp_inside(weighted, step.batch.candidates)).mean()

    def loss(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        logits = outputs.logits[0]
        return (torch.logsumexp(logits, dim=1) - _logsumexp_inside(logits, candidates)).mean()

    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        return restricted_softmax(outputs.logits[0], candidates)


def _logsumexp_inside(logits: Tensor, candidates: Tensor) -> Tensor:
    return torch.logsumexp(logits.masked_fill(~candidates, torch.finfo(logits.dtype).min), dim=1)
