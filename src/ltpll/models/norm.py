"""Batch norm, an optional shortcut and ReLU as one layer: the same as the three in a row, in less time on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ltpll.training.distributed import World
from ltpll.triton_support import runs_kernels

LEAST_CHANNELS = 16  # what the kernels handle: a power of two from here on


class NormReLU(nn.BatchNorm2d):
    """`forward(x, shortcut)` is relu(norm(x) + shortcut), given twice: for the next layer and for what goes past it.

    Two results have a gradient each, and their sum costs nothing extra here, where it would cost a pass over memory anywhere else. If it
    `thins`, the second result has every second row and column only, as a shortcut past a layer with stride 2 needs it.
    """

    def __init__(self, channels: int, relu: bool = True, thins: bool = False) -> None:
        super().__init__(channels)
        self.relu = relu
        self.thins = thins
        self.world: World | None = None  # whose processes' batches are normalised together
        # Where the kernels count the programs that are done; zero between calls.
        self._counter: Tensor
        self.register_buffer("_counter", torch.zeros(max(channels // LEAST_CHANNELS, 1), dtype=torch.int32), persistent=False)

    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        shared = self.world is not None and self.training
        if shared or not self._fits(x):
            out = shared_norm(self, x, self.world) if shared and self.world is not None else super().forward(x)
            if shortcut is not None:
                out = out + shortcut
            out = torch.relu(out) if self.relu else out
            return out, out[:, :, ::2, ::2] if self.thins else out
        from ltpll.models.norm_kernels import NormReLUFunction, apply_line

        if self.training:
            figures = (self.weight, self.bias, self.running_mean, self.running_var, self.num_batches_tracked, self._counter)
            return NormReLUFunction.apply(x, shortcut, *figures, self.momentum, self.eps, self.relu, self.thins)  # type: ignore[no-any-return]
        assert self.running_mean is not None
        assert self.running_var is not None
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        return apply_line(x, scale, self.bias - self.running_mean * scale, shortcut, self.relu, self.thins)

    def _fits(self, x: Tensor) -> bool:
        """Whether our kernels can do it."""
        channels = self.num_features
        return (
            runs_kernels(x)
            and x.dtype != torch.float64
            and x.is_contiguous(memory_format=torch.channels_last)
            and channels >= LEAST_CHANNELS
            and channels & (channels - 1) == 0
            and (self.training or not torch.is_grad_enabled())
            and not (self.thins and (x.shape[2] % 2 or x.shape[3] % 2))
        )


# ---- one batch in several processes --------------------------------------------------------------------------------------


class SharedNorm(nn.BatchNorm2d):
    """Batch norm over the batches of all processes; torch's own is for GPUs alone."""

    world: World

    def forward(self, x: Tensor) -> Tensor:
        return shared_norm(self, x, self.world) if self.training else super().forward(x)


def shared_norm(norm: nn.BatchNorm2d, x: Tensor, world: World) -> Tensor:
    """The batch norm of a layer in training, with mean and variance over all rows and pixels of all processes."""
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    # Filled on the device: a number that comes from the processor could not be recorded.
    count = world.total(torch.full((), x.numel() // x.shape[1], dtype=wide.dtype, device=x.device))
    mean = world.summed(wide.sum((0, 2, 3))) / count
    centred = wide - mean[:, None, None]
    variance = world.summed((centred * centred).sum((0, 2, 3))) / count
    if norm.running_mean is not None and norm.running_var is not None and norm.num_batches_tracked is not None:
        with torch.no_grad():
            momentum = norm.momentum or 0.0
            norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), momentum)
            norm.running_var.lerp_((variance * count / (count - 1)).to(norm.running_var.dtype), momentum)
            norm.num_batches_tracked.add_(1)
    scale = norm.weight * torch.rsqrt(variance + norm.eps)
    return (centred * scale[:, None, None] + norm.bias[:, None, None]).to(x.dtype)


def synchronised(model: nn.Module, world: World) -> nn.Module:
    """The same model, whose batch norms see the batches of all processes."""
    for module in model.modules():
        if isinstance(module, NormReLU):
            module.world = world
        elif type(module) is nn.BatchNorm2d:
            module.__class__ = SharedNorm  # in place, so that weights and whoever holds the module stay the same
            module.world = world  # type: ignore[assignment]
    return model
