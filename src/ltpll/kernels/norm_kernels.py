"""Triton kernels for batch norm, shortcut and ReLU on channels-last CUDA tensors.

They are hand-written because these operations are limited by memory bandwidth, which neither
torch's kernels nor compiled ones use fully (docs/performance.md has measurements). Tensors are
treated as matrices, with one row per pixel and one column per channel. Sums over rows take two
steps: every program writes the sum of its rows, and the last program to finish adds these up in a
fixed order, so that results are deterministic.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

SLICES = 256  # programs that sum: about two per multiprocessor of a large GPU
COLUMNS = 64  # the largest number of columns of a tile
# Values that a program holds at once, tuned on an H200.
SUM_TILE = 8192
SUM_AND_WRITE_TILE = 4096
APPLY_TILE = 4096
APPLY_BACKWARD_TILE = 2048


@triton.jit
def _is_last(counter):
    """Whether all other programs of this column group are done; the last one resets the counter."""
    tl.debug_barrier()
    last = tl.atomic_add(counter + tl.program_id(1), 1, sem="acq_rel") == tl.num_programs(0) - 1
    if last:
        tl.store(counter + tl.program_id(1), 0)
    return last


@triton.jit
def _both_sums(partial, column, C, BC: tl.constexpr):
    """The sums over all programs, in few large reads, because latency dominates here."""
    n_pieces = tl.num_programs(0)
    one = tl.zeros((128, BC), tl.float32)
    two = tl.zeros((128, BC), tl.float32)
    for start in range(0, n_pieces, 128):
        piece = start + tl.arange(0, 128)
        inside = (piece < n_pieces)[:, None]
        place = piece[:, None] * C + column[None, :]
        one += tl.load(partial + place, mask=inside, other=0.0, cache_modifier=".cg")
        two += tl.load(partial + n_pieces * C + place, mask=inside, other=0.0, cache_modifier=".cg")
    return tl.sum(one, 0), tl.sum(two, 0)


@triton.jit
def _sum_forward(
    x, weight, bias, running_mean, running_var, batches, partial, counter, statistics,
    n_rows, rows_each, momentum, eps, C, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Mean and deviation, the scale and offset of the normalisation, and the running statistics."""
    piece = tl.program_id(0)
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    # Subtracting the running mean first keeps a variance accurate that is small beside the mean.
    old_mean = tl.load(running_mean + column)
    total = tl.zeros((BR, BC), tl.float32)
    square = tl.zeros((BR, BC), tl.float32)
    # From the end, because the values written last are still in the cache.
    first = (tl.num_programs(0) - 1 - piece) * rows_each
    last = tl.minimum(first + rows_each, n_rows)
    for start in range(first, last, BR):
        row = start + tl.arange(0, BR)
        inside = (row < last)[:, None]
        value = tl.load(
            x + row.to(tl.int64)[:, None] * C + column[None, :], mask=inside, other=0.0
        ).to(tl.float32)
        value = tl.where(inside, value - old_mean[None, :], 0.0)
        total += value
        square += value * value
    tl.store(partial + piece * C + column, tl.sum(total, 0))
    tl.store(partial + (tl.num_programs(0) + piece) * C + column, tl.sum(square, 0))
    if _is_last(counter):
        gain, start_at, old_var = (
            tl.load(weight + column),
            tl.load(bias + column),
            tl.load(running_var + column),
        )
        sum_all, square_all = _both_sums(partial, column, C, BC)
        shifted = sum_all / n_rows
        variance = tl.maximum(square_all / n_rows - shifted * shifted, 0.0)
        mean = old_mean + shifted
        inverse = 1.0 / tl.sqrt(variance + eps)
        scale = gain * inverse
        tl.store(statistics + column, mean)
        tl.store(statistics + C + column, inverse)
        tl.store(statistics + 2 * C + column, scale)
        tl.store(statistics + 3 * C + column, start_at - mean * scale)
        tl.store(running_mean + column, old_mean + momentum * shifted)
        tl.store(
            running_var + column,
            old_var + momentum * (variance * (n_rows / (n_rows - 1)) - old_var),
        )
        if tl.program_id(1) == 0:
            tl.store(batches, tl.load(batches) + 1)


