"""CPU products: oneDNN multiplies large matrices up to twice as fast as MKL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

ROUNDING = 1e-5  # of sums of float32 numbers; sums of bfloat16 products differ by far more


@contextmanager
def fast_products() -> Iterator[None]:
    """Let oneDNN multiply matrices if it is exact, as it is on CPUs that do not round to bfloat16.

    It is up to twice as fast as MKL. A resumed run has to choose the same, so speed does not count.
    """
    before = torch.get_float32_matmul_precision()
    x = (torch.arange(256 * 256) * 0.618).frac().view(256, 256)
    exact = x @ x
    try:
        torch.set_float32_matmul_precision("medium")
        if (x @ x - exact).abs().max() > ROUNDING * exact.abs().max():
            torch.set_float32_matmul_precision(before)
        yield
    finally:
        torch.set_float32_matmul_precision(before)
