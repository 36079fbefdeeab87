"""Predictor: predictions of a trained network, adjusted by the method and the rebalancer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.interfaces import Extra, Goal, Method, Outputs, Rebalancer, linear_head
from ltpll.network.forward import ForwardPass
from ltpll.validation import as_inputs, rows_per_chunk
from ltpll.views import FeatureViews, ViewSource

Array = npt.ArrayLike | Tensor
MAX_ROWS = 2048
MAX_INPUT_VALUES = 2**23  # per forward pass: 2048 images of 3 × 32 × 32, 170 of 3 × 128 × 128
MAX_LOGITS = 2**21  # per forward pass: 2048 examples of 1024 classes, 256 of 8192


def prediction_batch_size(inputs: Tensor, n_classes: int) -> int:
    """The examples per forward pass that keep inputs and logits within the limits above."""
    return min(MAX_ROWS, rows_per_chunk(inputs, MAX_INPUT_VALUES), max(1, MAX_LOGITS // n_classes))


class Predictor:
    """Predicts with a trained network and the parts that it was trained with.

    The views' `plain` prepares inputs without augmentation. One of the extras may have a head for
    balanced predictions.
    """

    def __init__(
        self,
        forward_pass: ForwardPass,
        method: Method,
        rebalancer: Rebalancer,
        views: ViewSource,
        extras: Sequence[Extra] = (),
    ) -> None:
        self.forward_pass = forward_pass
        self.method = method
        self.rebalancer = rebalancer
        self.views = views
        self.extras = list(extras)

    def outputs(self, x: Array, batch_size: int | None = None) -> Outputs:
        """Return the raw outputs for all inputs, without rebalancing."""
        chunks = list(self.chunks(x, batch_size))
        return Outputs(
            (torch.cat([chunk.logits[0] for chunk in chunks]),),
            (torch.cat([chunk.features[0] for chunk in chunks]),),
        )

    def inputs(self, x: Array, what: str = "prediction") -> Tensor:
        """The inputs as a tensor of the views' type; messages call them `what`."""
        kind = self.views.kind if isinstance(self.views, FeatureViews) else torch.float32
        return as_inputs(x, what, kind)

    @torch.no_grad()
    def chunks(self, x: Array, batch_size: int | None = None) -> Iterator[Outputs]:
        """Yield the raw outputs chunk by chunk; all logits may not fit into memory at once."""
        inputs = self.inputs(x)
        n_classes = linear_head(self.forward_pass.model).out_features
        for chunk in inputs.split(batch_size or prediction_batch_size(inputs, n_classes)):
            yield Outputs.from_views([self.plain(chunk)])

    def plain(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits and features of one batch in evaluation mode."""
        model = self.forward_pass.model
        model.eval()
        return self.forward_pass(self.views.plain(x.to(self.forward_pass.device)), model)

    def logits(self, x: Array, goal: Goal = "balanced") -> Tensor:
        """Return the logits used for prediction, (rows, classes)."""
        return self.adjusted(self.outputs(x), goal)

    @torch.no_grad()
    def adjusted(self, outputs: Outputs, goal: Goal = "balanced", variant: str = "") -> Tensor:
        """Return the logits used for prediction, given raw outputs.

        Args:
            outputs: The outputs of `outputs` or `chunks`.
            goal: "balanced" corrects for the class prior, with the rebalancer or the head of an
                extra, so that every class counts the same; "accuracy" does not, so that every
                example counts the same.
            variant: One of the method's `variants`.
        """
        predicted = self.method.predict(outputs, variant)
        if goal == "accuracy":
            return predicted.logits[0]
        head = self.balanced_head
        balanced = None if head is None else head.balanced_logits(predicted)
        if balanced is not None:
            return balanced
        last_layer = linear_head(self.forward_pass.model)
        return self.rebalancer.adjust(predicted, "prediction", last_layer).logits[0]

    @property
    def balanced_head(self) -> Extra | None:
        """The extra that has a head for balanced predictions."""
        for extra in self.extras:
            if type(extra).balanced_logits is not Extra.balanced_logits:
                return extra
        return None

    @property
    def corrects(self) -> bool:
        """Whether predictions for the two goals differ."""
        return self.balanced_head is not None or "prediction" in self.rebalancer.places

    @torch.no_grad()
    def estimated_prior(self) -> Tensor | None:
        """The class prior estimated by the rebalancer or else by the method, if one does."""
        log_prior: Tensor | None
        if self.rebalancer.estimates_prior:
            log_prior = self.rebalancer.log_prior(linear_head(self.forward_pass.model))
        else:
            log_prior = self.method.log_prior()
        return None if log_prior is None else torch.softmax(log_prior, dim=0)

    def predict(self, x: Array, goal: Goal = "balanced") -> npt.NDArray[np.int64]:
        """Return the predicted class number of each row."""
        found = [self.adjusted(chunk, goal).argmax(1) for chunk in self.chunks(x)]
        return torch.cat(found).cpu().numpy()
