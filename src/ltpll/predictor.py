"""Predictor: what a model says of inputs as they are, with the method's and the rebalancer's part in it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ltpll.contract import Method, Outputs, Rebalancer
from ltpll.errors import InputError
from ltpll.inputs import as_inputs
from ltpll.passes import Passes
from ltpll.views import ViewSource

Array = npt.ArrayLike | Tensor
PREDICTED_VALUES = 2**23  # of the inputs in prediction at once: 2048 images of 3 × 32 × 32, 170 of 3 × 128 × 128


def linear_head(model: nn.Module) -> nn.Linear:
    """The model's last layer, which methods and rebalancers rely on."""
    head = getattr(model, "head", None)
    if not isinstance(head, nn.Linear):
        raise InputError("The model has no linear layer `.head`: wrap it with ltpll.models.split_head or Classifier.")
    return head


def at_once(inputs: Tensor) -> int:
    """How many examples to predict at once."""
    return max(1, min(2048, PREDICTED_VALUES // max(inputs[:1].numel(), 1)))


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

    def predict(self, x: Array) -> npt.NDArray[np.int64]:
        """The predicted class number of each row."""
        return self.logits(x).argmax(1).cpu().numpy()
