"""LW (Wen et al., "Leveraged Weighted Loss for Partial Label Learning", ICML 2021): weighted losses
for candidates and non-candidates.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ltpll.interfaces import Method, Outputs
from ltpll.settings import NotNegative
from ltpll.targets import restricted_softmax

EPSILON = 1e-8


class LW(Method):
    """LW (Wen et al., ICML 2021): weighted losses raise the candidates and lower other classes.

    Refined targets sum to one over the candidates, and again over the other classes; before, they
    are 1/C for every class. Differs from the authors' code, which refines them in a second forward
    pass, after the optimizer's step.

    Formula:
        loss    = Σ_{j∈S} w_j σ(−z_j)  +  β Σ_{j∉S} w_j σ(z_j)
                  for the form "sigmoid";
                  Σ_{j∈S} w_j · −log(p_j + 10⁻⁸)  +  β Σ_{j∉S} w_j · −log(|1 − p_j| + 10⁻⁸)
                  for the form "cross-entropy"
        targets = softmax_S(ẑ) on the candidates, softmax over the other classes of ẑ on those

    References:
        Hongwei Wen, Jingyi Cui, Hanyuan Hang, Jiabin Liu, Yisen Wang and Zhouchen Lin: Leveraged
        Weighted Loss for Partial Label Learning, ICML 2021.
        https://proceedings.mlr.press/v139/wen21a.html

    Args:
        form: The loss of each class, "sigmoid" (the authors' LWS) or "cross-entropy" (their LWC).
        beta: β, the weight of the non-candidates; 1 or 2 in the authors' experiments.

    Examples:
        >>> classifier = PartialLabelClassifier(method=LW(form="cross-entropy", beta=2))
    """

    name = "lw"
    targets_on = "classes"
    open_after = 0.4  # classes do not compete here: a label added earlier would win in every row

    def __init__(
        self, form: Literal["sigmoid", "cross-entropy"] = "sigmoid", beta: NotNegative = 1.0
    ) -> None:
        super().__init__()
        self.form = form
        self.beta = beta

    def loss(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        logits = outputs.logits[0]
        if self.form == "sigmoid":
            inside, outside = torch.sigmoid(-logits), torch.sigmoid(logits)
        else:
            p = torch.softmax(logits, dim=1)
            # The authors add the same constant; it matters for labels whose probability is almost
            # 0.
            inside, outside = -torch.log(p + EPSILON), -torch.log((1 - p).abs() + EPSILON)
        return (targets * torch.where(candidates, inside, self.beta * outside)).sum(1).mean()

    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        logits = outputs.logits[0]
        return restricted_softmax(logits, candidates) + restricted_softmax(logits, ~candidates)
