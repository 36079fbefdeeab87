"""The paper's toy data: four classes, each uniform on one quarter of the square [−1, 1]²."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError

CORNERS = ((-1.0, -1.0), (0.0, -1.0), (-1.0, 0.0), (0.0, 0.0))


def four_squares(
    sizes: Sequence[int], *, seed: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Draw points of four classes, each uniform on one quarter of the square [−1, 1]².

    Args:
        sizes: The number of points of each class.
        seed: Seed of the random numbers.

    Returns:
        Points (N, 2) and labels (N,), ordered by class.

    Raises:
        InputError: There are not four sizes.

    Examples:
        >>> x, y = four_squares([50, 20, 10, 5], seed=0)
        >>> x.shape
        (85, 2)
    """
    if len(sizes) != 4:
        raise InputError(f"There are {len(sizes)} sizes for four squares: give one per class.")
    rng = np.random.default_rng(seed)
    corners = zip(CORNERS, sizes, strict=True)
    points = [np.asarray(corner) + rng.random((n, 2)) for corner, n in corners]
    labels = np.repeat(np.arange(4), sizes).astype(np.int64)
    return np.concatenate(points).astype(np.float32), labels
