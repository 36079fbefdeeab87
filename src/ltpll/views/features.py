"""Views of feature vectors (embeddings, tables): standardised, with noise and with features left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ltpll.interfaces import ViewKind
from ltpll.validation import rows_at_once


@dataclass(frozen=True)
class FeatureViews:
    """Each feature less its mean, over its deviation; a strong view has noise, and features set to their mean; a weak one is just that.

    Standardising happens batch by batch, so that there is never a second copy of the data. Arrays of more than two dimensions (images of
    any kind of numbers) are standardised by their first dimension behind the rows, the channels.
    """

    mean: Tensor
    std: Tensor
    noise: tuple[float, float] = (0.0, 0.2)  # of the weak and the strong view, in deviations
    dropout: float = 0.2  # of the strong view

    @classmethod
    def of(cls, x: Tensor) -> FeatureViews:
        """With the means and deviations of the data; a feature that never changes is only centred."""
        n = x.numel() // x.shape[1]
        others = tuple(d for d in range(x.ndim) if d != 1)
        shape = (-1,) + (1,) * (x.ndim - 2)
        # Added up part by part: a list of small results between large temporary arrays keeps the memory of all of these from being reused.
        mean = torch.zeros(x.shape[1], dtype=torch.float64)
        for part in x.split(rows_at_once(x)):
            mean += part.sum(others, dtype=torch.float64) / n
        spread = torch.zeros_like(mean)
        for part in x.split(rows_at_once(x)):
            # About the mean, not as a difference of sums, which would lose a small deviation beside a large mean.
            spread += (part - mean.view(shape)).square_().sum(others)
        std = (spread / n).sqrt()
        std = torch.where(std > 1e-12 * mean.abs().clamp_min(1e-30), std, torch.ones_like(std))
        return cls(mean.float().view(shape), std.float().view(shape))

    def plain(self, x: Tensor) -> Tensor:
        """What prediction sees."""
        return (x.float() - self.mean.to(x.device)) / self.std.to(x.device)

    def draw(self, x: Tensor, kinds: Sequence[ViewKind], generator: torch.Generator, places: Tensor | None = None) -> tuple[Tensor, ...]:
        """One view of the batch for each kind asked for."""
        plain = self.plain(x)
        views = []
        for kind in kinds:
            noise = self.noise[0] if kind == "weak" else self.noise[1]
            view = plain
            if noise:
                view = torch.randn(plain.shape, generator=generator, device=x.device).mul_(noise).add_(plain)
            if kind == "strong" and self.dropout:
                view = view * (torch.rand(plain.shape, generator=generator, device=x.device) >= self.dropout)
            views.append(view if places is None else view[places])
        return tuple(views)
