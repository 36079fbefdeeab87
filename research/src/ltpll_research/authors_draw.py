"""The draw of the RECORDS paper's code: one subset and its sets, the same for every seed."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.synthetic import check_class_numbers, class_sizes, join_labels, shuffled_subset

SHUFFLE_SEED = 123  # of the commands in the authors' README


def authors_draw(
    labels: npt.ArrayLike,
    imbalance: float,
    ambiguity: float,
    superclass: npt.ArrayLike | None = None,
) -> tuple[npt.NDArray[np.int64], Candidates]:
    """Draw the subset and the candidate sets as the authors of the RECORDS paper do.

    They use numpy's legacy generator with the seed 0. The rows of each class are shuffled, class by
    class, and the first ones are kept; then a number between 0 and 1 is drawn for every row and
    class, and the class joins the set if the number is below its probability. With superclasses,
    the class sizes are shuffled first, by Python's generator with the seed 123, so that the largest
    classes are not those of the first superclasses.

    Args:
        labels: Class numbers of all training examples in their published order, equally many of
            each class.
        imbalance: The size of the largest class over that of the smallest: the first and the last
            class, unless there are superclasses.
        ambiguity: The probability that a wrong label joins a set.
        superclass: The superclass of each class, inside which this probability is eight times as
            high; None if it is the same everywhere.

    Returns:
        The row numbers of a long-tailed subset, class by class, and their candidate sets.

    Raises:
        InputError: The imbalance, the ambiguity or the labels cannot be used.

    Examples:
        >>> authors_draw([0, 1, 0, 1], imbalance=2, ambiguity=0.5)[0].shape
        (3,)
    """
    y = check_class_numbers(labels)
    counts = np.bincount(y)
    rng = np.random.RandomState(0)
    sizes = class_sizes(int(counts.max()), len(counts), imbalance).tolist()
    groups = None if superclass is None else np.asarray(superclass)
    if groups is not None:
        random.Random(SHUFFLE_SEED).shuffle(sizes)
    rows = shuffled_subset(y, sizes, rng)
    return rows, join_labels(y[rows], len(counts), ambiguity, rng, groups)
