"""Cutout: a square hole of random size and position in each image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

HOLE = (125.0, 123.0, 114.0)  # the mean colour of natural images


class Hole(NamedTuple):
    """The first row and column of each image's square, and the distance to its last ones."""

    top: Tensor
    left: Tensor
    side: Tensor


def random_hole(
    batch: int, size: tuple[int, int], device: torch.device, generator: torch.Generator | None
) -> Hole:
    """Squares around a centre anywhere in the image, with a side of at most half the image's.

    A square that would begin outside of the image is moved into it, not clipped, as in the code of
    the RECORDS paper.
    """
    u = torch.rand(3, batch, generator=generator, device=device)
    side = u[2] * (min(size) / 2)
    top, left = ((u[k] * size[k] - side / 2).clamp_(min=0).floor_() for k in range(2))
    return Hole(top, left, side)


def cut_out(x: Tensor, hole: Hole) -> Tensor:
    """Fill the hole of each image, through its last row and column, as Pillow does."""
    within = []
    for length, first in zip(x.shape[2:], (hole.top, hole.left), strict=True):
        offset = torch.arange(length, device=x.device) - first[:, None]
        within.append((offset >= 0) & (offset <= hole.side[:, None]))
    cut = (within[0][:, :, None] & within[1][:, None, :])[:, None]
    # Products of uint8, because torch.where takes twenty times as long on a CPU.
    return x * ~cut + per_channel(HOLE, x.device).to(torch.uint8) * cut


def per_channel(values: Sequence[float], device: torch.device) -> Tensor:
    """Numbers as a (3, 1, 1) tensor, made on the device: a CUDA graph cannot copy from the host."""
    return torch.stack([torch.full((1, 1), value, device=device) for value in values])
