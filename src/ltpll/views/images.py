"""Weak and strong views of uint8 colour images: all randomness is drawn first, in small tensors, then one pure function applies it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ltpll.contract import ViewKind
from ltpll.errors import InputError
from ltpll.gpu import runs_kernels
from ltpll.views.colours import Colours, random_colours, recolour
from ltpll.views.holes import Hole, cut_out, per_channel, random_hole
from ltpll.views.operations import Operations, operate, random_operations
from ltpll.views.resize import Box, padded_crop, resample, resized_crop, shift

ROUNDS = 3  # random operations of a strong view
MOST_PIXELS = 2**14  # of an image that a kernel holds in the registers of one program
CHUNK_PIXELS = 2**19  # pixels that a CPU works on at once: few enough for its cache, and enough that calls of torch cost little


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
        out = torch.empty(x.shape, dtype=self.dtype, memory_format=self._layout)
        for start in range(0, len(x), chunk):
            part = slice(start, start + chunk)
            out[part] = self._apply(x[part], _part(draws, part))
        return out

    def _apply(self, x: Tensor, draws: Draws) -> Tensor:
        if runs_kernels(x) and x[0, 0].numel() <= MOST_PIXELS:
            return self._apply_kernels(x, draws)
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


def _part(draws: Draws, part: slice) -> Draws:
    """The draws of some images of the batch, which is the last dimension of every tensor."""
    box, colours, operations, hole = draws
    return Draws(
        Box(*(each[part] for each in box)),
        None if colours is None else Colours(*(each[..., part] for each in colours)),
        None if operations is None else Operations(*(each[..., part] for each in operations)),
        None if hole is None else Hole(*(each[part] for each in hole)),
    )
