"""PaCO (Cui et al., "Parametric Contrastive Learning", ICCV 2021): a contrastive loss with the
class logits as learned centres.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ltpll.blocks.contrastive import Memory, contrastive_loss
from ltpll.interfaces import Batch, Extra, Method, Outputs, Step
from ltpll.settings import Count, Fraction, NotNegative, Positive, Whole


class PaCO(Extra):
    """PaCO (Cui et al., ICCV 2021): an example is contrasted with classes and with examples.

    The positives of an example are its class, with weight 1, and the examples of its class, with
    weight `alpha` each. Its class is the candidate with the largest target, and before its targets
    are first refined the one with the largest logit. The prior is the rebalancer's, if it is used to refine targets: with
    `oracle-la` it stands for Oracle-PaCO of the RECORDS paper, whose code is not published. The
    second view and the queue come from a momentum encoder.

    Formula:
        y    = argmax_{j∈S} w_j;  argmax_{j∈S} ẑ_j while all w_j in S are equal
        q    = projection of f_weak
        k    = projection of f of the second view by the momentum encoder
        s_iu = z_iu + log π̂_u for a class u;  q_i·u/T for a vector u: all q but q_i, all k, and the
               queue of earlier k
        c_iu = 1 for the class y_i, alpha for a vector of the same y, 0 otherwise
        term = weight · mean over i of −Σ_u c_iu log( exp(s_iu) / Σ_v exp(s_iv) ) / Σ_u c_iu
        log π̂ is what the rebalancer subtracts when targets are refined, 0 if nothing

    References:
        Jiequan Cui, Zhisheng Zhong, Shu Liu, Bei Yu and Jiaya Jia: Parametric Contrastive Learning,
        ICCV 2021. https://arxiv.org/abs/2107.12028

    Args:
        weight: The weight of the term.
        alpha: The weight of an example of the same class.
        temperature: The temperature for examples.
        width: The dimension of the projections.
        queue: The number of earlier projections to compare with.
        momentum: The momentum of the momentum encoder.
        first_epoch: The first epoch (from 0) in which the term is added.

    Examples:
        >>> classifier = PartialLabelClassifier(extras=[PaCO(queue=4096)])
    """

    name = "paco"
    n_views = 2

    def __init__(
        self,
        weight: NotNegative = 1.0,
        alpha: NotNegative = 0.01,
        temperature: Positive = 0.05,
        width: Count = 32,
        queue: Count = 1024,
        momentum: Fraction = 0.999,
        first_epoch: Whole = 1,
    ) -> None:
        super().__init__()
        self.weight, self.alpha, self.temperature, self.width = weight, alpha, temperature, width
        self.queue, self.momentum, self.first_epoch = queue, momentum, first_epoch

    def attach(self, model: nn.Module) -> None:
        self.memory = Memory(model, self.width, self.queue, self.momentum)

    def loss(
        self, method: Method, step: Step, added: Batch | None, added_outputs: Outputs | None
    ) -> Tensor:
        labels = step.likeliest_candidates()
        query, key = (
            self.memory.projector(step.outputs.features[0]),
            self.memory.project_second_view(step),
        )
        examples, same, allowed = self.memory.compare_and_store(
            query, key, labels, self.temperature
        )
        classes = step.outputs.logits[0] + step.rebalancer.subtracted("targets", step.head)
        term = contrastive_loss(
            torch.cat([classes, examples], dim=1),
            torch.cat([one_hot(labels, classes.shape[1]), self.alpha * same], dim=1),
            torch.cat([torch.ones_like(classes, dtype=torch.bool), allowed], dim=1),
        )
        return self.weight * term
