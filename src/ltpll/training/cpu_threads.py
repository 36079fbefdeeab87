"""CPU threads: beside another job, all of them can be fifty times slower than one.

torch's threads wait for each other after every operation. If another job occupies a core, all of
them wait for the thread without one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch

from ltpll.validation import whole_number

AT_IMPORT = torch.get_num_threads()  # torch's default, unless the user has already changed it
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
START_GAIN = 1.25  # how much faster than one thread all of them must be when a training run starts
CHANGE_GAIN = 1.5  # the same when it resumes; more, since sums would round differently
ROUNDS = 4  # rounds of measurements with alternating numbers
ROUND_SECONDS, MAX_SECONDS = 0.005, 0.1

TimedPass = Callable[[int], object]
"""Does the work of a training step on the given number of rows, without side effects."""


def faster(seconds: Mapping[int, float], current: int, gain: float) -> int:
    """The fastest number of threads if it is `gain` times as fast as the current one."""
    best = min(seconds, key=lambda number: seconds[number])
    return best if seconds[current] > gain * seconds[best] else current


def seconds_per_pass(
    numbers: Sequence[int], timed_pass: TimedPass, max_rows: int
) -> dict[int, float]:
    """The mean time of a pass with each number of threads, measured in turns."""

    def timed(number: int, rows: int, least: float = 0.0) -> tuple[float, int]:
        torch.set_num_threads(number)
        began, count, seconds = time.perf_counter(), 0, -1.0
        while seconds < least:
            timed_pass(rows)
            count += 1
            seconds = time.perf_counter() - began
        return seconds, count

    rows = min(2, max_rows)  # a whole batch of a large network would take seconds
    if timed(1, rows)[0] < MAX_SECONDS:
        while min(timed(1, rows), timed(1, rows))[0] < ROUND_SECONDS and rows < max_rows:
            rows = min(2 * rows, max_rows)
        for number in numbers:
            timed(number, rows)  # starts its threads
    found: dict[int, list[tuple[float, int]]] = {number: [] for number in numbers}
    began = time.perf_counter()
    for _ in range(ROUNDS):
        for number in numbers:
            found[number].append(timed(number, rows, ROUND_SECONDS))
        if time.perf_counter() - began > MAX_SECONDS:
            break
    sums = {number: np.sum(each, axis=0) for number, each in found.items()}
    return {number: float(seconds / count) for number, (seconds, count) in sums.items()}


class Threads:
    """Chooses the number of threads: the given one, or the faster of one and all threads."""

    def __init__(self, wanted: int | Literal["auto"] = "auto") -> None:
        self.wanted = wanted if wanted == "auto" else whole_number(wanted, 1, "threads")
        self.number = 0
        """The number last used, perhaps by the process that wrote the checkpoint, or 0."""

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore torch's number of threads, that of the whole process, afterwards."""
        before = torch.get_num_threads()
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def choose(self, make_pass: Callable[[], TimedPass] | None, max_rows: int) -> None:
        """Choose the number before training; without a pass to time, it is torch's number."""
        most = torch.get_num_threads()
        by_user = any(map(os.environ.get, VARIABLES)) or most != AT_IMPORT
        if self.wanted != "auto" or most == 1 or by_user or make_pass is None:
            self.number = most if self.wanted == "auto" else self.wanted
        else:
            # Not if the checkpoint comes from a machine with more cores.
            begun = 1 <= self.number <= most
            current = self.number if begun else 1
            try:
                seconds = seconds_per_pass(sorted({1, current, most}), make_pass(), max_rows)
                self.number = faster(seconds, current, CHANGE_GAIN if begun else START_GAIN)
            except Exception:  # the network cannot be copied, or needs whole batches
                self.number = current if begun else most
        torch.set_num_threads(self.number)
