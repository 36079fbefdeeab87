"""Weak and strong views of uint8 colour images: all randomness is drawn first, in small tensors, then one pure function applies it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ltpll.errors import InputError, shown
from ltpll.interfaces import ViewKind
from ltpll.triton_support import runs_kernels
from ltpll.views.colours import Colours, random_colours, recolour
from ltpll.views.crops import Box, padded_crop, resample, resized_crop, shift
from ltpll.views.cutout import Hole, cut_out, per_channel, random_hole
from ltpll.views.randaugment import Operations, operate, random_operations

ROUNDS = 3  # random operations of a strong view
MOST_PIXELS = 2**14  # of an image that a kernel holds in the registers of one program
# Pixels that a CPU works on at once: few enough for its cache, or many where that makes enough work for each call of torch.
FEW_PIXELS, MANY_PIXELS = 2**18, 2**22


Drawn = Box | Colours | Operations | Hole


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
    flips: bool = True


VIEW_POLICIES = {
    "paper": Recipe(resized_crop, resample, recolours=True),
    "flip-crop": Recipe(padded_crop, shift, recolours=False),
    "crop": Recipe(padded_crop, shift, recolours=False, flips=False),  # for what is not the same in a mirror: digits, text, signs
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
            raise InputError(f"There is no view policy {shown(self.policy)}; the policies are {', '.join(sorted(VIEW_POLICIES))}.")
        if len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
            raise InputError(f"Colour images need three means and three positive deviations, not {self.mean} and {self.std}.")

    def draw(
        self, x: Tensor, kinds: Sequence[ViewKind], generator: torch.Generator | None, places: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """One view of the batch for each kind asked for; with `places`, only of these images, and the same as among all."""
        _check(x)
        size = (x.shape[2], x.shape[3])
        draws = [self.parameters(kind, len(x), size, x.device, generator) for kind in kinds]
        if places is not None:
            x = x[places]
            draws = [Draws._make(_part(draw, places) for draw in each) for each in draws]
        return tuple(self.apply(x, each) for each in draws)

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
        if not policy.flips:
            box = box._replace(flip=torch.zeros_like(box.flip))
        if kind == "weak":
            return Draws(box, random_colours(batch, device, generator) if policy.recolours else None, None, None)
        return Draws(box, None, random_operations(ROUNDS, batch, device, generator), random_hole(batch, size, device, generator))

    def apply(self, x: Tensor, draws: Draws) -> Tensor:
        """The view with the given randomness; a pure function, each image's own."""
        _check(x)
        if runs_kernels(x) and x[0, 0].numel() <= MOST_PIXELS:
            return self._apply_kernels(x, draws)
        x = _in_parts(FEW_PIXELS, self._cut_and_recolour, x, draws.box, draws.colours)
        if draws.operations is not None:
            # Many images at once, since only some of them get each operation.
            x = _in_parts(MANY_PIXELS, operate, x, draws.operations)
        return _in_parts(FEW_PIXELS, self._finish, x, draws.hole)

    def _cut_and_recolour(self, x: Tensor, box: Box, colours: Colours | None) -> Tensor:
        # Autocast would multiply in bfloat16, which is too coarse for 256 levels.
        with torch.autocast(x.device.type, enabled=False):
            x = VIEW_POLICIES[self.policy].cut(x, box)
        return x if colours is None else recolour(x, colours)

    def _finish(self, x: Tensor, hole: Hole | None) -> Tensor:
        return self._normalise(x if hole is None else cut_out(x, hole))

    def _apply_kernels(self, x: Tensor, draws: Draws) -> Tensor:
        """The same on a GPU."""
        from ltpll.views import kernels

        cut = kernels.resample if VIEW_POLICIES[self.policy].cut is resample else kernels.shift
        x = cut(x, draws.box)
        if draws.colours is not None:
            x = kernels.recolour(x, draws.colours)
        if draws.operations is not None:
            x = kernels.operate(x, draws.operations)
        scale, offset = self._line()
        return kernels.finish(x, draws.hole, scale, offset, self.dtype, self._layout)

    def _normalise(self, x: Tensor) -> Tensor:
        scale, offset = (per_channel(numbers, x.device) for numbers in self._line())
        return x.contiguous(memory_format=self._layout).float().mul_(scale).add_(offset).to(self.dtype)

    def _line(self) -> tuple[list[float], list[float]]:
        """What a level of each channel is multiplied with, and what is added."""
        return [1 / (255 * std) for std in self.std], [-mean / std for mean, std in zip(self.mean, self.std, strict=True)]

    @property
    def _layout(self) -> torch.memory_format:
        return torch.channels_last if self.channels_last else torch.contiguous_format


def _check(x: Tensor) -> None:
    if x.dtype != torch.uint8 or x.ndim != 4 or x.shape[1] != 3:
        raise InputError(f"Image views need uint8 images of shape (batch, 3, rows, columns), not {x.dtype} of shape {tuple(x.shape)}.")


def _in_parts(pixels: int, function: Callable[..., Tensor], x: Tensor, *draws: Drawn | None) -> Tensor:
    """The function of images and draws; on a CPU of as many images at once as have so many pixels."""
    size = max(1, pixels // (x.shape[2] * x.shape[3]))
    if x.device.type != "cpu" or len(x) <= size or torch.compiler.is_compiling():
        return function(x, *draws)
    parts = [slice(start, start + size) for start in range(0, len(x), size)]
    return torch.cat([function(x[part], *(_part(draw, part) for draw in draws)) for part in parts])


def _part(draw: Drawn | None, part: slice | Tensor) -> Drawn | None:
    """The draws of some images of the batch, which is the last dimension of every tensor."""
    return None if draw is None else type(draw)(*(each[..., part] for each in draw))
