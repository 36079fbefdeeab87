"""BCL (Zhu et al., "Balanced Contrastive Learning for Long-Tailed Visual Recognition", CVPR 2022):
every class repels equally.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from ltpll.blocks.contrastive import Projector
from ltpll.interfaces import Batch, Extra, Method, Outputs, Step, linear_head
from ltpll.settings import Count, NotNegative, Positive, Whole


def balanced_contrast(
    vectors: Tensor, labels: Tensor, centres: Tensor, temperature: float
) -> Tensor:
    """A supervised contrastive loss whose denominator averages over each class.

    `vectors` (n, width) and `centres` (classes, width) have unit length; centres take part in the
    comparison like examples.
    """
    n, n_classes = len(vectors), len(centres)
    others = torch.cat([labels, torch.arange(n_classes, device=labels.device)])
    allowed = ~torch.eye(n, n + n_classes, dtype=torch.bool, device=labels.device)
    same = (labels[:, None] == others[None, :]) & allowed
    similarities = vectors @ torch.cat([vectors, centres]).T / temperature
    # How many vectors of each class an example is compared with: the centre included, the example
    # itself excluded.
    members = torch.zeros(n_classes, dtype=torch.int64, device=labels.device)
    members.index_add_(0, others, torch.ones_like(others))
    counts = members - one_hot(labels, n_classes)
    log_counts = counts[:, others].float().log()
    balanced = (similarities - log_counts).masked_fill(~allowed, -torch.inf)
    denominators = torch.logsumexp(balanced, dim=1)
    return (denominators - (similarities * same).sum(1) / same.sum(1)).mean()


class BCL(Extra):
    """BCL (Zhu et al., CVPR 2022): a balanced contrastive loss with a learned centre per class.

    The label of an example is the candidate with the largest target, and before its targets are
    first refined the one with the largest logit. With the rebalancer `oracle-la` it stands for Oracle-BCL of the
    RECORDS paper, whose code is not published. Differs from the code of BCL's authors: there, the
    centres are projections of the classifier's weights by a second projector, both projectors have
    batch norm, and the supervised loss is a logit-adjusted cross-entropy.

    Formula:
        y      = argmax_{j∈S} w_j;  argmax_{j∈S} ẑ_j while all w_j in S are equal
        v      = the projections of f of both views, c = free parameters, all of unit length
        U_k(i) = c_k and every v with y = k but v_i
        term   = weight · mean over i of
                 [ log Σ_k mean_{u∈U_k(i)} exp(v_i·u/T)  −  mean_{u∈U_y(i)} v_i·u/T ]

    References:
        Jianggang Zhu, Zheng Wang, Jingjing Chen, Yi-Ping Phoebe Chen and Yu-Gang Jiang: Balanced
        Contrastive Learning for Long-Tailed Visual Recognition, CVPR 2022.
        https://doi.org/10.1109/CVPR52688.2022.00678

    Args:
        weight: The weight of the term.
        temperature: The temperature of the contrastive loss.
        width: The dimension of the projections.
        first_epoch: The first epoch (from 0) in which the term is added.

    Examples:
        >>> classifier = PartialLabelClassifier(extras=[BCL(weight=0.5)])
    """

    name = "bcl"
    n_views = 2
    n_forward_views = 2

    def __init__(
        self,
        weight: NotNegative = 0.35,
        temperature: Positive = 0.1,
        width: Count = 128,
        first_epoch: Whole = 1,
    ) -> None:
        super().__init__()
        self.weight, self.temperature = weight, temperature
        self.width, self.first_epoch = width, first_epoch

    def attach(self, model: nn.Module) -> None:
        head = linear_head(model)
        self.projector = Projector(head.in_features, self.width)
        self.centres = nn.Parameter(torch.randn(head.out_features, self.width))

    def loss(
        self, method: Method, step: Step, added: Batch | None, added_outputs: Outputs | None
    ) -> Tensor:
        labels = step.likeliest_candidates()
        vectors = self.projector(torch.cat(step.outputs.features[:2]))
        centres = normalize(self.centres, dim=1)
        both = torch.cat([labels, labels])
        term = balanced_contrast(vectors, both, centres, self.temperature)
        return self.weight * term
