"""Digits: scikit-learn's handwritten digits, split into a pool and a balanced test set."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError
from ltpll.formatting import counted


class DigitsSplit(NamedTuple):
    """Images (N, 1, 8, 8), standardised with the pool's statistics, and their labels."""

    x_pool: npt.NDArray[np.float32]
    y_pool: npt.NDArray[np.int64]
    x_test: npt.NDArray[np.float32]
    y_test: npt.NDArray[np.int64]


def load_digits_split(*, seed: int, test_per_class: int = 50) -> DigitsSplit:
    """Load the digits and split off a random balanced test set.

    Args:
        seed: Seed of the split.
        test_per_class: Test images per digit.

    Returns:
        The test set, and all other images as the pool from which to draw a long-tailed subset.

    Raises:
        InputError: There are fewer images of a digit than `test_per_class`.

    Examples:
        >>> load_digits_split(seed=0).x_test.shape
        (500, 1, 8, 8)
    """
    from sklearn.datasets import load_digits  # as slow to import as torch

    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    rarest = int(np.bincount(labels).min())
    if not 0 <= test_per_class <= rarest:
        which = f"the rarest digit has {counted(rarest, 'image')}"
        raise InputError(f"test_per_class is {test_per_class}, but {which}.")
    rng = np.random.default_rng(seed)
    per_class = [rng.permutation(np.flatnonzero(labels == c))[:test_per_class] for c in range(10)]
    test = np.sort(np.concatenate(per_class))
    pool = np.setdiff1d(np.arange(len(labels)), test)
    mean, std = images[pool].mean(), images[pool].std()
    images = (images - mean) / std
    return DigitsSplit(images[pool], labels[pool], images[test], labels[test])
