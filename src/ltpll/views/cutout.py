"""Cutout: a square hole of a random size and place in each image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

HOLE = (125.0, 123.0, 114.0)  # the mean colour of natural images


class Hole(NamedTuple):
    """A square that is cut out of each image, in pixels from the upper left corner; each (batch,)."""

    row: Tensor
    column: Tensor
    side: Tensor


def random_hole(batch: int, size: tuple[int, int], device: torch.device, generator: torch.Generator | None) -> Hole:
    """Squares with a side of up to half the image's and a centre anywhere in it."""
    u = torch.rand(3, batch, generator=generator, device=device)
    return Hole(u[0] * size[0], u[1] * size[1], u[2] * (min(size) / 2))


def cut_out(x: Tensor, hole: Hole) -> Tensor:
    """The images with their holes filled, as far as these lie inside: pixels whose middle is in the square."""
    within = [
        (torch.arange(side, device=x.device) + 0.5 - centre[:, None]).abs() < hole.side[:, None] / 2
        for side, centre in zip(x.shape[2:], (hole.row, hole.column), strict=True)
    ]
    cut = (within[0][:, :, None] & within[1][:, None, :])[:, None]
    # Products of uint8, since choosing elementwise takes a CPU twenty times as long.
    return x * ~cut + per_channel(HOLE, x.device).to(torch.uint8) * cut


def per_channel(values: Sequence[float], device: torch.device) -> Tensor:
    """Three numbers as (3, 1, 1), filled in on the device: copying them from the host would not do in a CUDA graph."""
    return torch.stack([torch.full((1, 1), value, device=device) for value in values])
