"""Weak and strong views of uint8 colour images: randomness is drawn first, then applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ltpll.errors import InputError, shown
from ltpll.interfaces import ViewKind
from ltpll.kernels.support import runs_kernels
from ltpll.views.basic import ViewSource
from ltpll.views.colours import Colours, random_colours, recolour
from ltpll.views.crops import (
    HOLE,
    CropBox,
    Hole,
    cut_out,
    padded_crop,
    per_channel,
    random_hole,
    resample,
    resized_crop,
    shift,
)
from ltpll.views.randaugment import Operations, movement, operate, random_operations

ROUNDS = 3  # random operations per strong view
MOST_PIXELS = 2**14  # the largest image that a kernel program can hold in registers
# Pixels that a CPU processes at once: few enough for its cache, or many where each call needs
# enough work.
SMALL_CHUNK, LARGE_CHUNK = 2**18, 2**22

Randomness = CropBox | Colours | Operations | Hole


class Draws(NamedTuple):
    """The randomness of one view of a batch; None for operations that the view does not use."""

    box: CropBox
    colours: Colours | None = None
    operations: Operations | None = None
    hole: Hole | None = None


@dataclass(frozen=True)
class Recipe:
    """The ingredients of a view policy; a strong view adds random operations and a hole."""

    box: Callable[[int, tuple[int, int], torch.device, torch.Generator | None], CropBox]
    cut: Callable[[Tensor, CropBox], Tensor]
    recolours: bool  # whether the weak view has colour jitter
    flips: bool = True


VIEW_POLICIES = {
    "paper": Recipe(resized_crop, resample, recolours=True),
    "flip-crop": Recipe(padded_crop, shift, recolours=False),
    # For digits, text and signs, which must not be mirrored.
    "crop": Recipe(padded_crop, shift, recolours=False, flips=False),
    # Larger crops than the paper's, which are for training from scratch, and true colours, which a
    # pretrained network expects.
    "photo": Recipe(partial(resized_crop, scale=(0.35, 1.0)), resample, recolours=False),
}


@dataclass(frozen=True)
class ImageViews(ViewSource):
    """Normalised float views of (batch, 3, rows, columns) uint8 images, random for each image.

    On a GPU, drawing never synchronises with the host, so it can be captured in a CUDA graph.

    Args:
        policy: "paper" (resized crops, colour jitter in the weak view), "flip-crop" (shifted by up
            to an eighth and mirrored), "crop" (shifted only) or "photo" (resized crops of at least
            35 % of the picture, mirrored). In all of them the strong view adds RandAugment and
            cutout.
        mean: The mean of each channel of the data set, with values from 0 to 1.
        std: The standard deviation of each channel.
        dtype: The type of the views.
        channels_last: Whether the views have the channels-last memory format, in which networks are
            faster.

    Examples:
        >>> images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
        >>> views = ImageViews("flip-crop", mean=(0.49, 0.48, 0.45), std=(0.25, 0.24, 0.26))
        >>> weak, strong = views.draw(images, ("weak", "strong"), torch.Generator().manual_seed(0))
        >>> strong.shape
        torch.Size([2, 3, 32, 32])
    """

    policy: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    dtype: torch.dtype = torch.float32
    channels_last: bool = False

    def __post_init__(self) -> None:
        if self.policy not in VIEW_POLICIES:
            raise InputError(
                f"There is no view policy {shown(self.policy)}; "
                f"the policies are {', '.join(sorted(VIEW_POLICIES))}."
            )
        if (len(self.mean), len(self.std)) != (3, 3) or min(self.std) <= 0:
            raise InputError(
                "Colour images need three means and three positive deviations, "
                f"not {self.mean} and {self.std}."
            )

    def draw(
        self,
        x: Tensor,
        kinds: Sequence[ViewKind],
        generator: torch.Generator | None,
        places: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Draw one view of the batch per kind, as `ViewSource.draw` does."""
        _check(x)
        size = (x.shape[2], x.shape[3])
        draws = [self.parameters(kind, len(x), size, x.device, generator) for kind in kinds]
        if places is not None:
            x = x[places]
            draws = [Draws._make(_select(part, places) for part in draw) for draw in draws]
        return tuple(self.apply(x, draw) for draw in draws)

    def plain(self, x: Tensor) -> Tensor:
        """The images without augmentation, normalised; predictions use them."""
        _check(x)
        return self._normalise(x)

    def parameters(
        self,
        kind: ViewKind,
        batch: int,
        size: tuple[int, int],
        device: torch.device,
        generator: torch.Generator | None,
    ) -> Draws:
        """Draw the randomness of one view."""
        policy = VIEW_POLICIES[self.policy]
        box = policy.box(batch, size, device, generator)
        if not policy.flips:
            box = box._replace(flip=torch.zeros_like(box.flip))
        if kind == "weak":
            recolours = policy.recolours
            return Draws(box, random_colours(batch, device, generator) if recolours else None)
        operations = random_operations(ROUNDS, batch, device, generator)
        return Draws(box, None, operations, random_hole(batch, size, device, generator))

    def apply(self, x: Tensor, draws: Draws) -> Tensor:
        """The view with the given randomness, a pure function of each image."""
        if runs_kernels(x) and x[0, 0].numel() <= MOST_PIXELS:
            return self._apply_kernels(x, draws)
        x = _in_chunks(SMALL_CHUNK, self._cut_and_recolour, x, draws.box, draws.colours)
        if draws.operations is not None:
            # Many images at once, because each operation applies to only some of them.
            x = _in_chunks(LARGE_CHUNK, operate, x, draws.operations)
        return _in_chunks(SMALL_CHUNK, self._cut_out_and_normalise, x, draws.hole)

    def _cut_and_recolour(self, x: Tensor, box: CropBox, colours: Colours | None) -> Tensor:
        # Under autocast the products would be bfloat16, which is too coarse for 256 levels.
        with torch.autocast(x.device.type, enabled=False):
            x = VIEW_POLICIES[self.policy].cut(x, box)
        return x if colours is None else recolour(x, colours)

    def _cut_out_and_normalise(self, x: Tensor, hole: Hole | None) -> Tensor:
        return self._normalise(x if hole is None else cut_out(x, hole))

    def _apply_kernels(self, x: Tensor, draws: Draws) -> Tensor:
        """The same with the kernels for a GPU."""
        from ltpll.kernels import view_kernels as kernels

        resamples = VIEW_POLICIES[self.policy].cut is resample
        x = (kernels.resample_on_gpu if resamples else kernels.shift_on_gpu)(x, draws.box)
        if draws.colours is not None:
            x = kernels.recolour_on_gpu(x, draws.colours)
        if draws.operations is not None:
            matrices = movement(*draws.operations, *x.shape[2:])
            x = kernels.operate_on_gpu(x, draws.operations, matrices)
        scale, offset = self._scale_and_offset()
        return kernels.cut_out_and_normalise_on_gpu(
            x, draws.hole, HOLE, scale, offset, self.dtype, self._layout
        )

    def _normalise(self, x: Tensor) -> Tensor:
        scale, offset = (per_channel(numbers, x.device) for numbers in self._scale_and_offset())
        x = x.contiguous(memory_format=self._layout).float()
        return x.mul_(scale).add_(offset).to(self.dtype)

    def _scale_and_offset(self) -> tuple[list[float], list[float]]:
        """The factor and the offset that normalise the levels of each channel."""
        offset = [-mean / std for mean, std in zip(self.mean, self.std, strict=True)]
        return [1 / (255 * std) for std in self.std], offset

    @property
    def _layout(self) -> torch.memory_format:
        return torch.channels_last if self.channels_last else torch.contiguous_format


def _check(x: Tensor) -> None:
    if x.dtype != torch.uint8 or x.ndim != 4 or x.shape[1] != 3:
        raise InputError(
            "Image views need uint8 images of shape (batch, 3, rows, columns), "
            f"not {x.dtype} of shape {tuple(x.shape)}."
        )


def _in_chunks(
    pixels: int, function: Callable[..., Tensor], x: Tensor, *draws: Randomness | None
) -> Tensor:
    """Apply a function to images and draws, on a CPU in chunks of about `pixels` pixels."""
    size = max(1, pixels // (x.shape[2] * x.shape[3]))
    if x.device.type != "cpu" or len(x) <= size or torch.compiler.is_compiling():
        return function(x, *draws)
    chunks = [slice(start, start + size) for start in range(0, len(x), size)]
    views = [function(x[chunk], *(_select(draw, chunk) for draw in draws)) for chunk in chunks]
    return torch.cat(views)


def _select(draw: Randomness | None, images: slice | Tensor) -> Randomness | None:
    """The draws of some images; the last dimension of every tensor is the batch."""
    return None if draw is None else type(draw)(*(each[..., images] for each in draw))
