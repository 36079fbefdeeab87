"""Preprocessing: how a picture becomes the input of a network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Real
from typing import Any, Literal, get_args

from torch import Tensor

from ltpll.errors import InputError, shown
from ltpll.validation import whole_number

Fit = Literal["pad", "crop", "stretch"]
Resample = Literal["bilinear", "bicubic", "lanczos", "nearest"]
LARGEST_SIDE = 4096  # pixels; a record with a larger one is damaged
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocessing:
    """Scales a picture to a square of 8-bit RGB pixels, and normalises it: (pixels / 255 - mean) / std.

    Args:
        side: Width and height of the square, in pixels.
        mean: The mean of each channel that is normalised away, for values from 0 to 1.
        std: The standard deviation of each channel, likewise.
        fit: How a picture becomes a square: "pad" scales its longer edge to `side` and fills up with black, so that nothing is lost;
            "crop" scales its shorter edge to `resize` and cuts out the middle; "stretch" changes its aspect ratio.
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
        if (
            max(whole_number(self.side, 1, "side"), whole_number(self.resize or 1, 1, "resize"))
            > LARGEST_SIDE
        ):
            raise InputError(
                f"Pictures of {shown(self.resize or self.side)} pixels are too large: choose at most {LARGEST_SIDE}."
            )
        if not _are_three(self.mean, -math.inf) or not _are_three(self.std, 0):
            raise InputError(
                f"Pictures need three means and three positive deviations, not {shown(self.mean)} and {shown(self.std)}."
            )
        if self.fit not in get_args(Fit):
            *others, last = get_args(Fit)
            choices = f"{', '.join(others)} or {last}"
            raise InputError(f"Unknown fit mode {shown(self.fit)}: choose {choices}.")
        if self.resample not in get_args(Resample):
            raise InputError(
                f"There is no interpolation {shown(self.resample)}: choose {', '.join(get_args(Resample))}."
            )
        if self.resize is not None and whole_number(self.resize, 1, "resize") < self.side:
            raise InputError(
                f"Pictures of {self.resize} pixels are too small to cut out {self.side}: give a larger resize."
            )

    def normalise(self, pictures: Tensor) -> Tensor:
        """8-bit pictures, (batch, 3, side, side), as the float input of the network."""
        mean, std = (
            pictures.new_tensor(values, dtype=pictures.float().dtype).view(-1, 1, 1)
            for values in (self.mean, self.std)
        )
        return (pictures.float() / 255 - mean) / std

    def record(self) -> dict[str, Any]:
        """As JSON values; `from_record` restores it."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Preprocessing:
        """Restore it.

        Raises:
            InputError: If the record, which may come from any file, is damaged.
        """
        if not isinstance(record, Mapping) or not set(record) <= {
            field.name for field in fields(cls)
        }:
            raise InputError(
                f"The preprocessing of a backbone is {shown(record)}: give {', '.join(field.name for field in fields(cls))}."
            )
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in record.items()
        }
        values |= {
            name: whole_number(values[name], 1, name)
            for name in ("side", "resize")
            if values.get(name) is not None
        }
        return cls(**values)


def _are_three(values: Any, above: float) -> bool:
    """Whether these are three finite numbers above a bound."""
    numbers = (
        isinstance(values, tuple | list)
        and len(values) == 3
        and all(isinstance(value, Real) for value in values)
    )
    return numbers and all(value > above and abs(value) < math.inf for value in values)
