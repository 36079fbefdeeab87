"""Example tables: handwritten digits labelled by three annotators."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ltpll.synthetic.digits import load_digits_split
from ltpll.synthetic.longtail import long_tail_subset
from ltpll.synthetic.origins import crowd_votes

NAMES = np.asarray(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
IMBALANCE, LARGEST, NEW_PER_CLASS = 10, 120, 10
# Of the three annotators; in one row of a hundred, none of them is right.
ACCURACIES = (0.9, 0.75, 0.6)

Columns = dict[str, Any]


class ExampleTables(NamedTuple):
    """The columns of a table to train on, and of a table of new examples."""

    train: Columns
    new: Columns


def example_tables(*, seed: int = 0) -> ExampleTables:
    """Draw the example tables: the candidates are the labels of three annotators.

    Classes are long-tailed, from 120 zeros to 12 nines. Features are the 64 pixels. A few sets lack
    the true label, since no annotator was right.

    Args:
        seed: Seed of the rows and of the annotators.

    Returns:
        Columns `id`, `candidates`, `label` (the truth) and the pixels; and `id` and the pixels of
        new digits, ten of each class.

    Examples:
        >>> sorted(example_tables().train)[:3]
        ['candidates', 'id', 'label']
    """
    split = load_digits_split(seed=seed, test_per_class=NEW_PER_CLASS)
    chosen = np.sort(long_tail_subset(split.y_pool, IMBALANCE, seed=seed, largest=LARGEST))
    y = split.y_pool[chosen]
    rows, _, votes = crowd_votes(y, len(NAMES), seed=seed, annotators=ACCURACIES)
    sets = ["|".join(NAMES[np.unique(votes[rows == row])]) for row in range(len(y))]
    train = {
        "id": [f"d{row:04d}" for row in range(len(y))],
        "candidates": sets,
        "label": NAMES[y].tolist(),
    }
    new = {"id": [f"n{row:04d}" for row in range(len(split.y_test))]}
    return ExampleTables(
        train | _pixel_columns(split.x_pool[chosen]), new | _pixel_columns(split.x_test)
    )


def _pixel_columns(images: Any) -> Columns:
    flat = images.reshape(len(images), -1).round(4)
    return {f"pixel_{place // 8}{place % 8}": flat[:, place] for place in range(flat.shape[1])}
