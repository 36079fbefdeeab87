"""Schedules: the learning rate of every epoch, along half a cosine or in steps."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from ltpll.errors import InputError, shown

STEP_FACTOR = 0.1


def cosine_rate(epoch: int, n_epochs: int, start: float, end: float) -> float:
    """The learning rate of an epoch, falling from `start` towards `end` along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * epoch / n_epochs)) / 2


def step_rate(epoch: int, milestones: Sequence[int], start: float) -> float:
    """The learning rate of an epoch, multiplied by 0.1 after each of `milestones` epochs."""
    return start * STEP_FACTOR ** bisect_right(milestones, epoch)


def check_milestones(milestones: Sequence[int], n_epochs: int) -> tuple[int, ...]:
    """Check that milestones are increasing numbers of epochs, each followed by an epoch."""
    numbers = list(milestones)
    whole = {type(number) for number in numbers} <= {int}
    if not whole or sorted({*numbers} & {*range(1, n_epochs)}) != numbers:
        raise InputError(
            f"milestones is {shown(numbers)}: they must be increasing numbers of epochs, at least "
            f"1 and below {n_epochs}, the number of epochs in which the learning rate falls."
        )
    return tuple(numbers)
