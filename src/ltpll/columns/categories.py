"""Columns of categories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from ltpll.columns.cells import as_texts
from ltpll.columns.numbers import Encoded
from ltpll.errors import printable

MOST_LEVELS = 64  # with an output of their own
LEAST_ROWS, LEAST_SHARE = 5, 0.002  # of a level with an output of its own
LONGEST_NAME = 200  # characters
MOST_COUNTED = 50_000  # levels whose frequency is kept


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories: an output for each frequent level, and for a missing cell.

    Rare levels share one output, which levels unseen in training have, too, and are told apart by
    how frequent they are.
    """

    levels: tuple[str, ...]
    gaps: bool
    others: bool
    frequencies: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def fit(cls, name: str, values: Any, numbers: str = "") -> Self:
        """Learn the levels from the training rows."""
        texts = as_texts(values)
        counts = Counter(text for text in texts if text is not None)
        least = max(LEAST_ROWS, LEAST_SHARE * len(texts))
        ordered = sorted(counts, key=lambda level: (-counts[level], level))
        if len(ordered) == 2:
            least = 1
        frequent = [level for level in ordered[:MOST_LEVELS] if counts[level] >= least]
        rare = ordered[len(frequent) :]
        logs = {level: float(np.log(counts[level])) for level in ordered[:MOST_COUNTED]}
        kept = logs if len({counts[level] for level in rare}) > 1 else {}
        return cls(tuple(frequent), sum(counts.values()) < len(texts), bool(rare), kept)

    @property
    def names(self) -> list[str]:
        """What is appended to the name of the column for each output."""
        own = [f"={printable(level[:LONGEST_NAME])}" for level in self._shown]
        others = [" (other)"] * self.others + [" (frequency)"] * bool(self.frequencies)
        return [*own, *others, *([" (missing)"] if self.gaps else [])]

    @property
    def _shown(self) -> tuple[str, ...]:
        """The levels with an output: of two, one says all."""
        both = len(self.levels) == 2 and not self.others and not self.gaps
        return self.levels[1:] if both else self.levels

    def encode(self, name: str, values: Any) -> Encoded:
        """The column as numbers of about size one, (rows, outputs)."""
        import pandas as pd

        places, distinct = pd.factorize(as_texts(values))
        outputs = np.zeros((len(distinct) + 1, len(self.names)), dtype=np.float32)
        outputs[-1, -1] = self.gaps
        shown = {level: place for place, level in enumerate(self._shown)}
        for row, level in enumerate(distinct.tolist()):
            if level in shown:
                outputs[row, shown[level]] = 1
            elif self.others and level not in self.levels:
                outputs[row, len(shown)] = 1
            if self.frequencies:
                outputs[row, len(shown) + 1] = self.frequencies.get(level, 0.0)
        found: Encoded = outputs[places]
        return found
