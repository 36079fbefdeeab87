"""`Views`, a weak and a strong policy, and `ViewSource`, the base class of all views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ltpll.interfaces import ViewKind

ViewPolicy = Callable[[Tensor, torch.Generator], Tensor]
"""Returns a random variant of a batch, of the same shape; only the generator is random."""


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
        >>> def flip(x, generator):
        ...     chosen = torch.rand(len(x), 1, 1, 1, generator=generator, device=x.device) < 0.5
        ...     return torch.where(chosen, x.flip(3), x)
        >>> views = Views(weak=(flip,), strong=(flip, Jitter(0.3)))
        >>> classifier = PartialLabelClassifier("corr", views=views)
    """

    weak: Sequence[ViewPolicy] = ()
    strong: Sequence[ViewPolicy] = ()

    def one_view(self, plain: Tensor, kind: ViewKind, generator: torch.Generator) -> Tensor:
        """The batch after the functions of its kind."""
        for policy in self.weak if kind == "weak" else self.strong:
            plain = policy(plain, generator)
        return plain
