"""SFN (Liu et al., ACML 2021, as named by Hong et al., ICLR 2023): class vectors are pushed apart, off each other's direction."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import normalize

from ltpll.errors import InputError
from ltpll.interfaces import Batch, Extra, Method, Outputs, Step


class SFN(Extra):
    """‖A·Aᵀ − I‖², A being the rows of the head at length one: a squared Frobenius norm.

    The paper names the term by its letters alone; what they stand for follows the literature on orthogonal class vectors (Xie et al.,
    ICML 2018). It gives no weight either.
    """

    name = "sfn"

    def __init__(self, weight: float = 0.01) -> None:
        super().__init__()
        if not weight >= 0:
            raise InputError(f"SFN's weight is {weight}: it must not be negative.")
        self.weight = weight

    def loss(self, method: Method, step: Step, own: Batch | None, own_outputs: Outputs | None) -> Tensor:
        directions = normalize(step.head.weight, dim=1)
        # The diagonal is one already, so that this is the sum over pairs of different classes.
        return self.weight * ((directions @ directions.T).square().sum() - len(directions))
