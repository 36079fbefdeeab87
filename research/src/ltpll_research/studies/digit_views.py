"""Views of the digits: small shifts, and square holes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ltpll.errors import InputError


@dataclass(frozen=True)
class Shift:
    """Shifts images by up to `pixels` each way; the border gets the smallest value of the image."""

    pixels: int = 1

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        batch, _, height, width = x.shape
        draw = torch.randint(
            -self.pixels, self.pixels + 1, (2, batch, 1, 1), generator=generator, device=x.device
        )
        rows = torch.arange(height, device=x.device).view(1, -1, 1) + draw[0]
        columns = torch.arange(width, device=x.device).view(1, 1, -1) + draw[1]
        inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
        flat = (rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)).view(batch, 1, -1)
        moved = x.flatten(2).gather(2, flat.expand(-1, x.shape[1], -1)).view_as(x)
        return torch.where(inside[:, None], moved, x.amin((2, 3), keepdim=True))


@dataclass(frozen=True)
class Cutout:
    """Sets a random square of `side` pixels to zero, the mean of standardised images."""

    side: int = 3

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        batch, _, height, width = x.shape
        if self.side > min(height, width):
            raise InputError(
                f"A hole of side {self.side} does not fit into images of {height} × {width}: "
                "choose a smaller side."
            )
        drawn: dict[str, Any] = {"generator": generator, "device": x.device}
        top, left = (
            torch.randint(0, length - self.side + 1, (batch, 1), **drawn)
            for length in (height, width)
        )
        row = torch.arange(height, device=x.device) - top
        column = torch.arange(width, device=x.device) - left
        rows, columns = (row >= 0) & (row < self.side), (column >= 0) & (column < self.side)
        return x.masked_fill((rows[:, :, None] & columns[:, None])[:, None], 0.0)
