"""Job: training runs, one after another or in parallel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# A step takes as long as its batch and about this many rows more, measured on tables with one
# thread.
STEP_ROWS = 100


@dataclass(eq=False)
class Part:
    """One training of a job.

    Costs, the work of an epoch, have a unit that all parts share. The finished epochs count the
    fraction of the current one. The name is empty if the job has one part.
    """

    name: str
    epochs: int
    cost: float = 1.0
    done: float = 0.0

    @classmethod
    def of_rows(cls, name: str, rows: int, epochs: int, batch_size: int) -> Part:
        """A training run on some rows, whose work is measured in rows."""
        return cls(name, epochs, rows * (1 + STEP_ROWS / batch_size))

    @property
    def left(self) -> float:
        """The work that is left."""
        return max(0.0, self.epochs - self.done) * self.cost


@dataclass(eq=False)
class Stage:
    """Parts that are trained in their order or, with several workers, in parallel.

    If they train in parallel, they need a name for all of them together.
    """

    parts: Sequence[Part]
    workers: int = 1
    name: str = ""

    @property
    def unfinished(self) -> int:
        """The number of parts that are not finished."""
        return sum(part.left > 0 for part in self.parts)
