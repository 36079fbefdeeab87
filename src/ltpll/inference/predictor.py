"""Predictor: what a model says of inputs as they are, with the method's and the rebalancer's part in it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.inference.forward import Passes
from ltpll.interfaces import Method, Outputs, Rebalancer, linear_head
from ltpll.validation import as_inputs, rows_at_once
from ltpll.views import ViewSource

Array = npt.ArrayLike | Tensor
PREDICTED_VALUES = 2**23  # of the inputs in prediction at once: 2048 images of 3 × 32 × 32, 170 of 3 × 128 × 128
PREDICTED_LOGITS = 2**21  # 2048 examples of 1024 classes, 256 of 8192


def at_once(inputs: Tensor, n_classes: int) -> int:
    """How many examples to predict at once."""
    return min(2048, rows_at_once(inputs, PREDICTED_VALUES), max(1, PREDICTED_LOGITS // n_classes))


class Predictor:
    """Everything that prediction needs of a training."""

    def __init__(self, passes: Passes, method: Method, rebalancer: Rebalancer, views: ViewSource) -> None:
        self.passes = passes
        self.method = method
        self.rebalancer = rebalancer
        self.views = views

    def outputs(self, x: Array, batch_size: int | None = None) -> Outputs:
        """What the network says of un-augmented inputs, without any rebalancing; by default 2048 at once, or fewer large ones."""
        parts = list(self.parts(x, batch_size))
        return Outputs((torch.cat([part.logits[0] for part in parts]),), (torch.cat([part.features[0] for part in parts]),))

    @torch.no_grad()
    def parts(self, x: Array, batch_size: int | None = None) -> Iterator[Outputs]:
        """The same a part at a time, since the logits of many inputs for many classes may be larger than memory."""
        inputs = as_inputs(x, "prediction")
        for part in inputs.split(batch_size or at_once(inputs, linear_head(self.passes.model).out_features)):
            logits, features = self.plain(part)
            yield Outputs((logits,), (features,))

    def plain(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and features of one batch."""
        model = self.passes.model
        model.eval()
        return self.passes(self.views.plain(x.to(self.passes.device)), model)

    def logits(self, x: Array) -> Tensor:
        """Logits as predictions come from them: the rebalancer's prior subtracted, if it acts at prediction."""
        return self.adjusted(self.outputs(x))

    @torch.no_grad()
    def adjusted(self, outputs: Outputs) -> Tensor:
        """The same from what the network said."""
        return self.rebalancer.adjust(self.method.predict(outputs), "prediction", linear_head(self.passes.model)).logits[0]

    @torch.no_grad()
    def estimated_prior(self) -> Tensor | None:
        """The class prior that the rebalancer, or else the method, has estimated, (classes,); None if neither does."""
        head = linear_head(self.passes.model)
        log_prior = self.rebalancer.log_prior(head) if self.rebalancer.estimates_prior else self.method.log_prior()
        return None if log_prior is None else torch.softmax(log_prior, dim=0)

    def predict(self, x: Array) -> npt.NDArray[np.int64]:
        """The predicted class number of each row."""
        return torch.cat([self.adjusted(part).argmax(1) for part in self.parts(x)]).cpu().numpy()
