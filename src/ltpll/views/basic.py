"""Simple views for small images and feature vectors, and `Views`, the pair of policies that a trainer draws from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from ltpll.errors import InputError
from ltpll.interfaces import ViewKind


class ViewPolicy(Protocol):
    """A function that returns a random variant of a batch, of the same shape; all randomness comes from the generator."""

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor: ...


@dataclass(frozen=True)
class Shift:
    """Shifts images by up to `pixels` in each direction and fills the border with the smallest value of the image (its background)."""

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
    """Sets a square of `side` pixels at a random position to zero, the mean of standardised images."""

    side: int = 3

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        batch, _, height, width = x.shape
        if self.side > min(height, width):
            raise InputError(
                f"A hole of side {self.side} does not fit into images of {height} × {width}: choose a smaller side."
            )
        top = torch.randint(
            0, height - self.side + 1, (batch, 1, 1), generator=generator, device=x.device
        )
        left = torch.randint(
            0, width - self.side + 1, (batch, 1, 1), generator=generator, device=x.device
        )
        rows = torch.arange(height, device=x.device).view(1, -1, 1)
        columns = torch.arange(width, device=x.device).view(1, 1, -1)
        hole = (
            (rows >= top)
            & (rows < top + self.side)
            & (columns >= left)
            & (columns < left + self.side)
        )
        return x.masked_fill(hole[:, None], 0.0)


@dataclass(frozen=True)
class Jitter:
    """Adds noise of standard deviation `noise`, then sets values to zero with probability `dropout`; for images and feature vectors."""

    noise: float = 0.1
    dropout: float = 0.0

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        noisy = x + self.noise * torch.randn(
            x.shape, generator=generator, device=x.device, dtype=x.dtype
        )
        if not self.dropout:
            return noisy
        return noisy * (torch.rand(x.shape, generator=generator, device=x.device) >= self.dropout)


class ViewSource(Protocol):
    """Where a trainer gets its views from: `Views` for arrays of numbers, `FeatureViews` for features, `ImageViews` for 8-bit images.

    With `places`, `draw` only returns views of these rows. They are the same as if all rows were
    drawn, so that several processes can share a batch.
    """

    def draw(
        self,
        x: Tensor,
        kinds: Sequence[ViewKind],
        generator: torch.Generator,
        places: Tensor | None = None,
    ) -> tuple[Tensor, ...]: ...

    def plain(self, x: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Views:
    """A weak and a strong policy, each a sequence of functions that are applied one after the other.

    Args:
        weak: The functions that make a weak view; none leaves the batch unchanged.
        strong: The functions that make a strong view.

    Examples:
        >>> from ltpll.views import Cutout
        >>> views = Views(weak=(Shift(1),), strong=(Shift(1), Jitter(0.3), Cutout(3)))
        >>> classifier = PartialLabelClassifier("corr", views=views)
    """

    weak: Sequence[ViewPolicy] = field(default_factory=tuple)
    strong: Sequence[ViewPolicy] = field(default_factory=tuple)

    def plain(self, x: Tensor) -> Tensor:
        """The batch without augmentation, as floats; predictions use it."""
        return x.float()

    def draw(
        self,
        x: Tensor,
        kinds: Sequence[ViewKind],
        generator: torch.Generator,
        places: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Draw one view of the batch per kind.

        Args:
            x: The batch.
            kinds: The kind of each view, "weak" or "strong".
            generator: The source of randomness.
            places: The rows to return; all by default.
        """
        policies = {"weak": self.weak, "strong": self.strong}
        views = []
        for kind in kinds:
            view = self.plain(x)
            for policy in policies[kind]:
                view = policy(view, generator)
            views.append(view if places is None else view[places])
        return tuple(views)
