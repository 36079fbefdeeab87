"""Cutout: a square hole of random size and position in each image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

HOLE = (125.0, 123.0, 114.0)  # the mean colour of natural images


class Hole(NamedTuple):
    """The centre and side of the square that is cut out of each image, in pixels from the upper left corner; each field is (batch,)."""

    row: Tensor
    column: Tensor
    side: Tensor


def random_hole(batch: int, size: tuple[int, int], device: torch.device, generator: torch.Generator | None) -> Hole:
    """Squares whose side is at most half that of the image, centred anywhere in it."""
    u = torch.rand(3, batch, generator=generator, device=device)
    return Hole(u[0] * size[0], u[1] * size[1], u[2] * (min(size) / 2))


def cut_out(x: Tensor, hole: Hole) -> Tensor:
    """Fill the hole of each image: all pixels whose centre lies in the square."""
    within = [
        (torch.arange(side, device=x.device) + 0.5 - centre[:, None]).abs() < hole.side[:, None] / 2
        for side, centre in zip(x.shape[2:], (hole.row, hole.column), strict=True)
    ]
    cut = (within[0][:, :, None] & within[1][:, None, :])[:, None]
    # Products of uint8, because torch.where takes twenty times as long on a CPU.
    return x * ~cut + per_channel(HOLE, x.device).to(torch.uint8) * cut


def per_channel(values: Sequence[float], device: torch.device) -> Tensor:
    """Three numbers as a (3, 1, 1) tensor, created on the device: a CUDA graph cannot copy them from the host."""
    return torch.stack([torch.full((1, 1), value, device=device) for value in values])
