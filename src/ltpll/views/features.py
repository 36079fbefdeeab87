"""Views of feature vectors (embeddings, tables): standardised, with noise and dropped features."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ltpll.interfaces import ViewKind
from ltpll.number_types import CONSTANT
from ltpll.validation import column_bounds, kept_type, rows_per_chunk
from ltpll.views.basic import ViewSource


@dataclass(frozen=True)
class FeatureViews(ViewSource):
    """Standardised features; a strong view adds noise and sets some features to their mean.

    Each batch is standardised when it is used, so there is never a second copy of the data. Arrays
    with more than two dimensions (images of any numbers) are standardised per channel, their second
    dimension. Tables that float32 would blur are standardised in float64.

    Args:
        mean: The mean of each feature.
        std: The standard deviation of each feature.
        noise: The standard deviation of the noise of the weak and of the strong view, in standard
            deviations of the feature.
        dropout: The probability that a feature of the strong view is set to its mean.

    Examples:
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> model = build_model("mlp", seed=0, n_inputs=2, n_classes=4)
        >>> trainer = PartialLabelTrainer(model, CORR(), views=FeatureViews.of(torch.tensor(X)))
    """

    mean: Tensor
    std: Tensor
    noise: tuple[float, float] = (0.0, 0.2)
    dropout: float = 0.2
    _on_devices: dict[torch.device, tuple[Tensor, Tensor]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def of(cls, x: Tensor, *, scaled: bool = False) -> FeatureViews:
        """Views with the means and deviations of `x`; a constant feature is only centred.

        With `scaled`, the sizes of features say how much each counts, and one deviation, the root
        of their mean square, divides all of them.
        """
        n = x.numel() // x.shape[1]
        others = tuple(d for d in range(x.ndim) if d != 1)
        shape = (-1,) + (1,) * (x.ndim - 2)
        kind = kept_type(x)
        unit: Tensor | float = 1.0
        if kind == torch.float64:
            # Its squares may overflow, so values are measured in the size of their column.
            low, high = column_bounds(x)
            unit = torch.maximum(low.abs(), high.abs())
            unit[unit == 0] = 1.0
        # Accumulated in place: a list of small results between large temporary arrays would
        # fragment memory.
        mean = torch.zeros(x.shape[1], dtype=torch.float64)
        for part in x.split(rows_per_chunk(x)):
            mean += (part / unit).sum(others, dtype=torch.float64) / n
        spread = torch.zeros_like(mean)
        for part in x.split(rows_per_chunk(x)):
            # Around the mean: a difference of sums would lose a small deviation beside a large
            # mean.
            spread += (part / unit - mean.view(shape)).square_().sum(others)
        std = (spread / n).sqrt()
        varies = std > CONSTANT * mean.abs().clamp_min(1e-30)
        if kind == torch.float64:
            varies = high - low > CONSTANT * unit
        if scaled and varies.any():
            std = torch.where(varies, std * unit, 0.0).square().mean().sqrt().expand_as(std) / unit
            varies = torch.ones_like(varies)
        mean, std = mean * unit, torch.where(varies, std * unit, torch.ones_like(std))
        return cls(mean.to(kind).view(shape), std.to(kind).view(shape))

    @property
    def kind(self) -> torch.dtype:
        """The type of inputs before they are standardised: float64 if float32 would blur them."""
        return self.mean.dtype

    def plain(self, x: Tensor) -> Tensor:
        """The batch without augmentation, standardised, as float32; predictions use it."""
        if x.device not in self._on_devices:
            # Kept, because a copy from the CPU cannot be part of a CUDA graph.
            self._on_devices[x.device] = (self.mean.to(x.device), self.std.to(x.device))
        mean, std = self._on_devices[x.device]
        return ((x.to(mean.dtype) - mean) / std).float()

    def one_view(self, plain: Tensor, kind: ViewKind, generator: torch.Generator) -> Tensor:
        """The batch with noise and, in a strong view, with some features set to their mean."""
        drawn: dict[str, Any] = {"generator": generator, "device": plain.device}
        noise = self.noise[0] if kind == "weak" else self.noise[1]
        view = torch.randn(plain.shape, **drawn).mul_(noise).add_(plain) if noise else plain
        if kind == "strong" and self.dropout:
            view = view * (torch.rand(plain.shape, **drawn) >= self.dropout)
        return view

    def __deepcopy__(self, memo: dict[int, Any]) -> FeatureViews:
        return replace(self, _on_devices={})

    def __reduce__(self) -> tuple[Any, ...]:
        return FeatureViews, (self.mean.cpu(), self.std.cpu(), self.noise, self.dropout)