@triton.jit
def _subsampled_row(row, height, width):
    """The row of a pixel after subsampling, and which are kept: those in even rows and columns."""
    down, across = (row // width) % height, row % width
    # Heights are even, so this formula holds across image boundaries.
    return (row // width // 2) * (width // 2) + across // 2, (down % 2 == 0) & (across % 2 == 0)


@triton.jit(do_not_specialize=["height", "width"])
def _apply_forward(
    x, scale, offset, shortcut, y, small, kept, n_rows, C, height, width,
    BR: tl.constexpr, BC: tl.constexpr, ADDS: tl.constexpr, RELU: tl.constexpr,
    KEEPS: tl.constexpr, SUBSAMPLES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BR + tl.arange(0, BR)
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    place = row.to(tl.int64)[:, None] * C + column[None, :]
    inside = (row < n_rows)[:, None]
    value = tl.load(x + place, mask=inside).to(tl.float32)
    value = value * tl.load(scale + column)[None, :] + tl.load(offset + column)[None, :]
    if ADDS:
        value += tl.load(shortcut + place, mask=inside).to(tl.float32)
    if KEEPS:
        bit = (
            tl.reshape((value > 0).to(tl.int32), (BR, BC // 8, 8)) << tl.arange(0, 8)[None, None, :]
        )
        byte = (
            row.to(tl.int64)[:, None] * (C // 8)
            + (tl.program_id(1) * (BC // 8) + tl.arange(0, BC // 8))[None, :]
        )
        tl.store(kept + byte, tl.sum(bit, 2).to(tl.uint8), mask=inside)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(y + place, value.to(y.dtype.element_ty), mask=inside)
    if SUBSAMPLES:
        to, taken = _subsampled_row(row, height, width)
        tl.store(
            small + to.to(tl.int64)[:, None] * C + column[None, :],
            value.to(y.dtype.element_ty),
            mask=inside & taken[:, None],
        )


@triton.jit(do_not_specialize=["height", "width"])
def _sum_backward(
    grad, other_grad, x, weight, kept, statistics, through, partial, counter, grad_weight,
    grad_bias, coef, n_rows, rows_each, C, height, width, BR: tl.constexpr, BC: tl.constexpr,
    TWICE: tl.constexpr, SUBSAMPLES: tl.constexpr, ADDS: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """The gradients of weight and bias, and three coefficients per channel for that of x.

    With a shortcut or two gradients, the gradient after the ReLU is written too.
    """
    piece = tl.program_id(0)
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    mean = tl.load(statistics + column)
    scale = tl.load(statistics + 2 * C + column)[None, :]
    offset = tl.load(statistics + 3 * C + column)[None, :]
    total = tl.zeros((BR, BC), tl.float32)
    product = tl.zeros((BR, BC), tl.float32)
    first = (tl.num_programs(0) - 1 - piece) * rows_each
    last = tl.minimum(first + rows_each, n_rows)
    for start in range(first, last, BR):
        row = start + tl.arange(0, BR)
        inside = (row < last)[:, None]
        place = row.to(tl.int64)[:, None] * C + column[None, :]
        g = tl.load(grad + place, mask=inside, other=0.0).to(tl.float32)
        if TWICE:
            if SUBSAMPLES:
                to, taken = _subsampled_row(row, height, width)
                there = to.to(tl.int64)[:, None] * C + column[None, :]
                g += tl.load(other_grad + there, mask=inside & taken[:, None], other=0.0).to(
                    tl.float32
                )
            else:
                g += tl.load(other_grad + place, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        if RELU:
            if ADDS:
                byte = (
                    row.to(tl.int64)[:, None] * (C // 8)
                    + (tl.program_id(1) * (BC // 8) + tl.arange(0, BC // 8))[None, :]
                )
                bit = (
                    tl.load(kept + byte, mask=inside, other=0).to(tl.int32)[:, :, None]
                    >> tl.arange(0, 8)[None, None, :]
                )
                g = tl.where(tl.reshape(bit, (BR, BC)) & 1 != 0, g, 0.0)
            else:
                g = tl.where(value * scale + offset > 0, g, 0.0)
        if ADDS or TWICE:
            g = g.to(through.dtype.element_ty)
            tl.store(through + place, g, mask=inside)
            g = g.to(tl.float32)
        total += g
        product += g * (value - mean[None, :])
    tl.store(partial + piece * C + column, tl.sum(total, 0))
    tl.store(partial + (tl.num_programs(0) + piece) * C + column, tl.sum(product, 0))
    if _is_last(counter):
        inverse = tl.load(statistics + C + column)
        slope = tl.load(weight + column) * inverse
        all_g, all_product = _both_sums(partial, column, C, BC)
        tl.store(grad_weight + column, all_product * inverse)
        tl.store(grad_bias + column, all_g)
        along = -slope * inverse * inverse * all_product / n_rows
        tl.store(coef + column, slope)
        tl.store(coef + C + column, along)
        tl.store(coef + 2 * C + column, -slope * all_g / n_rows - along * mean)


@triton.jit
def _apply_backward(
    grad,
    x,
    statistics,
    coef,
    grad_x,
    n_rows,
    C,
    BR: tl.constexpr,
    BC: tl.constexpr,
    MASK: tl.constexpr,
):
    row = tl.program_id(0) * BR + tl.arange(0, BR)
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    place = row.to(tl.int64)[:, None] * C + column[None, :]
    inside = (row < n_rows)[:, None]
    g = tl.load(grad + place, mask=inside).to(tl.float32)
    value = tl.load(x + place, mask=inside).to(tl.float32)
    if MASK:
        g = tl.where(
            value * tl.load(statistics + 2 * C + column)[None, :]
            + tl.load(statistics + 3 * C + column)[None, :]
            > 0,
            g,
            0.0,
        )
    out = (
        g * tl.load(coef + column)[None, :]
        + value * tl.load(coef + C + column)[None, :]
        + tl.load(coef + 2 * C + column)[None, :]
    )
    tl.store(grad_x + place, out.to(grad_x.dtype.element_ty), mask=inside)


class _Shape:
    """How a channels-last tensor is split among programs."""

    def __init__(self, x: Tensor) -> None:
        self.columns = x.shape[1]
        self.rows = x.numel() // self.columns
        self.image = (x.shape[2], x.shape[3])
        self._across = min(self.columns, COLUMNS)

    def elementwise(self, tile: int) -> tuple[tuple[int, int], dict[str, int]]:
        """The grid of programs for an elementwise kernel, and their tiles."""
        down = tile // self._across
        return (triton.cdiv(self.rows, down), self.columns // self._across), {
            "BR": down,
            "BC": self._across,
        }

    def sums(self, tile: int) -> tuple[tuple[int, int], int, dict[str, int]]:
        """The grid of programs for a sum, the rows of each, and their tiles."""
        down, groups = tile // self._across, self.columns // self._across
        each = triton.cdiv(triton.cdiv(self.rows, max(SLICES // groups, 1)), down) * down
        return (triton.cdiv(self.rows, each), groups), each, {"BR": down, "BC": self._across}


class NormReLUFunction(torch.autograd.Function):
    """Batch norm with batch statistics, an optional shortcut and ReLU; returns the result twice.

    A result that is used twice (by the next convolution and by its shortcut) has two gradients,
    which the backward kernel adds while reading them. With `subsamples`, the second result has
    every second row and column of pixels only.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, shortcut: Tensor | None, weight: Tensor, bias: Tensor,
        running_mean: Tensor, running_var: Tensor, batches: Tensor, counter: Tensor,
        momentum: float, eps: float, relu: bool, subsamples: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        shape = _Shape(x)
        grid, each, tile = shape.sums(SUM_TILE)
        partial = torch.empty(2, grid[0], shape.columns, dtype=torch.float32, device=x.device)
        # Mean, inverse deviation, scale, offset.
        statistics = torch.empty(4, shape.columns, dtype=torch.float32, device=x.device)
        _sum_forward[grid](
            x, weight, bias, running_mean, running_var, batches, partial, counter, statistics,
            shape.rows, each, momentum, eps, shape.columns, **tile,
        )  # fmt: skip
        kept = None
        if shortcut is not None and relu:
            # Then x alone does not show which values passed the ReLU: store one bit each.
            kept = torch.empty(x.numel() // 8, dtype=torch.uint8, device=x.device)
        scale, offset = statistics[2], statistics[3]
        y, second = scale_and_shift(x, scale, offset, shortcut, relu, subsamples, kept)
        ctx.save_for_backward(x, kept, weight, counter, statistics)
        ctx.adds, ctx.relu, ctx.subsamples = shortcut is not None, relu, subsamples
        ctx.set_materialize_grads(False)
        return y, second if subsamples else y.view_as(y)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        x, kept, weight, counter, statistics = ctx.saved_tensors
        one, other = (
            None if grad is None else grad.contiguous(memory_format=torch.channels_last)
            for grad in grads
        )
        if one is None:
            if ctx.subsamples or other is None:
                one = torch.zeros_like(x)
            else:
                one, other = other, None
        shape = _Shape(x)
        writes = ctx.adds or other is not None
        grid, each, tile = shape.sums(SUM_AND_WRITE_TILE if writes else SUM_TILE)
        partial = torch.empty(2, grid[0], shape.columns, dtype=torch.float32, device=x.device)
        grad_weight, grad_bias, *_ = sums = torch.empty(
            5, shape.columns, dtype=torch.float32, device=x.device
        )
        through = torch.empty_like(one) if writes else one
        _sum_backward[grid](
            one, one if other is None else other, x, weight, x if kept is None else kept,
            statistics, through, partial, counter, grad_weight, grad_bias, sums[2:],
            shape.rows, each, shape.columns, *shape.image, **tile,
            TWICE=other is not None, SUBSAMPLES=ctx.subsamples, ADDS=ctx.adds, RELU=ctx.relu,
        )  # fmt: skip
        grad_x = torch.empty_like(x)
        grid, tile = shape.elementwise(APPLY_BACKWARD_TILE)
        masks = ctx.relu and not writes
        _apply_backward[grid](
            through, x, statistics, sums[2:], grad_x, shape.rows, shape.columns, **tile, MASK=masks
        )
        return grad_x, through if ctx.adds else None, grad_weight, grad_bias, *[None] * 8


def scale_and_shift(
    x: Tensor,
    scale: Tensor,
    offset: Tensor,
    shortcut: Tensor | None,
    relu: bool,
    subsamples: bool,
    kept: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """relu(scale · x + offset + shortcut) per channel: batch norm with known statistics.

    Returns the result twice, the second time with every second row and column of pixels only if it
    `subsamples`. `kept` receives one bit per value, set if the value is positive.
    """
    shape = _Shape(x)
    y = second = torch.empty_like(x)
    if subsamples:
        half = (len(x), shape.columns, x.shape[2] // 2, x.shape[3] // 2)
        layout = torch.channels_last
        second = torch.empty(half, dtype=x.dtype, device=x.device, memory_format=layout)
    grid, tile = shape.elementwise(APPLY_TILE)
    adds, keeps = shortcut is not None, kept is not None
    given = (x, scale, offset, shortcut if adds else x, y, second, kept if keeps else x)
    sizes = (shape.rows, shape.columns, *shape.image)
    flags = {"ADDS": adds, "RELU": relu, "KEEPS": keeps, "SUBSAMPLES": subsamples}
    _apply_forward[grid](*given, *sizes, **tile, **flags)
    return y, second
