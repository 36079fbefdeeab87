"""CC (Feng et al., "Provably Consistent Partial-Label Learning", NeurIPS 2020): raise the probability of the whole set."""

from __future__ import annotations

import torch
from torch import Tensor

from ltpll.interfaces import Method, Outputs
from ltpll.targets import restricted_softmax


class CC(Method):
    """CC (Feng et al., NeurIPS 2020): the loss −log Σ_{j∈S} p_j, which does not depend on the targets.

    Targets are still refined, for the cleaned labels. A rebalancer therefore affects predictions and cleaned labels, but not training.

    Example:
        >>> PartialLabelClassifier(method=CC())
    """

    name = "cc"

    def loss(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        logits = outputs.logits[0]
        inside = torch.logsumexp(logits.masked_fill(~candidates, torch.finfo(logits.dtype).min), dim=1)
        return (torch.logsumexp(logits, dim=1) - inside).mean()

    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        return restricted_softmax(outputs.logits[0], candidates)
