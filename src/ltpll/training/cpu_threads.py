"""Threads: how many a training on a CPU uses, since beside another job all of them may be fifty times slower than one.

The threads of torch wait for each other after every operation. Where another job has one of the cores, all of them wait for the thread that
has none.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import torch

from ltpll.validation import at_least

AT_IMPORT = torch.get_num_threads()  # torch's default, unless the user has changed it by now
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
PAYS = 1.25  # times as fast as one thread: what all of them have to be when a training starts
CHANGES = 1.5  # times as fast as the number in use: with another number sums round differently, so a small gain is not worth a change
LOOK_AGAIN = 60.0  # seconds, since other jobs come and go
ROUNDS = 4  # in which the numbers take turns, each for so many seconds, until a tenth of a second is over
ROUND, LONG = 0.005, 0.1

Passes = Callable[[int], object]
"""Computes as a training step does, on so many rows, and changes nothing."""


def faster(seconds: Mapping[int, float], current: int, times: float) -> int:
    """The number of threads that takes the fewest seconds, if it is more than so many times as fast as the current one; else that."""
    best = min(seconds, key=lambda number: seconds[number])
    return best if seconds[current] > times * seconds[best] else current


def said_elsewhere() -> bool:
    """Whether the user, or whoever started this process, has chosen a number of threads."""
    return any(os.environ.get(name) for name in VARIABLES) or torch.get_num_threads() != AT_IMPORT


def seconds_of(numbers: Sequence[int], passes: Passes, most_rows: int) -> dict[int, float]:
    """What a pass takes with each number of threads, on average, in turns; torch is left with any of them."""

    def timed(number: int, rows: int, least: float = 0.0) -> tuple[float, int]:
        torch.set_num_threads(number)
        began, count, seconds = time.perf_counter(), 0, -1.0
        while seconds < least:
            passes(rows)
            count += 1
            seconds = time.perf_counter() - began
        return seconds, count

    rows = min(2, most_rows)  # since a whole batch of a large network would take seconds
    if timed(1, rows)[0] < LONG:
        while min(timed(1, rows), timed(1, rows))[0] < ROUND and rows < most_rows:
            rows = min(2 * rows, most_rows)
        for number in numbers:
            timed(number, rows)  # which starts its threads
    found: dict[int, list[tuple[float, int]]] = {number: [] for number in numbers}
    began = time.perf_counter()
    for _ in range(ROUNDS):
        for number in numbers:
            found[number].append(timed(number, rows, ROUND))
        if time.perf_counter() - began > LONG:
            break
    return {number: sum(seconds for seconds, _ in each) / sum(count for _, count in each) for number, each in found.items()}


class Threads:
    """The number that one training uses: what the user says, or one or all of them, whichever is faster."""

    def __init__(self, said: int | Literal["auto"] = "auto") -> None:
        self._said = None if said == "auto" else at_least(said, 1, "threads")
        self.number = 0
        """In use, or used last, also by the process that wrote the checkpoint; 0 before any training."""

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Leave torch with the number of threads that it has now: it is the whole process's."""
        self._before, self._chosen, self._next = torch.get_num_threads(), self._said, -math.inf
        if self._before == 1 or said_elsewhere():
            self._chosen = self._said or self._before
        try:
            yield
        finally:
            torch.set_num_threads(self._before)

    def look(self, passes: Callable[[], Passes] | None, most_rows: int) -> None:
        """Before each epoch: choose, unless that was done a moment ago. Without `passes` to measure it is torch's number."""
        began = time.monotonic()
        if began < self._next:
            return
        if self._chosen or passes is None:
            self.number = self._chosen or self._before
        else:
            self.number = self._measured(passes, most_rows)
        torch.set_num_threads(self.number)
        ended = time.monotonic()
        self._next = ended + max(LOOK_AGAIN, 50 * (ended - began))  # never more than a fiftieth of the time

    def _measured(self, passes: Callable[[], Passes], most_rows: int) -> int:
        begun = 1 <= self.number <= self._before  # and not on a machine with more cores
        current = self.number if begun else 1
        try:
            seconds = seconds_of(sorted({1, current, self._before}), passes(), most_rows)
        except Exception:  # of a network that cannot be copied, or only takes whole batches; if something is wrong, training will say so
            return current if begun else self._before
        return faster(seconds, current, CHANGES if begun else PAYS)
