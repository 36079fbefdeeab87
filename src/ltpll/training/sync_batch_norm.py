"""Synchronised batch norm: mean and variance over the batches of all processes, on CPUs as well as GPUs."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from ltpll.models.norm import NormReLU
from ltpll.training.distributed import World


class SharedNorm(nn.BatchNorm2d):
    """Batch norm over the batches of all processes; torch's version needs GPUs."""

    world: World

    def forward(self, x: Tensor) -> Tensor:
        return shared_norm(self, x, self.world) if self.training else super().forward(x)


def shared_norm(norm: nn.BatchNorm2d, x: Tensor, world: World) -> Tensor:
    """Apply the batch norm of a layer in training, with mean and variance over all rows and pixels of all processes."""
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    # Filled on the device: a copy from the CPU could not be recorded as a CUDA graph.
    count = world.total(torch.full((), x.numel() // x.shape[1], dtype=wide.dtype, device=x.device))
    mean = world.summed(wide.sum((0, 2, 3))) / count
    centred = wide - mean[:, None, None]
    variance = world.summed((centred * centred).sum((0, 2, 3))) / count
    if (
        norm.running_mean is not None
        and norm.running_var is not None
        and norm.num_batches_tracked is not None
    ):
        with torch.no_grad():
            momentum = norm.momentum or 0.0
            norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), momentum)
            norm.running_var.lerp_(
                (variance * count / (count - 1)).to(norm.running_var.dtype), momentum
            )
            norm.num_batches_tracked.add_(1)
    scale = norm.weight * torch.rsqrt(variance + norm.eps)
    return (centred * scale[:, None, None] + norm.bias[:, None, None]).to(x.dtype)


def synchronise_batch_norm(model: nn.Module, world: World) -> nn.Module:
    """Change the batch norms of a model so that they use the batches of all processes; returns the model."""
    for module in model.modules():
        if isinstance(module, NormReLU):
            module.normalise = partial(shared_norm, world=world)
        elif type(module) is nn.BatchNorm2d:
            module.__class__ = SharedNorm  # in place, so that the weights and all references to the module stay valid
            module.world = world  # type: ignore[assignment]
    return model
