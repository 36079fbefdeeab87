"""CC (Feng et al., "Provably Consistent Partial-Label Learning", NeurIPS 2020): the probability of the whole set is raised."""

from __future__ import annotations

import torch
from torch import Tensor

from ltpll.interfaces import Method, Outputs
from ltpll.targets import restricted_softmax


class CC(Method):
    """Loss −log Σ_{j∈S} p_j; it never reads the targets, which are kept only to say what the network believes.

    A rebalancer therefore acts on CC's predictions and on its cleaned labels, never on its training.
    """

    name = "cc"

    def loss(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        logits = outputs.logits[0]
        inside = torch.logsumexp(logits.masked_fill(~candidates, torch.finfo(logits.dtype).min), dim=1)
        return (torch.logsumexp(logits, dim=1) - inside).mean()

    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        return restricted_softmax(outputs.logits[0], candidates)
