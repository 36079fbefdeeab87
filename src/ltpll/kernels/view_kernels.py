"""Triton kernels for image views, with the results on a CPU; one program per image.

They are hand-written because a program applies only the operation that its image needs, whereas
batched torch operations would compute all fourteen and select, in hundreds of passes over memory.
Between the kernels, images are (batch, 3, rows · columns) uint8.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# Numbers of operations and colour steps again: a kernel only sees constants of its own file.
AUTOCONTRAST, EQUALIZE, BRIGHTNESS, CONTRAST, COLOUR, SHARPNESS, POSTERIZE, SOLARIZE, ROTATE = (
    tl.constexpr(k) for k in range(1, 10)
)
C_BRIGHTNESS, C_CONTRAST, C_SATURATION, C_HUE = (tl.constexpr(k) for k in range(4))


# ---- crops ---------------------------------------------------------------------------------------


@triton.jit
def _taps(place, start, length, side):
    """The first of the two pixels around a position of the view, and the weights of both."""
    centre = start + tl.minimum(tl.maximum(place * length / side, 0.5), length - 0.5)
    first = tl.floor(centre - 0.5)
    one = 1.0 - tl.abs(centre - (first + 0.5))
    two = tl.maximum(1.0 - tl.abs(centre - (first + 1.5)), 0.0)
    return first.to(tl.int32), one, two


@triton.jit
def _across(x, row, column, one, two, columns, s_row, s_column, inside):
    near = tl.load(x + row * s_row + column * s_column, mask=inside & (column >= 0), other=0).to(
        tl.float32
    )
    far = tl.load(
        x + row * s_row + (column + 1) * s_column, mask=inside & (column + 1 < columns), other=0
    ).to(tl.float32)
    return tl.floor(near * one + far * two + 0.5)


@triton.jit
def _resample(
    x,
    top,
    left,
    height,
    width,
    flip,
    y,
    rows,
    columns,
    s_image,
    s_channel,
    s_row,
    s_column,
    BLOCK: tl.constexpr,
):
    image = tl.program_id(0)
    pixel = tl.arange(0, BLOCK)
    inside = pixel < rows * columns
    middle = (pixel % columns).to(tl.float32) + 0.5
    middle = tl.where(tl.load(flip + image) != 0, columns - middle, middle)
    column, near, far = _taps(middle, tl.load(left + image), tl.load(width + image), columns)
    row, upper, lower = _taps(
        (pixel // columns).to(tl.float32) + 0.5, tl.load(top + image), tl.load(height + image), rows
    )
    for channel in tl.static_range(3):
        plane = x + image.to(tl.int64) * s_image + channel * s_channel
        above = _across(
            plane, row, column, near, far, columns, s_row, s_column, inside & (row >= 0)
        )
        below = _across(
            plane, row + 1, column, near, far, columns, s_row, s_column, inside & (row + 1 < rows)
        )
        value = tl.floor(upper * above + lower * below + 0.5)
        tl.store(
            y + (image.to(tl.int64) * 3 + channel) * rows * columns + pixel,
            value.to(tl.uint8),
            mask=inside,
        )


@triton.jit
def _shift(
    x, top, left, flip, y, rows, columns, s_image, s_channel, s_row, s_column, BLOCK: tl.constexpr
):
    image = tl.program_id(0)
    pixel = tl.arange(0, BLOCK)
    inside = pixel < rows * columns
    column = pixel % columns
    column = tl.where(tl.load(flip + image) != 0, columns - 1 - column, column) + tl.load(
        left + image
    ).to(tl.int32)
    row = pixel // columns + tl.load(top + image).to(tl.int32)
    there = inside & (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
    for channel in tl.static_range(3):
        place = (
            x + image.to(tl.int64) * s_image + channel * s_channel + row * s_row + column * s_column
        )
        value = tl.load(place, mask=there, other=0)
        tl.store(
            y + (image.to(tl.int64) * 3 + channel) * rows * columns + pixel, value, mask=inside
        )


def resample_on_gpu(x: Tensor, box: Any) -> Tensor:
    y = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    boxes = (box.top, box.left, box.height, box.width, box.flip)
    _resample[(len(x),)](x, *boxes, y, *x.shape[2:], *x.stride(), **_launch(x))
    return y


def shift_on_gpu(x: Tensor, box: Any) -> Tensor:
    y = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    _shift[(len(x),)](x, box.top, box.left, box.flip, y, *x.shape[2:], *x.stride(), **_launch(x))
    return y


# ---- colours -------------------------------------------------------------------------------------


@triton.jit
def _grey(red, green, blue):
    return tl.floor(red * (19595 / 65536) + green * (38470 / 65536) + blue * (7471 / 65536) + 0.5)


@triton.jit
def _mean_level(level, inside, pixels):
    total = tl.sum(tl.where(inside, level, 0.0).to(tl.int32), 0)
    return ((2 * total + pixels) // (2 * pixels)).to(tl.float32)


@triton.jit
def _blend(simple, value, factor):
    return tl.floor(tl.minimum(tl.maximum((value - simple) * factor + simple, 0.0), 255.0))


@triton.jit
def _hue_share(hue, around, sign, least, chroma, low):
    share = tl.minimum(tl.maximum(least + sign * tl.abs(hue - around), 0.0), 1.0)
    return tl.floor(share * chroma + (low + 0.5))


@triton.jit
def _recolour(x, order, amount, takes_colour, y, batch, pixels, BLOCK: tl.constexpr):
    image = tl.program_id(0)
    pixel = tl.arange(0, BLOCK)
    inside = pixel < pixels
    plane = image.to(tl.int64) * 3 * pixels + pixel
    red = tl.load(x + plane, mask=inside, other=0).to(tl.float32)
    green = tl.load(x + plane + pixels, mask=inside, other=0).to(tl.float32)
    blue = tl.load(x + plane + 2 * pixels, mask=inside, other=0).to(tl.float32)
    for step in tl.static_range(4):
        what = tl.load(order + step * batch + image).to(tl.int32)
        if what < C_HUE:
            factor = tl.load(amount + what * batch + image)
            brightness = _grey(red, green, blue)
            simple = tl.where(
                what == C_SATURATION,
                brightness,
                tl.where(what == C_CONTRAST, _mean_level(brightness, inside, pixels), 0.0),
            )
            red, green, blue = (
                _blend(simple, red, factor),
                _blend(simple, green, factor),
                _blend(simple, blue, factor),
            )
        if what == C_HUE:
            turns = tl.load(amount + C_HUE * batch + image)
            value = tl.maximum(tl.maximum(red, green), blue)
            low = tl.minimum(tl.minimum(red, green), blue)
            chroma = value - low
            hue = tl.where(value == green, (blue - red) + 2 * chroma, (red - green) + 4 * chroma)
            hue = tl.where(value == red, green - blue, hue)
            hue = hue / tl.maximum(chroma, 1.0) + 6 * turns
            hue = hue - 6 * tl.floor(hue / 6)
            red = _hue_share(hue, 3, 1, -1, chroma, low)
            green = _hue_share(hue, 2, -1, 2, chroma, low)
            blue = _hue_share(hue, 4, -1, 2, chroma, low)
    if tl.load(takes_colour + image) != 0:
        red = _grey(red, green, blue)
        green = red
        blue = red
    tl.store(y + plane, red.to(tl.uint8), mask=inside)
    tl.store(y + plane + pixels, green.to(tl.uint8), mask=inside)
    tl.store(y + plane + 2 * pixels, blue.to(tl.uint8), mask=inside)


def recolour_on_gpu(x: Tensor, colours: Any) -> Tensor:
    y = torch.empty_like(x)
    order, amount = (each.contiguous() for each in (colours.order, colours.amount))
    _recolour[(len(x),)](
        x, order, amount, colours.grey, y, len(x), x.shape[2] * x.shape[3], **_launch(x)
    )
    return y


# ---- operations ----------------------------------------------------------------------------------


@triton.jit
def _tables(x, which, magnitude, table, pixels, BLOCK: tl.constexpr):
    """The lookup table, 256 values per channel, of each image whose operation is one."""
    image = tl.program_id(0)
    what = tl.load(which + image).to(tl.int32)
    strength = tl.load(magnitude + image)
    pixel = tl.arange(0, BLOCK)
    inside = pixel < pixels
    plane = image.to(tl.int64) * 3 * pixels + pixel
    number = tl.arange(0, 256)
    level = number.to(tl.float32)
    out = table + image.to(tl.int64) * 768 + number
    if (what == BRIGHTNESS) | (what == CONTRAST) | (what == POSTERIZE) | (what == SOLARIZE):
        simple = 0.0
        if what == CONTRAST:
            red = tl.load(x + plane, mask=inside, other=0).to(tl.float32)
            green = tl.load(x + plane + pixels, mask=inside, other=0).to(tl.float32)
            blue = tl.load(x + plane + 2 * pixels, mask=inside, other=0).to(tl.float32)
            simple = _mean_level(_grey(red, green, blue), inside, pixels)
        value = _blend(simple, level, strength)
        if what == POSTERIZE:
            lost = (1 << (8 - strength.to(tl.int32))) - 1
            value = (number - (number & lost)).to(tl.float32)
        if what == SOLARIZE:
            value = tl.where(level < strength, level, 255 - level)
        for channel in tl.static_range(3):
            tl.store(out + channel * 256, value.to(tl.uint8))
    if what == AUTOCONTRAST:
        for channel in tl.static_range(3):
            value = tl.load(x + plane + channel * pixels, mask=inside, other=0).to(tl.int32)
            low = tl.min(tl.where(inside, value, 255), 0).to(tl.float64)
            high = tl.max(value, 0).to(tl.float64)
            # In double precision, as in Pillow: rounding errors decide near integers.
            scale = 255.0 / tl.maximum(high - low, 1.0)
            stretched = number.to(tl.float64) * scale + -low * scale
            stretched = tl.minimum(tl.maximum(stretched, 0.0), 255.0)
            stretched = tl.where(high > low, stretched, number.to(tl.float64))
            tl.store(out + channel * 256, stretched.to(tl.int32).to(tl.uint8))
    if what == EQUALIZE:
        for channel in tl.static_range(3):
            value = tl.load(x + plane + channel * pixels, mask=inside, other=255).to(tl.int32)
            count = tl.histogram(value, 256) - tl.where(number == 255, BLOCK - pixels, 0)
            top = tl.max(tl.where(inside, value, 0), 0)
            pace = (pixels - tl.sum(tl.where(number == top, count, 0), 0)) // 255
            below = tl.cumsum(count, 0) - count
            spread = tl.minimum((below + pace // 2) // tl.maximum(pace, 1), 255)
            tl.store(out + channel * 256, tl.where(pace > 0, spread, number).to(tl.uint8))


@triton.jit
def _operate(x, which, magnitude, table, matrix, y, batch, rows, columns, BLOCK: tl.constexpr):
    image = tl.program_id(0)
    what = tl.load(which + image).to(tl.int32)
    factor = tl.load(magnitude + image)
    pixels = rows * columns
    pixel = tl.arange(0, BLOCK)
    inside = pixel < pixels
    row, column = pixel // columns, pixel % columns
    plane = x + image.to(tl.int64) * 3 * pixels
    out = y + image.to(tl.int64) * 3 * pixels + pixel
    if what == COLOUR:
        red = tl.load(plane + pixel, mask=inside, other=0).to(tl.float32)
        green = tl.load(plane + pixels + pixel, mask=inside, other=0).to(tl.float32)
        blue = tl.load(plane + 2 * pixels + pixel, mask=inside, other=0).to(tl.float32)
        simple = _grey(red, green, blue)
        tl.store(out, _blend(simple, red, factor).to(tl.uint8), mask=inside)
        tl.store(out + pixels, _blend(simple, green, factor).to(tl.uint8), mask=inside)
        tl.store(out + 2 * pixels, _blend(simple, blue, factor).to(tl.uint8), mask=inside)
    elif what == SHARPNESS:
        inner = inside & (row > 0) & (row < rows - 1) & (column > 0) & (column < columns - 1)
        for channel in tl.static_range(3):
            value = tl.load(plane + channel * pixels + pixel, mask=inside, other=0).to(tl.float32)
            total = 4 * value
            for down in tl.static_range(-1, 2):
                for across in tl.static_range(-1, 2):
                    near = plane + channel * pixels + pixel + down * columns + across
                    total += tl.load(near, mask=inner, other=0).to(tl.float32)
            smooth = tl.floor(tl.div_rn(total, 13.0) + 0.5)
            tl.store(
                out + channel * pixels,
                tl.where(inner, _blend(smooth, value, factor), value).to(tl.uint8),
                mask=inside,
            )
    elif what >= ROTATE:
        # Six numbers of each image, (6, batch): where the column and the row of a pixel come from.
        from_column = tl.floor(
            tl.load(matrix + image) * column
            + (tl.load(matrix + batch + image) * row + tl.load(matrix + 2 * batch + image))
        ).to(tl.int32)
        from_row = tl.floor(
            tl.load(matrix + 3 * batch + image) * column
            + (tl.load(matrix + 4 * batch + image) * row + tl.load(matrix + 5 * batch + image))
        ).to(tl.int32)
        there = (
            inside
            & (from_row >= 0)
            & (from_row < rows)
            & (from_column >= 0)
            & (from_column < columns)
        )
        for channel in tl.static_range(3):
            moved = tl.load(
                plane + channel * pixels + from_row * columns + from_column, mask=there, other=0
            )
            tl.store(out + channel * pixels, moved, mask=inside)
    else:
        for channel in tl.static_range(3):
            same = tl.load(plane + channel * pixels + pixel, mask=inside, other=0)
            if what > 0:
                same = tl.load(
                    table + image.to(tl.int64) * 768 + channel * 256 + same.to(tl.int32),
                    mask=inside,
                    other=0,
                )
            tl.store(out + channel * pixels, same, mask=inside)


def operate_on_gpu(x: Tensor, operations: tuple[Tensor, Tensor], matrices: Tensor) -> Tensor:
    """All rounds of operations, with the affine maps of the geometric ones, (6, rounds, batch)."""
    batch, _, rows, columns = x.shape
    table = torch.empty(batch, 768, dtype=torch.uint8, device=x.device)
    which, magnitude = (each.contiguous() for each in operations)
    for round_ in range(len(which)):
        _tables[(batch,)](x, which[round_], magnitude[round_], table, rows * columns, **_launch(x))
        y = torch.empty_like(x)
        matrix = matrices[:, round_].contiguous()
        drawn = (which[round_], magnitude[round_])
        _operate[(batch,)](x, *drawn, table, matrix, y, batch, rows, columns, **_launch(x))
        x = y
    return x


# ---- cutout and normalisation --------------------------------------------------------------------


@triton.jit
def _cut_out_and_normalise(
    x, top, left, side, y, rows, columns, s_image, s_channel, s_row, s_column,
    t_image, t_channel, t_row, t_column, hole_0, hole_1, hole_2,
    scale_0, scale_1, scale_2, offset_0, offset_1, offset_2,
    CUTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Cut out the hole and normalise."""
    image = tl.program_id(0)
    pixel = tl.arange(0, BLOCK)
    inside = pixel < rows * columns
    row, column = pixel // columns, pixel % columns
    source = x + image.to(tl.int64) * s_image + row * s_row + column * s_column
    red = tl.load(source, mask=inside, other=0).to(tl.float32)
    green = tl.load(source + s_channel, mask=inside, other=0).to(tl.float32)
    blue = tl.load(source + 2 * s_channel, mask=inside, other=0).to(tl.float32)
    if CUTS:
        down, across = row - tl.load(top + image), column - tl.load(left + image)
        length = tl.load(side + image)
        cut = (down >= 0) & (down <= length) & (across >= 0) & (across <= length)
        red, green, blue = (
            tl.where(cut, hole_0, red),
            tl.where(cut, hole_1, green),
            tl.where(cut, hole_2, blue),
        )
    out = y + image.to(tl.int64) * t_image + row * t_row + column * t_column
    tl.store(out, (red * scale_0 + offset_0).to(y.dtype.element_ty), mask=inside)
    tl.store(out + t_channel, (green * scale_1 + offset_1).to(y.dtype.element_ty), mask=inside)
    tl.store(out + 2 * t_channel, (blue * scale_2 + offset_2).to(y.dtype.element_ty), mask=inside)


def cut_out_and_normalise_on_gpu(
    x: Tensor,
    hole: tuple[Tensor, ...] | None,
    fill: tuple[float, ...],
    scale: list[float],
    offset: list[float],
    dtype: torch.dtype,
    layout: torch.memory_format,
) -> Tensor:
    """The images as normalised floats, with their holes, if there are any, filled with a colour."""
    y = torch.empty(x.shape, dtype=dtype, device=x.device, memory_format=layout)
    holes = (x, x, x) if hole is None else tuple(hole)
    numbers = (*x.shape[2:], *x.stride(), *y.stride(), *fill, *scale, *offset)
    cuts = hole is not None
    _cut_out_and_normalise[(len(x),)](x, *holes, y, *numbers, CUTS=cuts, **_launch(x))
    return y


def _launch(x: Tensor) -> dict[str, Any]:
    """One program per image, 16 pixels per thread; no fused multiply-add, to round as on a CPU."""
    block = triton.next_power_of_2(x.shape[2] * x.shape[3])
    return {"BLOCK": block, "num_warps": min(max(block // 512, 1), 16), "enable_fp_fusion": False}
