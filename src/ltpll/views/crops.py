"""Random crops of a batch, mirrored and resized to the size of the image, and cutout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

HOLE = (125.0, 123.0, 114.0)  # the mean colour of natural images
TRIES = 10  # boxes to try before falling back to the largest central one, as in torchvision


class CropBox(NamedTuple):
    """The part of each image that a view shows, in whole pixels, and whether it is mirrored."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor


def resized_crop(
    batch: int,
    size: tuple[int, int],
    device: torch.device,
    generator: torch.Generator | None,
    scale: tuple[float, float] = (0.2, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> CropBox:
    """Boxes of random area and log-uniform aspect ratio, as in torchvision's RandomResizedCrop."""
    rows, columns = size
    u = torch.rand(2 * TRIES + 3, batch, generator=generator, device=device)
    area = rows * columns * (scale[0] + (scale[1] - scale[0]) * u[:TRIES])
    shape = torch.exp(math.log(ratio[0]) + math.log(ratio[1] / ratio[0]) * u[TRIES : 2 * TRIES])
    widths, heights = (area * shape).sqrt().round(), (area / shape).sqrt().round()
    fits = (widths >= 1) & (widths <= columns) & (heights >= 1) & (heights <= rows)
    # argmax finds the first box that fits; if none does, it finds box 0, which is replaced below.
    first = fits.to(torch.uint8).argmax(0, keepdim=True)
    central = (min(rows, round(columns / ratio[0])), min(columns, round(rows * ratio[1])))
    height, width = (
        torch.where(fits.any(0), tries.gather(0, first)[0], largest)
        for tries, largest in zip((heights, widths), central, strict=True)
    )
    starts = []
    for draw, free in ((u[-3], rows - height), (u[-2], columns - width)):
        # Rounding can lift a draw just below one to the number of positions, hence the minimum.
        start = torch.minimum((draw * (free + 1)).floor(), free)
        starts.append(torch.where(fits.any(0), start, (free / 2).floor()))
    top, left = starts
    return CropBox(top, left, height, width, u[-1] < 0.5)


def padded_crop(
    batch: int, size: tuple[int, int], device: torch.device, generator: torch.Generator | None
) -> CropBox:
    """Boxes of the size of the image, shifted by up to an eighth of it in each direction."""
    u = torch.rand(3, batch, generator=generator, device=device)
    top, left = (
        torch.clamp((draw * (2 * pad + 1)).floor() - pad, max=pad)
        for draw, pad in zip(u, (size[0] // 8, size[1] // 8), strict=False)
    )
    height, width = (torch.full_like(top, side) for side in size)
    return CropBox(top, left, height, width, u[2] < 0.5)


def shift(x: Tensor, box: CropBox) -> Tensor:
    """Crop boxes of the size of the images, uint8; black outside of the image."""
    rows, columns = x.shape[2:]
    row, column = torch.arange(rows, device=x.device), torch.arange(columns, device=x.device)
    column = torch.where(box.flip[:, None], columns - 1 - column, column)
    from_row, from_column = (box.top[:, None] + row).long(), (box.left[:, None] + column).long()
    return pixels_at(x, from_row[:, :, None], from_column[:, None])


def pixels_at(x: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """The pixels of images at these rows and columns, which are overwritten; black outside.

    Rows and columns broadcast to (batch, rows, columns).
    """
    batch, channels, rows, columns = x.shape
    # A border of black pixels represents everything outside.
    source = row.clamp_(-1, rows).mul_(columns + 2) + column.clamp_(-1, columns)
    source = source.add_(columns + 3).long().view(batch, 1, -1)
    bordered = F.pad(x, (1, 1, 1, 1)).flatten(2)
    return bordered.gather(2, source.expand(-1, channels, -1)).view(x.shape)


def resample(x: Tensor, box: CropBox) -> Tensor:
    """Crop boxes, and enlarge them bilinearly to the size of the images by two matrix products.

    The result equals Pillow's crop and resize, which also rounds between the two directions. Boxes
    larger than the image, which would need a wider filter, do not occur.
    """
    batch, channels, rows, columns = x.shape
    # With rows before channels, one product of (rows, rows) and (rows, channels * columns) covers
    # all channels.
    pixels = x.permute(0, 2, 1, 3).to(torch.float32, memory_format=torch.contiguous_format)
    pixels = pixels.view(batch, rows * channels, columns)
    across = _weights(box.left, box.width, columns, box.flip)
    wide = torch.bmm(pixels, across).add_(0.5).floor_()
    down = _weights(box.top, box.height, rows).transpose(1, 2)
    out = torch.bmm(down, wide.view(batch, rows, channels * columns)).add_(0.5)
    # Via int16, because a CPU converts float to uint8 much more slowly.
    out = out.view(batch, rows, channels, columns).permute(0, 2, 1, 3)
    return out.to(torch.int16, memory_format=torch.contiguous_format).to(torch.uint8)


def _weights(start: Tensor, length: Tensor, side: int, flip: Tensor | None = None) -> Tensor:
    """The weight of each pixel in each pixel of the view, along one side: (batch, image, view)."""
    middle = torch.arange(side, device=start.device) + 0.5
    place = middle if flip is None else torch.where(flip[:, None], side - middle, middle)
    # Within half a pixel of the edge the edge pixel is used, so that nothing outside the box is
    # visible.
    centre = torch.clamp(place * length[:, None] / side, min=0.5)
    centre = start[:, None] + torch.minimum(centre, length[:, None] - 0.5)
    return (centre[:, None, :] - middle[:, None]).abs_().neg_().add_(1).clamp_(min=0)


# ---- cutout --------------------------------------------------------------------------------------


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
    inside = []
    for length, first in zip(x.shape[2:], (hole.top, hole.left), strict=True):
        offset = torch.arange(length, device=x.device) - first[:, None]
        inside.append((offset >= 0) & (offset <= hole.side[:, None]))
    cut = (inside[0][:, :, None] & inside[1][:, None])[:, None]
    # Products of uint8, because torch.where takes twenty times as long on a CPU.
    return x * ~cut + per_channel(HOLE, x.device).to(torch.uint8) * cut


def per_channel(values: Sequence[float], device: torch.device) -> Tensor:
    """Numbers as a (3, 1, 1) tensor, made on the device: a CUDA graph cannot copy from the host."""
    return torch.stack([torch.full((1, 1), value, device=device) for value in values])
