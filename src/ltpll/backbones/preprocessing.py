"""Preprocessing: how a picture becomes the input of a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor

from ltpll.errors import InputError, shown
from ltpll.validation import whole_number

Fit = Literal["pad", "crop", "stretch"]
Resample = Literal["bilinear", "bicubic", "lanczos", "nearest"]
LARGEST_SIDE = 4096  # pixels; a record with a larger one is damaged
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocessing:
    """Scales a picture to a square of 8-bit RGB, and normalises it: (pixels / 255 - mean) / std.

    Args:
        side: Width and height of the square, in pixels.
        mean: The mean of each channel that is normalised away, for values from 0 to 1.
        std: The standard deviation of each channel, likewise.
        fit: How a picture becomes a square: "pad" scales its longer edge to `side` and fills up
            with black, so that nothing is lost; "crop" scales its shorter edge to `resize` and cuts
            out the middle; "stretch" changes its aspect ratio.
        resize: The length of the shorter edge before a crop, at least `side`; None for `side`.
        resample: The interpolation: "bilinear", "bicubic", "lanczos" or "nearest".

    Examples:
        >>> preprocessing = Preprocessing(side=96, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
        >>> white = torch.full((1, 3, 96, 96), 255, dtype=torch.uint8)
        >>> preprocessing.normalise(white).amax()
        tensor(1.)
    """

    side: int = 224
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    fit: Fit = "pad"
    resize: int | None = None
    resample: Resample = "bilinear"

    def __post_init__(self) -> None:
        side = whole_number(self.side, 1, "side")
        resize = side if self.resize is None else whole_number(self.resize, 1, "resize")
        if not side <= resize <= LARGEST_SIDE:
            raise InputError(
                f"Pictures of {shown(side)} pixels cannot be cut out of {shown(resize)}: choose "
                f"side <= resize <= {LARGEST_SIDE}."
            )
        object.__setattr__(self, "side", side)  # 224.0 in a file of JSON is 224
        object.__setattr__(self, "resize", None if self.resize is None else resize)
        try:
            figures = np.asarray([self.mean, self.std])
        except ValueError:  # they differ in length
            figures = np.empty(0)
        numbers = figures.shape == (2, 3) and figures.dtype.kind in "iuf"
        if not numbers or not np.isfinite(figures).all() or figures[1].min() <= 0:
            raise InputError(
                "Pictures need three means and three positive deviations, not "
                f"{shown(self.mean)} and {shown(self.std)}."
            )
        for name, value, choices in (
            ("fit mode", self.fit, get_args(Fit)),
            ("interpolation", self.resample, get_args(Resample)),
        ):
            if value not in choices:
                raise InputError(f"Unknown {name} {shown(value)}: choose {' or '.join(choices)}.")

    def normalise(self, pictures: Tensor) -> Tensor:
        """8-bit pictures, (batch, 3, side, side), as the float input of the network."""
        x = pictures.float()
        mean, std = (x.new_tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return (x / 255 - mean) / std

    def record(self) -> dict[str, Any]:
        """As JSON values; `from_record` restores it."""
        return asdict(self) | {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Preprocessing:
        """Restore it; a damaged record, which may come from any file, is an InputError."""
        names = [field.name for field in fields(cls)]
        if not isinstance(record, Mapping) or not set(record) <= set(names):
            raise InputError(
                f"The preprocessing of a backbone is {shown(record)}: give {', '.join(names)}."
            )
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in record.items()
        }
        return cls(**values)
