"""LDD (Liu et al., ACML 2021, as cited by Hong et al., ICLR 2023): keep class vectors linearly
independent.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ltpll.interfaces import Batch, Extra, Method, Outputs, Step
from ltpll.settings import NotNegative, Positive


class LDD(Extra):
    """LDD (Liu et al., ACML 2021): a penalty on linearly dependent class vectors.

    The term is the log-determinant divergence of the head's rows from orthogonal ones. The RECORDS
    paper only gives the acronym and no weight; its meaning and the formula are inferred from the
    literature on orthogonal class vectors (Xie et al., ICML 2018).

    Formula:
        A    = the rows of the head, each divided by its length
        term = weight · [tr(A·Aᵀ) − log det(A·Aᵀ + ε·I)]

    References:
        Wenpeng Liu, Li Wang, Jie Chen, Yu Zhou, Ruirui Zheng and Jianjun He: A Partial Label Metric
        Learning Algorithm for Class Imbalanced Data, ACML 2021.
        https://proceedings.mlr.press/v157/liu21f.html

        Feng Hong, Jiangchao Yao, Zhihan Zhou, Ya Zhang and Yanfeng Wang: Long-Tailed Partial Label
        Learning via Dynamic Rebalancing, ICLR 2023. https://openreview.net/forum?id=sXfWoK4KvSW

    Args:
        weight: The weight of the term.
        epsilon: ε; with more classes than features, it decides how much linear dependence costs.

    Examples:
        >>> classifier = PartialLabelClassifier(extras=[LDD(weight=0.1)])
    """

    name = "ldd"

    def __init__(self, weight: NotNegative = 0.01, epsilon: Positive = 1e-3) -> None:
        super().__init__()
        self.weight, self.epsilon = weight, epsilon

    def loss(
        self, method: Method, step: Step, added: Batch | None, added_outputs: Outputs | None
    ) -> Tensor:
        directions = normalize(step.head.weight, dim=1)
        identity = torch.eye(len(directions), device=directions.device)
        gram = directions @ directions.T + self.epsilon * identity
        # From the Cholesky factor; cholesky_ex does not check for success, which would force a
        # synchronisation.
        root, _ = torch.linalg.cholesky_ex(gram)
        log_determinant: Tensor = 2 * root.diagonal().log().sum()
        return self.weight * (directions.square().sum() - log_determinant)
