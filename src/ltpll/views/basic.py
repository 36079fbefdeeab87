"""Simple views for small images and feature vectors, and `Views`, a pair of policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ltpll.errors import InputError
from ltpll.interfaces import ViewKind
from ltpll.views.crops import squares

ViewPolicy = Callable[[Tensor, torch.Generator], Tensor]
"""Returns a random variant of a batch, of the same shape; only the generator is random."""


@dataclass(frozen=True)
class Shift:
    """Shifts images by up to `pixels` each way; the border gets the smallest value of the image."""

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
    """Sets a random square of `side` pixels to zero, the mean of standardised images."""

    side: int = 3

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        batch, _, height, width = x.shape
        if self.side > min(height, width):
            raise InputError(
                f"A hole of side {self.side} does not fit into images of {height} × {width}: "
                "choose a smaller side."
            )
        drawn: dict[str, Any] = {"generator": generator, "device": x.device}
        top, left = (
            torch.randint(0, length - self.side + 1, (batch, 1), **drawn)
            for length in (height, width)
        )
        return x.masked_fill(squares((height, width), top, left, self.side - 1), 0.0)


@dataclass(frozen=True)
class Jitter:
    """Adds noise of deviation `noise`, and sets values to zero with probability `dropout`."""

    noise: float = 0.1
    dropout: float = 0.0

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        drawn: dict[str, Any] = {"generator": generator, "device": x.device}
        noisy: Tensor = x + self.noise * torch.randn(x.shape, **drawn, dtype=x.dtype)
        return noisy * (torch.rand(x.shape, **drawn) >= self.dropout) if self.dropout else noisy


class ViewSource:
    """Where a trainer gets its views from: `Views`, `FeatureViews` or `ImageViews`."""

    def plain(self, x: Tensor) -> Tensor:
        """The batch without augmentation, as floats; predictions use it."""
        return x.float()

    def one_view(self, plain: Tensor, kind: ViewKind, generator: torch.Generator) -> Tensor:
        """A view of this kind of a batch that `plain` has returned, which is not changed."""
        raise NotImplementedError

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
            places: The rows to return; all by default. Their views are the same as if all rows were
                drawn, so that several processes can share a batch.
        """
        plain = self.plain(x)
        views = [self.one_view(plain, kind, generator) for kind in kinds]
        return tuple(view if places is None else view[places] for view in views)


@dataclass(frozen=True)
class Views(ViewSource):
    """A weak and a strong policy, each a sequence of functions.

    Args:
        weak: The functions that make a weak view; none leaves the batch unchanged.
        strong: The functions that make a strong view.

    Examples:
        >>> from ltpll.views import Cutout
        >>> views = Views(weak=(Shift(1),), strong=(Shift(1), Jitter(0.3), Cutout(3)))
        >>> classifier = PartialLabelClassifier("corr", views=views)
    """

    weak: Sequence[ViewPolicy] = ()
    strong: Sequence[ViewPolicy] = ()

    def one_view(self, plain: Tensor, kind: ViewKind, generator: torch.Generator) -> Tensor:
        """The batch after the functions of its kind."""
        for policy in self.weak if kind == "weak" else self.strong:
            plain = policy(plain, generator)
        return plain
