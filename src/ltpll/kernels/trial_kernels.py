"""A minimal Triton kernel, used to find out whether Triton works."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _add_one(x, y, N: tl.constexpr):
    position = tl.arange(0, N)
    tl.store(y + position, tl.load(x + position) + 1)


def add_one(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    _add_one[(1,)](x, y, N=len(x))
    return y
