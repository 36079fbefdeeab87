"""Batch norm, an optional shortcut and ReLU as one layer: the same as the three in a row, in less time on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

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
        # Replaces the normalisation in training, for example by one over the batches of several processes.
        self.normalise: Callable[[nn.BatchNorm2d, Tensor], Tensor] | None = None
        # Where the kernels count the programs that are done; zero between calls.
        self._counter: Tensor
        self.register_buffer("_counter", torch.zeros(max(channels // LEAST_CHANNELS, 1), dtype=torch.int32), persistent=False)

    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        replaced = self.normalise if self.training else None
        if replaced or not self._fits(x):
            out = replaced(self, x) if replaced else super().forward(x)
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
