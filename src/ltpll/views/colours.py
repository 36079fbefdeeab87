"""Colour jitter in a random order per image, and random greyscale, as in torchvision."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

BRIGHTNESS, CONTRAST, SATURATION, HUE, NOTHING = range(5)


class Colours(NamedTuple):
    """The colour operations of each image."""

    # (4, batch): the first, second, … operation; NOTHING for images that stay unchanged.
    order: Tensor
    # (4, batch): the factors of brightness, contrast and saturation, and the shift of hue in turns.
    amount: Tensor
    grey: Tensor  # (batch,): whether the image is converted to greyscale at the end


def random_colours(
    batch: int,
    device: torch.device,
    generator: torch.Generator | None,
    strength: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1),
    jitter_rate: float = 0.8,
    grey_rate: float = 0.2,
) -> Colours:
    """Draw uniform factors and hue shifts within `strength`, and an order, for each image."""
    u = torch.rand(10, batch, generator=generator, device=device)
    order = torch.where(u[8] < jitter_rate, u[:4].argsort(0), NOTHING)
    amount = torch.stack([(2 * u[4 + k] - 1) * strength[k] + (k != HUE) for k in range(4)])
    return Colours(order, amount, u[9] < grey_rate)


def recolour(x: Tensor, colours: Colours) -> Tensor:
    """Apply the colour operations."""
    for what in colours.order:
        factor = colours.amount.gather(0, what.clamp(max=SATURATION)[None])[0]
        x = on_rows(what < HUE, enhance, x, x, what, factor)
        x = on_rows(what == HUE, shift_hue, x, x, colours.amount[HUE])
    return on_rows(colours.grey, _greyscale, x, x)


def shift_hue(x: Tensor, turns: Tensor) -> Tensor:
    """Rotate the hue by a fraction of a turn, keeping saturation and value (of HSV)."""
    red, green, blue = x.float().unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    low = torch.minimum(torch.minimum(red, green), blue)
    chroma = value - low
    # In sixths of a turn, the hue is around 0 if red is the largest channel, around 2 if green is,
    # and around 4 if blue is. Values are integers, so a clamped difference selects the case, by
    # lerp because torch.where is slow on a CPU.
    around_blue = (red - green).add_(chroma, alpha=4)
    around_green = (blue - red).add_(chroma, alpha=2)
    hue = torch.lerp(around_green, around_blue, (value - green).clamp_(max=1))
    hue = torch.lerp(green - blue, hue, value.sub(red).clamp_(max=1))
    # For a grey pixel the hue does not matter: its chroma is 0.
    hue = hue.div_(chroma.clamp(min=1)).add_(6 * turns.view(-1, 1, 1))
    hue = hue.sub_((hue / 6).floor_(), alpha=6)
    shares = (hue - 3).abs_().sub_(1), 2 - (hue - 2).abs_(), 2 - (hue - 4).abs_()
    low = low + 0.5
    return to_uint8(torch.stack([share.clamp_(0, 1).mul_(chroma).add_(low) for share in shares], 1))


def _greyscale(x: Tensor) -> Tensor:
    return to_uint8(grey(x.float()))[:, None].expand_as(x)


# ---- pixels, as Pillow rounds them ----------------------------------------------------------------


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
