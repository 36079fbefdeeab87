"""LDD (Liu et al., ACML 2021, as named by Hong et al., ICLR 2023): class vectors are kept from lying in a common plane."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ltpll.errors import InputError
from ltpll.interfaces import Batch, Extra, Method, Outputs, Step


class LDD(Extra):
    """tr(A·Aᵀ) − log det(A·Aᵀ + εI), A being the rows of the head at length one: a log-determinant divergence from orthogonal vectors.

    The paper names the term by its letters alone; what they stand for follows the literature on orthogonal class vectors (Xie et al.,
    ICML 2018). It gives no weight either. With more classes than features ε decides how much dependence costs.
    """

    name = "ldd"

    def __init__(self, weight: float = 0.01, epsilon: float = 1e-3) -> None:
        super().__init__()
        if not (weight >= 0 and epsilon > 0):
            raise InputError(f"LDD's weight is {weight} and its epsilon {epsilon}: they must not be negative, and epsilon not zero.")
        self.weight = weight
        self.epsilon = epsilon

    def loss(self, method: Method, step: Step, own: Batch | None, own_outputs: Outputs | None) -> Tensor:
        directions = normalize(step.head.weight, dim=1)
        gram = directions @ directions.T + self.epsilon * torch.eye(len(directions), device=directions.device)
        # From the triangular root of a positive definite matrix, and without asking the device whether it is one: that would wait for it.
        root, _ = torch.linalg.cholesky_ex(gram)
        log_determinant: Tensor = 2 * root.diagonal().log().sum()
        return self.weight * (directions.square().sum() - log_determinant)
