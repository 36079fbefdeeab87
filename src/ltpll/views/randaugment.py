"""The fourteen operations of RandAugment on batches of uint8 images, with Pillow's results.

Images are (batch, 3, rows, columns) uint8, magnitudes (batch,). There are four kinds of operations,
each a few kernels for a batch: lookup tables of 256 values per channel, blends with a simpler
image, bit operations, and nearest-neighbour gathers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ltpll.views.colours import blend_, enhance, on_rows, to_uint8
from ltpll.views.crops import pixels_at

# Ordered so that operations with the same kind of magnitude are adjacent.
OPERATIONS = (
    *("identity", "autocontrast", "equalize"),
    *("brightness", "contrast", "colour", "sharpness"),
    *("posterize", "solarize"),
    *("rotate", "shear-x", "shear-y", "translate-x", "translate-y"),
)
AUTOCONTRAST, EQUALIZE, BRIGHTNESS, CONTRAST, COLOUR, SHARPNESS = range(1, 7)
POSTERIZE, SOLARIZE, ROTATE, SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y = range(7, 14)


class Operations(NamedTuple):
    """The operations of each image and their magnitudes, (rounds, batch) each.

    A magnitude is the factor of an enhancement, the number of bits that posterize keeps, the
    threshold of solarize, an angle in degrees, or for shear and translation a share of the side.
    The first three operations do not use it.
    """

    which: Tensor
    magnitude: Tensor


def random_operations(
    rounds: int, batch: int, device: torch.device, generator: torch.Generator | None
) -> Operations:
    """Draw operations and magnitudes, uniformly and independently."""
    which = torch.randint(len(OPERATIONS), (rounds, batch), generator=generator, device=device)
    u = torch.rand(rounds, batch, generator=generator, device=device)
    magnitude = torch.where(which <= SHARPNESS, 0.05 + 0.9 * u, 0.6 * u - 0.3)
    # 4 to 7 bits; the clamp is needed because the product of a draw just below one may round up.
    magnitude = torch.where(which == POSTERIZE, torch.clamp((4 + 4 * u).floor(), max=7), magnitude)
    magnitude = torch.where(which == SOLARIZE, 256 * u, magnitude)
    return Operations(which, torch.where(which == ROTATE, 60 * u - 30, magnitude))


def operate(x: Tensor, operations: Operations) -> Tensor:
    """Apply all rounds of operations."""
    for which, magnitude in zip(*operations, strict=True):
        x = on_rows((which == AUTOCONTRAST) | (which == EQUALIZE), _tabulated, x, x, which)
        blends = (which >= BRIGHTNESS) & (which <= COLOUR)
        x = on_rows(blends, enhance, x, x, which - BRIGHTNESS, magnitude)
        x = on_rows((which == POSTERIZE) | (which == SOLARIZE), _bitwise, x, x, which, magnitude)
        x = on_rows(which == SHARPNESS, _sharpness, x, x, magnitude)
        x = on_rows(which >= ROTATE, _moved, x, x, which, magnitude)
    return x


# ---- tables --------------------------------------------------------------------------------------


def _tabulated(x: Tensor, which: Tensor) -> Tensor:
    """Autocontrast and equalize, by lookup tables."""
    table = torch.empty(*x.shape[:2], 256, dtype=torch.uint8, device=x.device)
    table = on_rows(which == AUTOCONTRAST, _autocontrast_table, table, x)
    table = on_rows(which == EQUALIZE, _equalize_table, table, x)
    return table.flatten(0, 1).gather(1, x.flatten(2).flatten(0, 1).long()).view(x.shape)


def _autocontrast_table(x: Tensor) -> Tensor:
    """Tables that stretch the values of each channel to 0 to 255, (batch, 3, 256) uint8."""
    level = torch.arange(256, device=x.device, dtype=torch.float64)
    # In double precision, as in Pillow: where the exact result is an integer, rounding errors
    # decide.
    signed = x.to(torch.int16)  # torch 2.13 compiles the minimum of uint8 values to 0 on a CPU
    low, high = signed.amin((2, 3))[:, :, None].double(), signed.amax((2, 3))[:, :, None].double()
    # torch would compute 255 / x as 255 · (1 / x).
    scale = torch.full_like(high, 255) / (high - low).clamp_(min=1)
    return to_uint8(torch.where(high > low, (level * scale + -low * scale).clamp_(0, 255), level))


def _equalize_table(x: Tensor) -> Tensor:
    """Tables that equalise the histogram of each channel, (batch, 3, 256) uint8."""
    batch, channels, rows, columns = x.shape
    values = x.flatten(2).flatten(0, 1).long()
    count = torch.zeros(batch * channels, 256, dtype=torch.int32, device=x.device)
    one = torch.ones(1, 1, dtype=torch.int32, device=x.device)
    count.scatter_add_(1, values, one.expand_as(values))
    largest = count.gather(1, values.amax(1, keepdim=True))
    step = (rows * columns - largest) // 255
    below = count.cumsum(1, dtype=torch.int32) - count
    table = torch.clamp((below + step // 2) // step.clamp(min=1), max=255)
    level = torch.arange(256, dtype=torch.int32, device=x.device)
    return torch.where(step > 0, table, level).to(torch.uint8).view(batch, channels, 256)


# ---- blends --------------------------------------------------------------------------------------


def _sharpness(x: Tensor, factor: Tensor) -> Tensor:
    """A blend with the smoothed image; the outermost pixels stay unchanged."""
    pixels = x.float()
    row = pixels[:, :, :, :-2] + pixels[:, :, :, 1:-1] + pixels[:, :, :, 2:]
    inner = pixels[:, :, 1:-1, 1:-1]
    smooth = (row[:, :, :-2] + row[:, :, 1:-1] + row[:, :, 2:]).add_(inner, alpha=4)
    smooth = smooth.div_(13).add_(0.5).floor_()
    blend_(smooth, inner, factor.view(-1, 1, 1, 1))
    return to_uint8(pixels)


# ---- bits ----------------------------------------------------------------------------------------


def _bitwise(x: Tensor, which: Tensor, magnitude: Tensor) -> Tensor:
    """Posterize keeps the first bits of values; solarize inverts values above a threshold."""
    kept = torch.where(which == POSTERIZE, 256 - torch.exp2(8 - magnitude), 255.0).to(torch.uint8)
    threshold = torch.where(which == SOLARIZE, magnitude.ceil(), 256.0).to(torch.int16)
    above = x.to(torch.int16) >= threshold.view(-1, 1, 1, 1)
    return (x & kept.view(-1, 1, 1, 1)) ^ (above.to(torch.uint8) * 255)


# ---- movements -----------------------------------------------------------------------------------


def _moved(x: Tensor, which: Tensor, magnitude: Tensor) -> Tensor:
    """The geometric operations, with nearest-neighbour sampling; black outside of the image."""
    batch, _, rows, columns = x.shape
    column = torch.arange(columns, device=x.device)
    row = torch.arange(rows, device=x.device)[:, None]
    numbers = movement(which, magnitude, rows, columns).view(2, 3, batch, 1, 1)
    from_column, from_row = ((a * column + (b * row + c)).floor_() for a, b, c in numbers)
    return pixels_at(x, from_row, from_column)


def movement(which: Tensor, magnitude: Tensor, rows: int, columns: int) -> Tensor:
    """The affine map of each operation: a·column + b·row + c for the source column, then the row.

    Coefficients are multiples of 2⁻¹⁶, as in Pillow, so that up to 256 pixels the arithmetic is
    exact in float32.
    """
    magnitude = magnitude.double()
    turned = which == ROTATE
    angle = torch.where(turned, -magnitude * (math.pi / 180), 0.0)
    cos, sin = angle.cos(), angle.sin()
    across = torch.where(which == SHEAR_X, magnitude, sin)
    down = torch.where(which == SHEAR_Y, magnitude, -sin)
    middle, centre = columns / 2, rows / 2
    right = torch.where(which == TRANSLATE_X, magnitude * columns, 0.0)
    right = torch.where(turned, middle - cos * middle - sin * centre, right)
    below = torch.where(which == TRANSLATE_Y, magnitude * rows, 0.0)
    below = torch.where(turned, centre + sin * middle - cos * centre, below)
    right, below = right + 0.5 * cos + 0.5 * across, below + 0.5 * down + 0.5 * cos
    numbers = torch.stack([cos, across, right, down, cos, below])
    return (numbers * 65536 + 0.5).floor().div(65536).float()
