"""Simple views for small images and for feature vectors, and the pair of policies that a trainer draws from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from ltpll.errors import InputError
from ltpll.interfaces import ViewKind


class ViewPolicy(Protocol):
    """A random variant of a batch: (batch, ...) in, (batch, ...) out, drawn from the generator alone."""

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor: ...


@dataclass(frozen=True)
class Shift:
    """Images moved by up to `pixels` in each direction, the border filled with the image's smallest value (its background)."""

    pixels: int = 1

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        batch, _, height, width = x.shape
        draw = torch.randint(-self.pixels, self.pixels + 1, (2, batch, 1, 1), generator=generator, device=x.device)
        rows = torch.arange(height, device=x.device).view(1, -1, 1) + draw[0]
        columns = torch.arange(width, device=x.device).view(1, 1, -1) + draw[1]
        inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
        flat = (rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)).view(batch, 1, -1)
        moved = x.flatten(2).gather(2, flat.expand(-1, x.shape[1], -1)).view_as(x)
        return torch.where(inside[:, None], moved, x.amin((2, 3), keepdim=True))


@dataclass(frozen=True)
class Cutout:
    """A square of `side` pixels at a random place is set to zero, the mean of standardised images."""

    side: int = 3

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        batch, _, height, width = x.shape
        if self.side > min(height, width):
            raise InputError(f"A hole of side {self.side} does not fit into images of {height} × {width}: choose a smaller side.")
        top = torch.randint(0, height - self.side + 1, (batch, 1, 1), generator=generator, device=x.device)
        left = torch.randint(0, width - self.side + 1, (batch, 1, 1), generator=generator, device=x.device)
        rows = torch.arange(height, device=x.device).view(1, -1, 1)
        columns = torch.arange(width, device=x.device).view(1, 1, -1)
        hole = (rows >= top) & (rows < top + self.side) & (columns >= left) & (columns < left + self.side)
        return x.masked_fill(hole[:, None], 0.0)


@dataclass(frozen=True)
class Jitter:
    """Gaussian noise on every value and values dropped to zero with probability `dropout`; for images and feature vectors alike."""

    noise: float = 0.1
    dropout: float = 0.0

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        noisy = x + self.noise * torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        if not self.dropout:
            return noisy
        return noisy * (torch.rand(x.shape, generator=generator, device=x.device) >= self.dropout)


class ViewSource(Protocol):
    """Where a trainer gets its views from: `Views` for arrays of numbers, `ImageViews` for 8-bit images.

    With `places`, only views of these rows are made; they are the same as if all were, so that several processes can share a batch.
    """

    def draw(
        self, x: Tensor, kinds: Sequence[ViewKind], generator: torch.Generator, places: Tensor | None = None
    ) -> tuple[Tensor, ...]: ...

    def plain(self, x: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Views:
    """A weak and a strong policy, each a sequence of steps applied one after the other."""

    weak: Sequence[ViewPolicy] = field(default_factory=tuple)
    strong: Sequence[ViewPolicy] = field(default_factory=tuple)

    def plain(self, x: Tensor) -> Tensor:
        """What prediction sees: the batch as it is, as numbers a network takes."""
        return x.float()

    def draw(self, x: Tensor, kinds: Sequence[ViewKind], generator: torch.Generator, places: Tensor | None = None) -> tuple[Tensor, ...]:
        """One view of the batch for each kind asked for."""
        policies = {"weak": self.weak, "strong": self.strong}
        views = []
        for kind in kinds:
            view = self.plain(x)
            for policy in policies[kind]:
                view = policy(view, generator)
            views.append(view if places is None else view[places])
        return tuple(views)
