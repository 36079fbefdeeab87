"""PaCO (Cui et al., "Parametric Contrastive Learning", ICCV 2021): the classes' logits join the contrast as learned centres."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ltpll.blocks.contrastive import Memory, contrastive_loss
from ltpll.errors import InputError
from ltpll.interfaces import Batch, Extra, Method, Outputs, Step


class PaCO(Extra):
    """A contrastive loss among classes (their logits plus the log-prior) and examples (projections of both views and of a queue).

    An example's positives are its class, with weight 1, and the examples of its class, with weight `alpha` each. Its class is the
    candidate believed most, so that the term starts with the first refined targets. The prior is the rebalancer's, as far as it refines
    targets by it: with `oracle-la` this is the RECORDS paper's Oracle-PaCO. The other view and the queue come from networks that follow
    the trained ones.
    """

    name = "paco"
    n_views = 2

    def __init__(
        self,
        weight: float = 1.0,
        alpha: float = 0.01,
        temperature: float = 0.05,
        width: int = 32,
        queue: int = 1024,
        momentum: float = 0.999,
        first_epoch: int = 1,
    ) -> None:
        super().__init__()
        if not (weight >= 0 and alpha >= 0 and temperature > 0 and width >= 1 and queue >= 1 and 0 <= momentum <= 1):
            raise InputError(
                "PaCO's temperature, width and queue must be positive, its weight and alpha not negative, its momentum between 0 and 1."
            )
        self.weight, self.alpha, self.temperature, self.width = weight, alpha, temperature, width
        self.queue_size, self.momentum, self.first_epoch = queue, momentum, first_epoch

    def attach(self, model: nn.Module) -> None:
        self.memory = Memory(model, self.width, self.queue_size, self.momentum)

    def active(self, epoch: int) -> bool:
        return epoch >= self.first_epoch

    def loss(self, method: Method, step: Step, own: Batch | None, own_outputs: Outputs | None) -> Tensor:
        labels = step.batch.targets.masked_fill(~step.batch.candidates, -1).argmax(1)
        query, key = self.memory.projector(step.outputs.features[0]), self.memory.keys(step)
        examples, same, allowed = self.memory.compare(query, key, labels, self.temperature)
        classes = step.outputs.logits[0] + step.log_prior()
        term = contrastive_loss(
            torch.cat([classes, examples], dim=1),
            torch.cat([one_hot(labels, classes.shape[1]), self.alpha * same], dim=1),
            torch.cat([torch.ones_like(classes, dtype=torch.bool), allowed], dim=1),
        )
        return self.weight * term
