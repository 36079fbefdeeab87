"""Number types: which tables need double precision."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FLOAT32 = np.finfo(np.float32)
# A column whose size over its spread is larger is blurred: half of float32's 24 bits are lost.
FLOAT32_SPREAD = 2.0**12
CONSTANT = 1e-12  # what differs by less beside its size, differs by rounding


def blurred_by_float32(low: npt.ArrayLike, high: npt.ArrayLike) -> bool:
    """Whether float32 would lose what tells the rows of a table apart.

    It does where values differ by little beside their size, such as times in seconds since 1970, or
    are beyond its range. Such tables stay float64 until they are standardised, a batch at a time
    (`FeatureViews`); all others become float32 at once, which takes half the memory.
    """
    least, most = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        size, spread = np.maximum(np.abs(least), np.abs(most)), most - least
        coarse = (size < FLOAT32.tiny) | (spread * FLOAT32_SPREAD < size)
    return bool(np.any((size > FLOAT32.max) | ((spread > CONSTANT * size) & coarse)))
