"""Passes: how inputs go through a model, forward and backward, on its device and in the chosen precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ltpll.errors import InputError
from ltpll.inference.precision import LowWeights
from ltpll.interfaces import Outputs


class Passes:
    """Float32 logits and features out of `model`, whatever lower precision it runs in."""

    def __init__(self, model: nn.Module, device: torch.device, precision: str, engine: str) -> None:
        if precision not in ("float32", "bfloat16", "float64"):
            raise InputError(f"There is no precision {precision!r}: choose 'float32' or 'bfloat16' ('float64' is for comparing sums).")
        self.model = model
        self.device = device
        self.low = precision == "bfloat16"
        self.full = torch.float64 if precision == "float64" else torch.float32
        # What trains: the model itself, or something that computes the same faster.
        self.network: Callable[[Tensor], tuple[Tensor, Tensor]] = model
        if engine == "compiled":
            self.network = torch.compile(model, dynamic=False)
        elif engine == "captured" and self.low:
            self.network = LowWeights(model)

    def __call__(self, x: Tensor, network: Callable[[Tensor], Any] | None = None) -> tuple[Tensor, Tensor]:
        if self.full is torch.float64:
            x = x.double()
        # Without autocast's cache of cast weights, which would outlive the captured step that made it.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.low, cache_enabled=False):
            logits, features = (network or self.network)(x)
        return logits.to(self.full), features.to(self.full)

    def together(self, groups: Sequence[Sequence[Tensor]], network: nn.Module | None = None) -> list[Outputs]:
        """The outputs of each group of views; all go through the network at once, since batch norm is to see them together."""
        views = [view for group in groups for view in group]
        logits, features = self(torch.cat(views) if len(views) > 1 else views[0], network)
        sizes = [len(view) for view in views]
        parts = iter(zip(logits.split(sizes), features.split(sizes), strict=True))
        outputs = []
        for group in groups:
            per_view = [next(parts) for _ in group]
            outputs.append(Outputs(tuple(z for z, _ in per_view), tuple(f for _, f in per_view)))
        return outputs

    def backward(self, loss: Tensor) -> None:
        """Leave gradients in the parameters of everything that the loss came from."""
        loss.backward()
        if isinstance(self.network, LowWeights):
            self.network.hand_over()
