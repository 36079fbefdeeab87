"""Views of feature vectors (embeddings, tables): standardised, with noise and with features left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ltpll.contract import ViewKind

ROWS_AT_ONCE = 1 << 12


@dataclass(frozen=True)
class FeatureViews:
    """Each feature less its mean, over its deviation; a weak view has little noise, a strong one more, and features set to their mean.

    Standardising happens batch by batch, so that there is never a second copy of the data. Arrays of more than two dimensions (images of
    any kind of numbers) are standardised by their first dimension behind the rows, the channels.
    """

    mean: Tensor
    std: Tensor
    noise: tuple[float, float] = (0.05, 0.2)  # of the weak and the strong view, in deviations
    dropout: float = 0.2  # of the strong view

    @classmethod
    def of(cls, x: Tensor) -> FeatureViews:
        """With the means and deviations of the data; a feature that never changes is only centred."""
        n = x.numel() // x.shape[1]
        others = tuple(d for d in range(x.ndim) if d != 1)
        parts = x.split(ROWS_AT_ONCE)
        mean = torch.stack([part.sum(others, dtype=torch.float64) for part in parts]).sum(0) / n
        shape = (-1,) + (1,) * (x.ndim - 2)
        spread = torch.stack([(part.double() - mean.view(shape)).square().sum(others) for part in parts]).sum(0)
        std = (spread / n).sqrt()
        std = torch.where(std > 1e-12 * mean.abs().clamp_min(1e-30), std, torch.ones_like(std))
        return cls(mean.float().view(shape), std.float().view(shape))

    def plain(self, x: Tensor) -> Tensor:
        """What prediction sees."""
        return (x.float() - self.mean.to(x.device)) / self.std.to(x.device)

    def draw(self, x: Tensor, kinds: Sequence[ViewKind], generator: torch.Generator) -> tuple[Tensor, ...]:
        """One view of the batch for each kind asked for."""
        plain = self.plain(x)
        views = []
        for kind in kinds:
            noise = self.noise[0] if kind == "weak" else self.noise[1]
            view = plain + noise * torch.randn(plain.shape, generator=generator, device=x.device)
            if kind == "strong" and self.dropout:
                view = view * (torch.rand(plain.shape, generator=generator, device=x.device) >= self.dropout)
            views.append(view)
        return tuple(views)
