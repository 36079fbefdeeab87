"""PRODEN (Lv et al., "Progressive Identification of True Labels for Partial-Label Learning", ICML
2020): weight candidates by softmax.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cross_entropy

from ltpll.interfaces import Method, Outputs
from ltpll.targets import restricted_softmax


class PRODEN(Method):
    """PRODEN (Lv et al., ICML 2020): cross-entropy against the softmax over the candidates.

    Differs from the authors' code, which restricts targets to the classes whose target is above
    zero: there, a candidate whose target was once rounded to zero never returns.

    Formula:
        loss    = CE(w, z)
        targets = softmax_S(ẑ)

    References:
        Jiaqi Lv, Miao Xu, Lei Feng, Gang Niu, Xin Geng and Masashi Sugiyama: Progressive
        Identification of True Labels for Partial-Label Learning, ICML 2020.
        https://proceedings.mlr.press/v119/lv20a.html

    Examples:
        >>> classifier = PartialLabelClassifier(method=PRODEN())
    """

    name = "proden"
    row_by_row = True

    def loss(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        return cross_entropy(outputs.logits[0], targets)

    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        return restricted_softmax(outputs.logits[0], candidates)
