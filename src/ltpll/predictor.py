"""Predictor: what a model says of inputs as they are, with the method's and the rebalancer's part in it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.contract import Method, Outputs, Rebalancer, linear_head
from ltpll.inputs import as_inputs, rows_at_once
from ltpll.passes import Passes
from ltpll.views import ViewSource

Array = npt.ArrayLike | Tensor
PREDICTED_VALUES = 2**23  # of the inputs in prediction at once: 2048 images of 3 × 32 × 32, 170 of 3 × 128 × 128


def at_once(inputs: Tensor) -> int:
    """How many examples to predict at once."""
    return min(2048, rows_at_once(inputs, PREDICTED_VALUES))


class Predictor:
    """Everything that prediction needs of a training."""

    def __init__(self, passes: Passes, method: Method, rebalancer: Rebalancer, views: ViewSource) -> None:
        self.passes = passes
        self.method = method
        self.rebalancer = rebalancer
        self.views = views

    @torch.no_grad()
    def outputs(self, x: Array, batch_size: int | None = None) -> Outputs:
        """What the network says of un-augmented inputs, without any rebalancing; by default 2048 at once, or fewer large ones."""
        inputs = as_inputs(x, "prediction")
        parts = [self.plain(part) for part in inputs.split(batch_size or at_once(inputs))]
        return Outputs((torch.cat([z for z, _ in parts]),), (torch.cat([f for _, f in parts]),))

    def plain(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and features of one batch."""
        model = self.passes.model
        model.eval()
        return self.passes(self.views.plain(x.to(self.passes.device)), model)

    @torch.no_grad()
    def logits(self, x: Array) -> Tensor:
        """Logits as predictions come from them: the rebalancer's prior subtracted, if it acts at prediction."""
        head = linear_head(self.passes.model)
        return self.rebalancer.adjust(self.method.predict(self.outputs(x)), "prediction", head).logits[0]

    @torch.no_grad()
    def estimated_prior(self) -> Tensor | None:
        """The class prior that the rebalancer, or else the method, has estimated, (classes,); None if neither does."""
        head = linear_head(self.passes.model)
        log_prior = self.rebalancer.log_prior(head) if self.rebalancer.estimates_prior else self.method.log_prior()
        return None if log_prior is None else torch.softmax(log_prior, dim=0)

    def predict(self, x: Array) -> npt.NDArray[np.int64]:
        """The predicted class number of each row."""
        return self.logits(x).argmax(1).cpu().numpy()
