"""Long tails: exponentially falling class sizes, and a random subset that has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError


def class_sizes(largest: int, n_classes: int, imbalance: float) -> npt.NDArray[np.int64]:
    """n_c = int(largest · (1/ρ)^(c/(C−1))): class 0 is the largest, and ρ is its size over that of the last class."""
    if n_classes < 2:
        raise InputError(f"There is only {n_classes} class: a long tail needs at least two.")
    if not imbalance >= 1:
        raise InputError(f"The imbalance is {imbalance}: it is the largest class size over the smallest, so at least 1.")
    # In Python's float arithmetic, as the published subsets were made: a vectorised power can round across an integer.
    sizes = np.asarray([int(largest * (1 / imbalance) ** (c / (n_classes - 1))) for c in range(n_classes)], dtype=np.int64)
    if sizes[-1] < 1:
        raise InputError(f"With {largest} examples in the largest class, imbalance {imbalance} leaves the smallest class empty: lower it.")
    return sizes


def long_tail_subset(labels: npt.ArrayLike, imbalance: float, *, seed: int, largest: int | None = None) -> npt.NDArray[np.int64]:
    """Row numbers, ascending, of a random subset whose class sizes fall exponentially from class 0 to the last class.

    `largest` is the size of class 0; without it, the largest size that every class can follow.
    """
    y = class_numbers(labels)
    available = np.bincount(y)
    if not available.all():
        raise InputError(f"Class {int(np.argmin(available))} has no examples: number the classes from 0 without gaps.")
    if largest is None:
        # int(largest · share) stays within what is there as long as largest · share < available + 1.
        share = (1 / imbalance) ** (np.arange(len(available)) / max(len(available) - 1, 1))
        largest = int(np.ceil(((available + 1) / share).min()))
        while largest > 1 and (class_sizes(largest, len(available), imbalance) > available).any():
            largest -= 1
    sizes = class_sizes(largest, len(available), imbalance)
    short = np.flatnonzero(sizes > available)
    if len(short):
        c = int(short[0])
        raise InputError(f"Class {c} has {available[c]} examples, but the long tail asks for {sizes[c]}: lower `largest`.")
    rng = np.random.default_rng(seed)
    chosen = [rng.permutation(np.flatnonzero(y == c))[:n] for c, n in enumerate(sizes)]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def class_numbers(labels: npt.ArrayLike) -> npt.NDArray[Any]:
    """Labels as an array of class numbers, refused if they are anything else."""
    y = np.asarray(labels)
    if y.ndim != 1 or y.dtype.kind not in "iu" or len(y) == 0:
        raise InputError(f"Labels must be a list of class numbers; these have shape {y.shape} and type {y.dtype}.")
    if y.min() < 0:
        raise InputError(f"Row {int(np.argmin(y))} has the label {int(y.min())}: class numbers start at 0.")
    return y
