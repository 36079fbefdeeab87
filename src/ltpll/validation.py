"""Inputs: the user's arrays and numbers as tensors, or one sentence that says which row is wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ltpll.errors import InputError, shown

VALUES_AT_ONCE = 1 << 19  # in checks and sums over all data: each comparison makes an array as large as what it compares


def rows_at_once(inputs: Tensor, values: int = VALUES_AT_ONCE) -> int:
    return max(1, values // max(inputs[:1].numel(), 1))


def as_inputs(x: Any, what: str) -> Tensor:
    """Features as a float tensor, 8-bit images as they are; refused if a value is missing or infinite."""
    try:
        inputs = x if isinstance(x, Tensor) else torch.as_tensor(_plain(np.asarray(x)))
    except (TypeError, ValueError):
        raise InputError(f"The {what} features are not numbers: turn text and categories into numbers first.") from None
    if inputs.ndim < 2 or inputs.numel() == 0:
        raise InputError(f"The {what} features have shape {tuple(inputs.shape)}: there must be rows, and one or more values in each.")
    if inputs.dtype == torch.uint8 and inputs.ndim == 4:
        return inputs  # images stay bytes until their views are drawn
    inputs = inputs.float()
    bad = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
    for rows in torch.arange(len(inputs), device=inputs.device).split(rows_at_once(inputs)):
        bad[rows] = ~torch.isfinite(inputs[rows[0] : rows[-1] + 1]).flatten(1).all(1)
    if bool(bad.any()):
        n = int(bad.sum())
        raise InputError(
            f"Row {int(torch.nonzero(bad)[0])} of the {what} features has a NaN or an infinite value"
            f"{f' ({n} such rows)' if n > 1 else ''}: fill it in or drop the row."
        )
    return inputs


def as_labels(y: Any, what: str, n_classes: int) -> Tensor:
    """Class numbers as an integer tensor, refused if one is out of range."""
    try:
        labels = y if isinstance(y, Tensor) else torch.as_tensor(_plain(np.asarray(y)))
    except (TypeError, ValueError):
        raise InputError(f"The {what} labels must be a list of class numbers: turn names into numbers from 0 first.") from None
    if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex():
        raise InputError(f"The {what} labels must be a list of class numbers; these have shape {tuple(labels.shape)}, type {labels.dtype}.")
    labels = labels.long()
    wrong = torch.nonzero((labels < 0) | (labels >= n_classes)).flatten()
    if len(wrong):
        row = int(wrong[0])
        raise InputError(f"Row {row} of the {what} labels is {int(labels[row])}, but classes are numbered 0 to {n_classes - 1}.")
    return labels


def _plain(array: Any) -> Any:
    return np.require(array, dtype=array.dtype.newbyteorder("="), requirements=["C", "W"])


def chosen_device(device: str | torch.device) -> torch.device:
    """The device meant by a name; "auto" is CUDA where there is one."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise InputError(f"There is no device {device!r}: choose 'cpu', 'cuda' or 'auto'.") from None
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise InputError(f"There is no device {str(chosen)!r} on this machine: choose 'cpu' or 'auto'.")
    return chosen


def in_range(value: float, name: str, least: float, most: float = math.inf, *, above: bool = False) -> float:
    """A finite number from `least` (excluded with `above`) to `most`, refused by name if it is anything else."""
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not (least < value if above else least <= value) or value > most:
        bound = f"above {least:g}" if above else f"at least {least:g}"
        raise InputError(f"{name} is {shown(value)}: it must be a number {bound}{'' if most == math.inf else f' and at most {most:g}'}.")
    return float(value)


def at_least(value: Any, least: int, name: str) -> int:
    whole = isinstance(value, (int, np.integer)) or (isinstance(value, (float, np.floating)) and float(value).is_integer())
    if not whole or value < least or value >= 2**63:
        raise InputError(f"{name} is {shown(value)}: it must be a whole number of at least {least}.")
    return int(value)
