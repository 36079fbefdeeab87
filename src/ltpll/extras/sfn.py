"""SFN (Liu et al., ACML 2021, as cited by Hong et al., ICLR 2023): push class vectors towards
orthogonality.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import normalize

from ltpll.interfaces import Batch, Extra, Method, Outputs, Step
from ltpll.settings import NotNegative


class SFN(Extra):
    """SFN (Liu et al., ACML 2021): a penalty on class vectors that are not orthogonal.

    The term is a squared Frobenius norm. The RECORDS paper only gives the acronym and no weight;
    its meaning and the formula are inferred from the literature on orthogonal class vectors (Xie et
    al., ICML 2018).

    Formula:
        A    = the rows of the head, each divided by its length
        term = weight · ‖A·Aᵀ − I‖²

    References:
        Wenpeng Liu, Li Wang, Jie Chen, Yu Zhou, Ruirui Zheng and Jianjun He: A Partial Label Metric
        Learning Algorithm for Class Imbalanced Data, ACML 2021.
        https://proceedings.mlr.press/v157/liu21f.html

        Feng Hong, Jiangchao Yao, Zhihan Zhou, Ya Zhang and Yanfeng Wang: Long-Tailed Partial Label
        Learning via Dynamic Rebalancing, ICLR 2023. https://openreview.net/forum?id=sXfWoK4KvSW

    Args:
        weight: The weight of the term.

    Examples:
        >>> classifier = PartialLabelClassifier(extras=[SFN(weight=0.1)])
    """

    name = "sfn"

    def __init__(self, weight: NotNegative = 0.01) -> None:
        super().__init__()
        self.weight = weight

    def loss(
        self, method: Method, step: Step, added: Batch | None, added_outputs: Outputs | None
    ) -> Tensor:
        directions = normalize(step.head.weight, dim=1)
        # The diagonal is already one, so this is the sum over pairs of different classes.
        return self.weight * ((directions @ directions.T).square().sum() - len(directions))
