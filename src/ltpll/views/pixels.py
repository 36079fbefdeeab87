"""Pixel arithmetic of colour jitter and RandAugment: greyscale, blends, rounding as in Pillow."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def on_rows(
    active: Tensor, function: Callable[..., Tensor], otherwise: Tensor, *arguments: Tensor
) -> Tensor:
    """The result of a function for the active rows of a batch, and `otherwise` for the other rows.

    On a GPU all rows are computed, because looking up the active ones would force a synchronisation
    and could not be captured in a CUDA graph. On a CPU only the active rows are computed. The
    results are the same.
    """
    if active.device.type == "cpu" and not torch.compiler.is_compiling():
        rows = active.nonzero().squeeze(1)
        if not len(rows):
            return otherwise
        result = function(*(each.index_select(0, rows) for each in arguments)).contiguous()
        if otherwise[0].nbytes % 8:
            return otherwise.index_copy(0, rows, result)
        # As 64-bit words, because torch copies rows of bytes one value at a time.
        words = _words(otherwise.contiguous()).index_copy(0, rows, _words(result))
        return words.view(otherwise.dtype).view(otherwise.shape)
    chosen = active.view(-1, *[1] * (otherwise.ndim - 1))
    return torch.where(chosen, function(*arguments), otherwise)


def _words(x: Tensor) -> Tensor:
    return x.view(len(x), -1).view(torch.int64)


def to_uint8(values: Tensor) -> Tensor:
    """Truncate values from 0 to 255; via int16, which is much faster on a CPU."""
    return values.to(torch.int16).to(torch.uint8)


def blend_(simple: Tensor, x: Tensor, factor: Tensor) -> Tensor:
    """Interpolate in place from the simple image (factor 0) to x (factor 1) and beyond.

    Rounded down, this is the result of Pillow.
    """
    return x.sub_(simple).mul_(factor).add_(simple).clamp_(0, 255)


def grey(pixels: Tensor) -> Tensor:
    """The integer brightness of each pixel; weights are multiples of 2⁻¹⁶, hence exact."""
    red, green, blue = pixels.unbind(1)
    weighted = (red * (19595 / 65536)).add_(green, alpha=38470 / 65536)
    return weighted.add_(blue, alpha=7471 / 65536).add_(0.5).floor_()


def mean_level(levels: Tensor) -> Tensor:
    """The rounded mean of each (rows, columns) of integers, (batch,) float."""
    pixels = levels.shape[1] * levels.shape[2]
    total = levels.sum((1, 2)).long()  # exact in float32 up to 2²⁴: 256 × 256 pixels
    return ((2 * total + pixels) // (2 * pixels)).float()


def enhance(x: Tensor, against: Tensor, factor: Tensor) -> Tensor:
    """A blend with black (0), the mean brightness (1: contrast) or the grey image (2: colour)."""
    pixels = x.float()
    brightness = grey(pixels)
    offset = torch.where(against == 1, mean_level(brightness), 0.0)
    simple = brightness.mul_((against == 2).float().view(-1, 1, 1)).add_(offset.view(-1, 1, 1))
    return to_uint8(blend_(simple[:, None], pixels, factor.view(-1, 1, 1, 1)))
