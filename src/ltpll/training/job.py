"""Job: training runs, one after another or in parallel, and how fast they are."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# A step takes as long as its batch and about this many rows more, measured on tables with one
# thread.
STEP_ROWS = 100
RECENT_SECONDS = 10.0  # older speeds count less and less; with time, more of the past is recent
LEAST_SECONDS = 0.5  # a speed that was measured for less time says nothing


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
    _reported: float | None = field(default=None, repr=False)
    _work: float = field(default=0.0, repr=False)
    _seconds: float = field(default=0.0, repr=False)  # of all workers together, as `_work` is
    _elapsed: float = field(default=0.0, repr=False)

    @property
    def unfinished(self) -> int:
        """The number of parts that are not finished."""
        return sum(part.left > 0 for part in self.parts)

    def report(self, done: Mapping[Part, float]) -> None:
        """Note the finished epochs of some parts; the first finished work starts the clock."""
        now, busy = time.monotonic(), min(self.workers, self.unfinished)
        work = sum(max(0.0, epochs - part.done) * part.cost for part, epochs in done.items())
        for part, epochs in done.items():
            part.done = epochs
        if self._reported is not None:
            seconds = (now - self._reported) * busy
            self._elapsed += seconds
            fade = 0.5 ** (seconds / max(RECENT_SECONDS * self.workers, self._elapsed / 4))
            self._work, self._seconds = self._work * fade + work, self._seconds * fade + seconds
        if self._reported is not None or work > 0:
            self._reported = now

    def speed(self) -> float | None:
        """The work per second of one worker; None until it is measured."""
        return self._work / self._seconds or None if self._seconds >= LEAST_SECONDS else None

    @property
    def longest(self) -> float:
        """The work left to the worker that finishes last."""
        workers = [0.0] * self.workers
        for part in self.parts:
            free = workers.index(min(workers))  # each worker takes the next part when it is free
            workers[free] += part.left
        return max(workers)
