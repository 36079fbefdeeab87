"""Opinions: what a classifier thinks of examples inside and outside their candidate sets, a column each, few rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.candidates import Candidates

VALUES_AT_ONCE = 1 << 23  # probabilities of examples × classes: 32 MB


@dataclass(frozen=True)
class Opinions:
    """Class numbers and probabilities, one entry a row; `outside` is −1 where the set holds every class, `second` the first one of a
    set of one."""

    inside: npt.NDArray[np.int64]  # the likeliest candidate
    inside_probability: npt.NDArray[np.float32]
    second: npt.NDArray[np.int64]  # the next
    second_probability: npt.NDArray[np.float32]
    outside: npt.NDArray[np.int64]  # the likeliest of the other classes
    outside_probability: npt.NDArray[np.float32]
    of_set: npt.NDArray[np.float32]  # the probability of all candidates together

    @classmethod
    def nothing(cls, n: int) -> Opinions:
        """Room for n rows."""
        numbers, shares = np.zeros((3, n), dtype=np.int64), np.zeros((4, n), dtype=np.float32)
        return cls(numbers[0], shares[0], numbers[1], shares[1], numbers[2], shares[2], shares[3])

    def put(self, rows: npt.NDArray[Any] | slice, other: Opinions) -> None:
        for one in fields(self):
            getattr(self, one.name)[rows] = getattr(other, one.name)

    def tensors(self) -> dict[str, Tensor]:
        return {one.name: torch.from_numpy(getattr(self, one.name)) for one in fields(self)}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> Opinions:
        return cls(**{one.name: tensors[one.name].numpy() for one in fields(cls)})


def opinions(probabilities: Callable[[Any], npt.NDArray[np.float32]], x: npt.NDArray[Any], candidates: Candidates) -> Opinions:
    """`probabilities` gives (rows, classes) for some of the inputs."""
    found = Opinions.nothing(len(x))
    for rows in np.array_split(np.arange(len(x)), max(1, len(x) * candidates.n_classes // VALUES_AT_ONCE)):
        part = slice(rows[0], rows[-1] + 1)
        found.put(part, opinions_of(torch.from_numpy(probabilities(x[part])), candidates[torch.from_numpy(rows)]))
    return found


def opinions_of(probabilities: Tensor, inside: Tensor) -> Opinions:
    """From dense (rows, classes) probabilities and candidates."""
    likely, numbers = probabilities.masked_fill(~inside, -1.0).topk(2, dim=1)
    alone = likely[:, 1] < 0
    other, outside = probabilities.masked_fill(inside, -1.0).max(dim=1)
    columns = (
        numbers[:, 0],
        likely[:, 0],
        torch.where(alone, numbers[:, 0], numbers[:, 1]),
        likely[:, 1].clamp_min(0),
        torch.where(other < 0, -1, outside),
        other.clamp_min(0),
        (probabilities * inside).sum(1),
    )
    return Opinions(*(column.numpy() for column in columns))
