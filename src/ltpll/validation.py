"""Validation: checks of users' arrays, numbers and settings, with error messages that name the row
or setting at fault.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.errors import InputError, shown
from ltpll.number_types import blurred_by_float32

# Limits the memory of checks and sums, whose temporary arrays are as large as their input.
CHUNK_VALUES = 1 << 19


def rows_per_chunk(inputs: Tensor, values: int = CHUNK_VALUES) -> int:
    """The number of rows of `inputs` that hold at most this number of values."""
    return max(1, values // max(inputs[:1].numel(), 1))


def column_bounds(x: Tensor) -> Tensor:
    """The least and the largest value of each column of a table, (2, columns), as float64."""
    bounds = torch.stack([torch.stack(part.aminmax(dim=0)) for part in x.split(rows_per_chunk(x))])
    return torch.stack([bounds[:, 0].amin(0), bounds[:, 1].amax(0)]).double()


def kept_type(x: Tensor) -> torch.dtype:
    """The type in which features are kept: float64 for a table that float32 would blur, and else
    float32.
    """
    if x.ndim != 2 or x.dtype not in (torch.float64, torch.int64, torch.int32):
        return torch.float32
    return torch.float64 if blurred_by_float32(*column_bounds(x).cpu().numpy()) else torch.float32


def as_inputs(x: Any, what: str, kind: torch.dtype | None = None) -> Tensor:
    """Convert features to a float tensor, keeping 8-bit images; refuses NaN and infinite values.

    Args:
        x: The features, one row per example.
        what: What messages call them.
        kind: The type of the tensor; by default that of `kept_type`.
    """
    try:
        array = x if isinstance(x, Tensor) else np.asarray(x)
        if isinstance(array, Tensor):
            inputs = array
        elif array.size and (array.dtype.str, array.ndim) in (("<f8", 2), ("|u1", 4)):
            inputs = shared_tensor(array)  # which may be large: it is copied once, or not at all
        else:
            inputs = torch.as_tensor(_plain(array))
    except (TypeError, ValueError):
        raise InputError(
            f"The {what} features are not numbers: turn text and categories into numbers first."
        ) from None
    if inputs.ndim < 2 or inputs.numel() == 0:
        raise InputError(
            f"The {what} features have shape {tuple(inputs.shape)}: there must be rows, and "
            "one or more values in each."
        )
    if inputs.dtype == torch.uint8 and inputs.ndim == 4:
        return inputs  # images stay 8-bit until their views are drawn
    given, kind = inputs, kept_type(inputs) if kind is None else kind
    if isinstance(array, Tensor):
        inputs = inputs.to(kind)
    else:
        inputs = inputs.to(kind, memory_format=torch.contiguous_format).contiguous()
    chunks = inputs.split(rows_per_chunk(inputs))
    bad = torch.nonzero(torch.cat([~torch.isfinite(part).flatten(1).all(1) for part in chunks]))
    if len(bad):
        row = int(bad[0])
        beyond = bool(torch.isfinite(given[row]).all())  # of float32
        problem = "a value beyond ±3.4e38" if beyond else "a NaN or an infinite value"
        others = f" ({len(bad)} such rows)" if len(bad) > 1 else ""
        raise InputError(
            f"Row {row} of the {what} features has {problem}{others}: fill it in or drop the row."
        )
    return inputs


def as_labels(y: Any, what: str, n_classes: int) -> Tensor:
    """Convert class numbers to an integer tensor; refuses numbers out of range."""
    try:
        labels = y if isinstance(y, Tensor) else torch.as_tensor(_plain(np.asarray(y)))
        if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex():
            raise TypeError
    except (TypeError, ValueError):
        raise InputError(
            f"The {what} labels must be a list of class numbers: turn names into numbers from "
            "0 first."
        ) from None
    labels = labels.long()
    wrong = torch.nonzero((labels < 0) | (labels >= n_classes)).flatten()
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            f"Row {row} of the {what} labels is {int(labels[row])}, but classes are numbered 0 "
            f"to {n_classes - 1}."
        )
    return labels


def _plain(array: Any) -> Any:
    return np.require(array, dtype=array.dtype.newbyteorder("="), requirements=["C", "W"])


def shared_tensor(array: npt.NDArray[Any]) -> Tensor:
    """A tensor in the memory of the array, also if it is a file opened with `mmap_mode="r"`:
    nothing writes to inputs.
    """
    if min(array.strides) < 0:
        array = array.copy()  # torch has no negative strides
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*not writable")
        return torch.from_numpy(array)


def chosen_device(device: str | torch.device) -> torch.device:
    """The device with this name; "auto" is CUDA if available."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen: torch.device | None = torch.device(device)
    except RuntimeError:
        chosen = None
    if chosen is None or (
        chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count()
    ):
        problem = f"There is no device {str(device)!r} on this machine"
        raise InputError(f"{problem}: choose 'cpu', 'cuda' or 'auto'.")
    return chosen


def in_range(
    value: float, name: str, least: float, most: float = math.inf, *, above: bool = False
) -> float:
    """Check that a setting is a finite number from `least` (excluded with `above`) to `most`."""
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and least <= value <= most) or (
        above and value == least
    ):
        bound = f"above {least:g}" if above else f"at least {least:g}"
        bound += "" if most == math.inf else f" and at most {most:g}"
        raise InputError(f"{name} is {shown(value)}: it must be a number {bound}.")
    return float(value)


def whole_number(value: Any, least: int, name: str) -> int:
    """Check that a setting is a whole number of at least `least`."""
    number = isinstance(value, (int, float, np.number))
    if not (number and value == value // 1 and least <= value < 2**63):
        problem = f"{name} is {shown(value)}: it must be a whole number of at least {least}"
        raise InputError(f"{problem}.")
    return int(value)
