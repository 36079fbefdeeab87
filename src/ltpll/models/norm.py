"""Batch norm, an optional shortcut and ReLU as one layer, which is faster on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ltpll.kernels.support import runs_kernels

LEAST_CHANNELS = 16  # the kernels need a power of two that is at least this


class NormReLU(nn.BatchNorm2d):
    """`forward(x, shortcut)` returns relu(norm(x) + shortcut) twice, also for the next shortcut.

    With two results, their gradients are added inside the backward kernel, which saves a pass over
    memory. State and parameters are those of `nn.BatchNorm2d`.

    Args:
        channels: The number of channels.
        relu: Whether to apply the ReLU.
        subsamples: Whether the second result has every second row and column only, for the shortcut
            past a layer with stride 2.
    """

    def __init__(self, channels: int, relu: bool = True, subsamples: bool = False) -> None:
        super().__init__(channels)
        self.relu = relu
        self.subsamples = subsamples
        # The kernels count finished programs here; zero between calls.
        self._counter: Tensor
        counter = torch.zeros(max(channels // LEAST_CHANNELS, 1), dtype=torch.int32)
        self.register_buffer("_counter", counter, persistent=False)

    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        if not self._fits(x):
            out = super().forward(x)
            if shortcut is not None:
                out = out + shortcut
            out = torch.relu(out) if self.relu else out
            return out, out[:, :, ::2, ::2] if self.subsamples else out
        from ltpll.kernels.norm_kernels import NormReLUFunction, scale_and_shift

        if self.training:
            running = (self.running_mean, self.running_var, self.num_batches_tracked)
            tensors = (self.weight, self.bias, *running, self._counter)
            how = (self.momentum, self.eps, self.relu, self.subsamples)
            return NormReLUFunction.apply(x, shortcut, *tensors, *how)  # type: ignore[no-any-return]
        assert self.running_mean is not None
        assert self.running_var is not None
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        offset = self.bias - self.running_mean * scale
        return scale_and_shift(x, scale, offset, shortcut, self.relu, self.subsamples)

    def _fits(self, x: Tensor) -> bool:
        """Whether the kernels support this input."""
        channels = self.num_features
        return (
            runs_kernels(x)
            and x.dtype != torch.float64
            and x.is_contiguous(memory_format=torch.channels_last)
            and channels >= LEAST_CHANNELS
            and channels & (channels - 1) == 0
            and (self.training or not torch.is_grad_enabled())
            and not (self.subsamples and (x.shape[2] % 2 or x.shape[3] % 2))
        )
