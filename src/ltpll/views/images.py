"""Weak and strong views of uint8 colour images: all randomness is drawn first, in small tensors, then one pure function applies it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ltpll.contract import ViewKind
from ltpll.errors import InputError
from ltpll.views.colours import Colours, random_colours, recolour
from ltpll.views.operations import Operations, operate, random_operations
from ltpll.views.resize import Box, padded_crop, resample, resized_crop, shift

ROUNDS = 3  # random operations of a strong view
HOLE = (125.0, 123.0, 114.0)  # the mean colour of natural images
CHUNK_PIXELS = 2**19  # pixels that a CPU works on at once: few enough for its cache, and enough that calls of torch cost little


class Hole(NamedTuple):
    """A square that is cut out of each image, in pixels from the upper left corner; each (batch,)."""

    row: Tensor
    column: Tensor
    side: Tensor


class Draws(NamedTuple):
    """All that is random about one view of a batch; a part that the view does without is None."""

    box: Box
    colours: Colours | None
    operations: Operations | None
    hole: Hole | None


@dataclass(frozen=True)
class Recipe:
    """What the views of a policy are made of; a strong view is the box cut out, the random operations and a hole."""

    box: Callable[[int, tuple[int, int], torch.device, torch.Generator | None], Box]
    cut: Callable[[Tensor, Box], Tensor]
    recolours: bool  # whether the weak view changes colours


VIEW_POLICIES = {
    "paper": Recipe(resized_crop, resample, recolours=True),
    "flip-crop": Recipe(padded_crop, shift, recolours=False),
}


@dataclass(frozen=True)
class ImageViews:
    """Views of (batch, 3, rows, columns) uint8 images, one draw per image, as normalised floats.

    `mean` and `std` are those of the data set with values from 0 to 1. On a GPU nothing waits for the host, so that drawing can be compiled
    and captured in a CUDA graph.
    """

    policy: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    dtype: torch.dtype = torch.float32
    channels_last: bool = False

    def __post_init__(self) -> None:
        if self.policy not in VIEW_POLICIES:
            raise InputError(f"There is no view policy {self.policy!r}; the policies are {', '.join(sorted(VIEW_POLICIES))}.")
        if len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
            raise InputError(f"Colour images need three means and three positive deviations, not {self.mean} and {self.std}.")

    def draw(self, x: Tensor, kinds: Sequence[ViewKind], generator: torch.Generator | None) -> tuple[Tensor, ...]:
        """One view of the batch for each kind asked for."""
        _check(x)
        size = (x.shape[2], x.shape[3])
        return tuple(self.apply(x, self.parameters(kind, len(x), size, x.device, generator)) for kind in kinds)

    def plain(self, x: Tensor) -> Tensor:
        """The images as they are, normalised."""
        _check(x)
        return self._normalise(x)

    def parameters(
        self, kind: ViewKind, batch: int, size: tuple[int, int], device: torch.device, generator: torch.Generator | None
    ) -> Draws:
        """The randomness of one view."""
        policy = VIEW_POLICIES[self.policy]
        box = policy.box(batch, size, device, generator)
        if kind == "weak":
            return Draws(box, random_colours(batch, device, generator) if policy.recolours else None, None, None)
        return Draws(box, None, random_operations(ROUNDS, batch, device, generator), random_hole(batch, size, device, generator))

    def apply(self, x: Tensor, draws: Draws) -> Tensor:
        """The view with the given randomness; a pure function, each image's own."""
        _check(x)
        chunk = max(1, CHUNK_PIXELS // (x.shape[2] * x.shape[3]))
        if x.device.type != "cpu" or len(x) <= chunk or torch.compiler.is_compiling():
            return self._apply(x, draws)
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        out = torch.empty(x.shape, dtype=self.dtype, memory_format=layout)
        for start in range(0, len(x), chunk):
            part = slice(start, start + chunk)
            out[part] = self._apply(x[part], _part(draws, part))
        return out

    def _apply(self, x: Tensor, draws: Draws) -> Tensor:
        # Autocast would multiply in bfloat16, which is too coarse for 256 levels.
        with torch.autocast(x.device.type, enabled=False):
            x = VIEW_POLICIES[self.policy].cut(x, draws.box)
        if draws.colours is not None:
            x = recolour(x, draws.colours)
        if draws.operations is not None:
            x = operate(x, draws.operations)
        if draws.hole is not None:
            x = cut_out(x, draws.hole)
        return self._normalise(x)

    def _normalise(self, x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last if self.channels_last else torch.contiguous_format)
        scale = per_channel([1 / (255 * std) for std in self.std], x.device)
        shift = per_channel([-mean / std for mean, std in zip(self.mean, self.std, strict=True)], x.device)
        return x.float().mul_(scale).add_(shift).to(self.dtype)


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


def _check(x: Tensor) -> None:
    if x.dtype != torch.uint8 or x.ndim != 4 or x.shape[1] != 3:
        raise InputError(f"Image views need uint8 images of shape (batch, 3, rows, columns), not {x.dtype} of shape {tuple(x.shape)}.")


def _part(draws: Draws, part: slice) -> Draws:
    """The draws of some images of the batch, which is the last dimension of every tensor."""
    box, colours, operations, hole = draws
    return Draws(
        Box(*(each[part] for each in box)),
        None if colours is None else Colours(*(each[..., part] for each in colours)),
        None if operations is None else Operations(*(each[..., part] for each in operations)),
        None if hole is None else Hole(*(each[part] for each in hole)),
    )
