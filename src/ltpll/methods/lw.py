"""LW (Wen et al., "Leveraged Weighted Loss for Partial Label Learning", ICML 2021): non-candidates are weighed and pushed down as well."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ltpll.errors import InputError
from ltpll.interfaces import Method, Outputs
from ltpll.targets import restricted_softmax

EPSILON = 1e-8


class LW(Method):
    """Σ_{j∈S} w_j ℓ(z_j) + β Σ_{j∉S} w_j ℓ(−z_j), with a sigmoid ℓ or the cross-entropy form; w sums to one inside S and outside it.

    `form="sigmoid"` is the authors' LWS, `form="cross-entropy"` their LWC; `beta` is 1 or 2 in their experiments.
    """

    name = "lw"
    targets_on = "classes"

    def __init__(self, form: Literal["sigmoid", "cross-entropy"] = "sigmoid", beta: float = 1.0) -> None:
        super().__init__()
        if form not in ("sigmoid", "cross-entropy"):
            raise InputError(f"LW has no form {form!r}: choose 'sigmoid' or 'cross-entropy'.")
        if not beta >= 0:
            raise InputError(f"LW's beta is {beta}: it weighs the non-candidates and must not be negative.")
        self.form = form
        self.beta = beta

    def loss(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        logits = outputs.logits[0]
        if self.form == "sigmoid":
            inside, outside = torch.sigmoid(-logits), torch.sigmoid(logits)
        else:
            p = torch.softmax(logits, dim=1)
            # The floor is the authors': without it the two forms differ from theirs for labels that are almost ruled out.
            inside, outside = -torch.log(p + EPSILON), -torch.log((1 - p).abs() + EPSILON)
        return (targets * torch.where(candidates, inside, self.beta * outside)).sum(1).mean()

    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        logits = outputs.logits[0]
        return restricted_softmax(logits, candidates) + restricted_softmax(logits, ~candidates)
