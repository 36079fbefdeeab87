"""Colour jitter in a random order per image and random grey images, on (batch, 3, rows, columns) uint8, as torchvision does them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ltpll.views.randaugment import enhance, grey, on_rows, to_uint8

BRIGHTNESS, CONTRAST, SATURATION, HUE, NOTHING = range(5)


class Colours(NamedTuple):
    """What is done to the colours of each image."""

    order: Tensor  # (4, batch): what comes first, second, ...; NOTHING for images that are left as they are
    amount: Tensor  # (4, batch): the factors of brightness, contrast and saturation, and the shift of hue in turns
    grey: Tensor  # (batch,): whether the colours are taken away at the end


def random_colours(
    batch: int,
    device: torch.device,
    generator: torch.Generator | None,
    strength: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1),
    jitter_rate: float = 0.8,
    grey_rate: float = 0.2,
) -> Colours:
    """Factors within `strength` of one and a shift within it of zero, uniform, in an order of its own for each image."""
    u = torch.rand(10, batch, generator=generator, device=device)
    order = torch.where(u[8] < jitter_rate, u[:4].argsort(0), NOTHING)
    amount = torch.stack([(2 * u[4 + k] - 1) * strength[k] + (k != HUE) for k in range(4)])
    return Colours(order, amount, u[9] < grey_rate)


def recolour(x: Tensor, colours: Colours) -> Tensor:
    """The images in their new colours."""
    first, second, third, fourth = colours.order
    early, late = (first == HUE) | (second == HUE), (third == HUE) | (fourth == HUE)
    # Hue costs the most. With two chances for it among four for the other steps, every order can be followed by leaving out some.
    x = _enhance(x, torch.where(first == HUE, NOTHING, first), colours)
    x = on_rows(early, shift_hue, x, x, colours.amount[HUE])
    x = _enhance(x, torch.where(second == HUE, third, second), colours)
    x = _enhance(x, torch.where(second == HUE, fourth, torch.where(third == HUE, NOTHING, third)), colours)
    x = on_rows(late, shift_hue, x, x, colours.amount[HUE])
    x = _enhance(x, torch.where((second == HUE) | (fourth == HUE), NOTHING, fourth), colours)
    return on_rows(colours.grey, _without_colour, x, x)


def _enhance(x: Tensor, what: Tensor, colours: Colours) -> Tensor:
    factor = colours.amount.gather(0, what.clamp(max=SATURATION)[None])[0]
    return on_rows(what < HUE, enhance, x, x, what, factor)


def shift_hue(x: Tensor, turns: Tensor) -> Tensor:
    """Hue moved around the colour circle by a share of a turn, with saturation and value (of HSV) kept."""
    red, green, blue = x.float().unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    low = torch.minimum(torch.minimum(red, green), blue)
    chroma = value - low
    # Where red is the largest, hue lies around 0 sixths of a turn, else where green is, around 2, else around 4. Values are whole numbers,
    # so that a clamped difference says which it is, and a linear interpolation chooses (a CPU is slow at choosing elementwise).
    around_blue, around_green = (red - green).add_(chroma, alpha=4), (blue - red).add_(chroma, alpha=2)
    hue = torch.lerp(around_green, around_blue, (value - green).clamp_(max=1))
    hue = torch.lerp(green - blue, hue, value.sub(red).clamp_(max=1))
    hue = hue.div_(chroma.clamp(min=1)).add_(6 * turns.view(-1, 1, 1))  # a grey pixel has no hue, and no chroma to multiply it with
    hue = hue.sub_((hue / 6).floor_(), alpha=6)
    shares = (hue - 3).abs_().sub_(1), 2 - (hue - 2).abs_(), 2 - (hue - 4).abs_()
    low = low + 0.5
    return to_uint8(torch.stack([share.clamp_(0, 1).mul_(chroma).add_(low) for share in shares], 1))


def _without_colour(x: Tensor) -> Tensor:
    return to_uint8(grey(x.float()))[:, None].expand_as(x)
