"""Long tails: exponentially decreasing class sizes, and random subsets with these sizes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError
from ltpll.formatting import counted
from ltpll.validation import in_range

RandomNumbers = np.random.Generator | np.random.RandomState


def class_sizes(largest: int, n_classes: int, imbalance: float) -> npt.NDArray[np.int64]:
    """Compute long-tailed class sizes, n_c = int(largest · (1/ρ)^(c/(C−1))).

    Args:
        largest: The size of class 0.
        n_classes: The number of classes C.
        imbalance: The size of the first class over that of the last, ρ.

    Returns:
        (C,) sizes.

    Raises:
        InputError: There is only one class, the imbalance is below 1, or a class would be empty.

    Examples:
        >>> class_sizes(100, 3, imbalance=100)
        array([100,  10,   1])
    """
    if n_classes < 2:
        raise InputError(f"There is only {n_classes} class: a long tail needs at least two.")
    in_range(imbalance, "The imbalance", 1)
    # Python floats, as in the published code: numpy's power can round across an integer.
    shares = [(1 / imbalance) ** (c / (n_classes - 1)) for c in range(n_classes)]
    sizes = np.asarray([int(largest * share) for share in shares], dtype=np.int64)
    if sizes[-1] < 1:
        which = f"With {counted(largest, 'example')} in the largest class, imbalance {imbalance}"
        raise InputError(f"{which} leaves the smallest class empty: lower it.")
    return sizes


def long_tail_subset(
    labels: npt.ArrayLike, imbalance: float, *, seed: int, largest: int | None = None
) -> npt.NDArray[np.int64]:
    """Choose a random subset whose class sizes decrease exponentially.

    Args:
        labels: Class numbers from 0, without gaps.
        imbalance: The size of the first class over that of the last.
        seed: Seed of the choice.
        largest: The size of class 0; by default, the largest for which every class has enough
            examples.

    Returns:
        Row numbers in ascending order.

    Raises:
        InputError: A class has no examples, or fewer than the long tail needs.

    Examples:
        >>> long_tail_subset([0] * 9 + [1] * 9, imbalance=9, seed=0).shape
        (10,)
    """
    y = check_class_numbers(labels)
    available = np.bincount(y)
    if not available.all():
        which = f"Class {int(np.argmin(available))} has no examples"
        raise InputError(f"{which}: number the classes from 0 without gaps.")
    if largest is None:
        # int(largest · share) <= available as long as largest · share < available + 1.
        share = (1 / imbalance) ** (np.arange(len(available)) / max(len(available) - 1, 1))
        largest = int(np.ceil(((available + 1) / share).min()))
        while largest > 1 and (class_sizes(largest, len(available), imbalance) > available).any():
            largest -= 1
    sizes = class_sizes(largest, len(available), imbalance)
    short = np.flatnonzero(sizes > available)
    if len(short):
        c = int(short[0])
        which = f"Class {c} has {counted(available[c], 'example')}, but the long tail needs"
        raise InputError(f"{which} {sizes[c]}: lower `largest`.")
    return np.sort(shuffled_subset(y, sizes, np.random.default_rng(seed)))


def shuffled_subset(
    y: npt.NDArray[Any], sizes: Iterable[int], rng: RandomNumbers
) -> npt.NDArray[np.int64]:
    """Class by class, the first rows of a random order of its examples."""
    return np.concatenate(
        [rng.permutation(np.flatnonzero(y == c))[:n] for c, n in enumerate(sizes)]
    ).astype(np.int64)


def check_class_numbers(labels: npt.ArrayLike, n_classes: int | None = None) -> npt.NDArray[Any]:
    """Labels as an array; refused unless they are class numbers, below `n_classes` if given."""
    y = np.asarray(labels)
    if y.ndim != 1 or y.dtype.kind not in "iu" or len(y) == 0:
        which = f"these have shape {y.shape} and type {y.dtype}"
        raise InputError(f"Labels must be a list of class numbers; {which}.")
    wrong = np.flatnonzero((y < 0) | (y >= (np.inf if n_classes is None else n_classes)))
    if len(wrong):
        last = "" if n_classes is None else f" to {n_classes - 1}"
        which = f"Row {int(wrong[0])} has the label {int(y[wrong[0]])}"
        raise InputError(f"{which}, but classes are numbered from 0{last}.")
    return y
