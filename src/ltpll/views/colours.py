"""Colour jitter in a random order per image, and random greyscale, as in torchvision."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ltpll.views.pixels import enhance, grey, on_rows, to_uint8

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
    first, second, third, fourth = colours.order
    early, late = (first == HUE) | (second == HUE), (third == HUE) | (fourth == HUE)
    # Hue is the most expensive operation. Two slots for it among four slots for the others are
    # enough for every order.
    x = _enhance(x, torch.where(first == HUE, NOTHING, first), colours)
    x = on_rows(early, shift_hue, x, x, colours.amount[HUE])
    x = _enhance(x, torch.where(second == HUE, third, second), colours)
    third = torch.where(third == HUE, NOTHING, third)
    x = _enhance(x, torch.where(second == HUE, fourth, third), colours)
    x = on_rows(late, shift_hue, x, x, colours.amount[HUE])
    x = _enhance(x, torch.where((second == HUE) | (fourth == HUE), NOTHING, fourth), colours)
    return on_rows(colours.grey, _greyscale, x, x)


def _enhance(x: Tensor, what: Tensor, colours: Colours) -> Tensor:
    factor = colours.amount.gather(0, what.clamp(max=SATURATION)[None])[0]
    return on_rows(what < HUE, enhance, x, x, what, factor)


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
