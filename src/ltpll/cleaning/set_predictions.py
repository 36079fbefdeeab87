"""Set predictions: the likeliest labels inside and outside each example's candidate set, computed a few rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.candidates import Candidates

PROBABILITIES_AT_ONCE = 1 << 23  # examples × classes: 32 MB


@dataclass(frozen=True)
class SetPredictions:
    """A classifier's predictions for examples with candidate sets: class numbers and probabilities, one entry per example."""

    inside: npt.NDArray[np.int64]  # the likeliest candidate
    inside_probability: npt.NDArray[np.float32]
    second: npt.NDArray[np.int64]  # the second likeliest candidate, or the only one
    second_probability: npt.NDArray[np.float32]
    outside: npt.NDArray[np.int64]  # the likeliest class that is not a candidate; −1 where every class is one
    outside_probability: npt.NDArray[np.float32]
    of_set: npt.NDArray[np.float32]  # the probability of all candidates together

    @classmethod
    def empty(cls, n: int) -> SetPredictions:
        """Zeros for n examples, to be filled by `put`."""
        labels, shares = np.zeros((3, n), dtype=np.int64), np.zeros((4, n), dtype=np.float32)
        return cls(labels[0], shares[0], labels[1], shares[1], labels[2], shares[2], shares[3])

    @classmethod
    def of(cls, probabilities: Tensor, candidates: Tensor) -> SetPredictions:
        """From dense (rows, classes) probabilities and a boolean mask of candidates."""
        likely, labels = probabilities.masked_fill(~candidates, -1.0).topk(2, dim=1)
        alone = likely[:, 1] < 0
        other, outside = probabilities.masked_fill(candidates, -1.0).max(dim=1)
        columns = (
            labels[:, 0],
            likely[:, 0],
            torch.where(alone, labels[:, 0], labels[:, 1]),
            likely[:, 1].clamp_min(0),
            torch.where(other < 0, -1, outside),
            other.clamp_min(0),
            (probabilities * candidates).sum(1),
        )
        return cls(*(column.numpy() for column in columns))

    def put(self, rows: npt.NDArray[Any] | slice, other: SetPredictions) -> None:
        """Replace the predictions for some rows."""
        for column in fields(self):
            getattr(self, column.name)[rows] = getattr(other, column.name)

    def tensors(self) -> dict[str, Tensor]:
        return {column.name: torch.from_numpy(getattr(self, column.name)) for column in fields(self)}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> SetPredictions:
        return cls(**{column.name: tensors[column.name].numpy() for column in fields(cls)})


def predict_sets(predict_proba: Callable[[Any], npt.NDArray[np.float32]], x: npt.NDArray[Any], candidates: Candidates) -> SetPredictions:
    """Predict all examples in blocks of rows, so that the full matrix of probabilities never exists."""
    found = SetPredictions.empty(len(x))
    for rows in np.array_split(np.arange(len(x)), max(1, len(x) * candidates.n_classes // PROBABILITIES_AT_ONCE)):
        block = slice(rows[0], rows[-1] + 1)
        found.put(block, SetPredictions.of(torch.from_numpy(predict_proba(x[block])), candidates[torch.from_numpy(rows)]))
    return found
