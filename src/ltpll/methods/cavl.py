"""CAVL (Zhang et al., "Exploiting Class Activation Value for Partial-Label Learning", ICLR 2022):
train on a single candidate.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ltpll.interfaces import Outputs
from ltpll.methods.proden import PRODEN


class CAVL(PRODEN):
    """CAVL (Zhang et al., ICLR 2022): the candidate with the largest activation value is the label.

    Differs from the authors' code: the maximum is taken over the candidates only; theirs multiplies
    by the 0/1 mask, which picks a non-candidate (value 0) whenever every candidate's activation
    value is negative. Their code also refines targets in a second forward pass, after the
    optimizer's step.

    Formula:
        loss    = CE(w, z)
        targets = onehot(argmax_{j∈S} |ẑ_j − 1| · ẑ_j)

    References:
        Fei Zhang, Lei Feng, Bo Han, Tongliang Liu, Gang Niu, Tao Qin and Masashi Sugiyama:
        Exploiting Class Activation Value for Partial-Label Learning, ICLR 2022.
        https://openreview.net/forum?id=qqdXHUGec9h

    Examples:
        >>> classifier = PartialLabelClassifier(method=CAVL())
    """

    name = "cavl"

    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        logits = outputs.logits[0]
        activation = ((logits - 1).abs() * logits).masked_fill(~candidates, -torch.inf)
        return one_hot(activation.argmax(1), logits.shape[1]).to(targets.dtype)
