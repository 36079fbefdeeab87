"""Set predictions: what a classifier says about each example's candidate set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.candidates import Candidates

PROBABILITIES_AT_ONCE = 1 << 23  # examples × classes: 32 MB
PROBABILITIES_STORED = 1 << 24  # examples × classes, at most: 32 MB as float16
TEMPERATURES = tuple(
    float(2 ** (k / 4)) for k in range(-8, 21)
)  # from 1/4 to 32; calibration chooses one of them
TINY = float(np.finfo(np.float32).tiny)
BY_ROW = ("set_probability", "outside_probability", "inside", "outside", "supported")
Numbers = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float32]


class InsideSets(NamedTuple):
    """The label of each row, its likeliest other candidate, and their shares of the set."""

    label: Numbers
    share: Shares
    runner_up: Numbers  # the label itself where it is the only candidate
    runner_up_share: Shares


@dataclass(frozen=True)
class SetPredictions:
    """A classifier's predictions for examples with candidate sets.

    The probabilities of all classes are kept only if they are few.
    """

    # The candidates of row i are entries offsets[i] to offsets[i + 1] of `candidates`.
    offsets: Numbers
    candidates: Numbers
    weights: Shares  # what is known about each candidate beside the classifier, such as votes
    candidate_probability: Shares  # of each candidate
    set_probability: Shares  # of all candidates of a row together, (rows, temperatures)
    # Of the likeliest class that is not a candidate, (rows, temperatures); 0 where every class is
    # one.
    outside_probability: Shares
    inside: Numbers  # the likeliest candidate
    outside: Numbers  # the likeliest class that is not a candidate; −1 where every class is one
    supported: npt.NDArray[np.bool_]  # whether the likeliest class of all is a candidate
    # Of every class, (rows, classes); None if they would be too many.
    log_probability: npt.NDArray[np.float16] | None = None

    @classmethod
    def empty(cls, sets: Candidates) -> SetPredictions:
        """Zeros for all rows of the sets, to be filled by `put`."""
        n, n_classes = len(sets), sets.n_classes
        weights = torch.ones(len(sets.labels)) if sets.weights is None else sets.weights
        few = n * n_classes <= PROBABILITIES_STORED
        by_temperature = (n, len(TEMPERATURES))
        return cls(
            sets.offsets.cpu().numpy().astype(np.int64),
            sets.labels.cpu().numpy().astype(np.int64),
            weights.cpu().numpy().astype(np.float32),
            candidate_probability=np.zeros(len(sets.labels), dtype=np.float32),
            set_probability=np.zeros(by_temperature, dtype=np.float32),
            outside_probability=np.zeros(by_temperature, dtype=np.float32),
            inside=np.zeros(n, dtype=np.int64),
            outside=np.zeros(n, dtype=np.int64),
            supported=np.zeros(n, dtype=bool),
            log_probability=np.zeros((n, n_classes), dtype=np.float16) if few else None,
        )

    @classmethod
    def of(cls, probabilities: Tensor, sets: Candidates) -> SetPredictions:
        """From dense (rows, classes) probabilities."""
        found = cls.empty(sets)
        mask = sets[torch.arange(len(sets))]
        found.candidate_probability[:] = probabilities[mask].numpy()
        logs = probabilities.clamp_min(TINY).log()
        if found.log_probability is not None:
            found.log_probability[:] = logs.numpy()
        inside, best = probabilities.masked_fill(~mask, -1.0).max(dim=1)
        other, outside = probabilities.masked_fill(mask, -1.0).max(dim=1)
        for t, temperature in enumerate(TEMPERATURES):
            tempered = torch.softmax(logs / temperature, dim=1)
            found.set_probability[:, t] = (tempered * mask).sum(1).numpy()
            beyond = (tempered * ~mask).gather(1, outside[:, None])
            found.outside_probability[:, t] = beyond.squeeze(1).numpy()
        found.inside[:], found.supported[:] = best.numpy(), (inside >= other).numpy()
        found.outside[:] = torch.where(other < 0, -1, outside).numpy()
        return found

    def store_rows(self, rows: npt.NDArray[Any], other: SetPredictions) -> None:
        """Replace the predictions for some rows, whose sets must be the same."""
        for name in BY_ROW:
            getattr(self, name)[rows] = getattr(other, name)
        if self.log_probability is not None:
            assert other.log_probability is not None  # a part is never larger than the whole
            self.log_probability[rows] = other.log_probability
        self.candidate_probability[self.places(rows)] = other.candidate_probability

    def select(self, rows: npt.NDArray[Any]) -> SetPredictions:
        """The predictions for some rows."""
        places, sizes = self.places(rows), np.diff(self.offsets)[rows]
        by_row = {name: getattr(self, name)[rows] for name in BY_ROW}
        if self.log_probability is not None:
            by_row["log_probability"] = self.log_probability[rows]
        flat = (self.candidates[places], self.weights[places], self.candidate_probability[places])
        return SetPredictions(np.append(0, np.cumsum(sizes)), *flat, **by_row)

    def places(self, rows: npt.NDArray[Any]) -> Numbers:
        """The places of the rows' candidates in the flat arrays."""
        sizes = np.diff(self.offsets)[rows]
        before = np.cumsum(sizes) - sizes
        first = np.repeat(self.offsets[:-1][rows] - before, sizes)
        return np.asarray(first + np.arange(sizes.sum()))

    def most_probable(self, shares: Shares) -> InsideSets:
        """Each row's label and runner-up, by the shares of `candidate_shares`."""
        rows = np.repeat(np.arange(len(self.inside)), np.diff(self.offsets))
        # Sorted by row, then by falling share; the lower class number comes first in a tie.
        order = np.lexsort((self.candidates, -shares, rows))
        first, alone = order[self.offsets[:-1]], np.diff(self.offsets) == 1
        second = order[self.offsets[:-1] + ~alone]
        runner_up_share = np.where(alone, np.float32(0), shares[second])
        labels, runners_up = self.candidates[first], self.candidates[second]
        return InsideSets(labels, shares[first], runners_up, runner_up_share)

    def outside_shares(self, temperature: float = 1.0) -> Shares:
        """The probability of the likeliest class outside each set, given that none inside is true.

        Args:
            temperature: By which logits are divided, one of `TEMPERATURES`.
        """
        place = TEMPERATURES.index(temperature)
        rest = np.maximum(1 - self.set_probability[:, place], self.outside_probability[:, place])
        shares = self.outside_probability[:, place] / np.maximum(rest, TINY)
        return np.asarray(shares, dtype=np.float32)

    def candidate_shares(self, temperature: float = 1.0) -> Shares:
        """The probability of each candidate, with its weight, given that one of its row is true."""
        logs = np.log(np.maximum(self.candidate_probability, TINY)) / temperature
        starts, sizes = self.offsets[:-1], np.diff(self.offsets)
        weights = self.weights * np.exp(logs - np.repeat(np.maximum.reduceat(logs, starts), sizes))
        shares = weights / np.repeat(np.add.reduceat(weights, starts), sizes)
        return np.asarray(shares, dtype=np.float32)

    def probabilities(self, temperature: float = 1.0) -> npt.NDArray[np.float16] | None:
        """The probability of every class, (rows, classes); None if they were not kept."""
        if self.log_probability is None:
            return None
        found = np.empty_like(self.log_probability)
        for rows in _in_blocks(*found.shape):
            logs = self.log_probability[rows].astype(np.float32) / temperature
            shares = np.exp(logs - logs.max(1, keepdims=True))
            found[rows] = shares / shares.sum(1, keepdims=True)
        return found

    def tensors(self) -> dict[str, Tensor]:
        kept = {column.name: getattr(self, column.name) for column in fields(self)}
        if self.log_probability is None:
            kept["log_probability"] = np.zeros((0, 0), dtype=np.float16)
        return {
            name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in kept.items()
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> SetPredictions:
        columns: dict[str, Any] = {each.name: tensors[each.name].numpy() for each in fields(cls)}
        if not columns["log_probability"].size:
            del columns["log_probability"]
        return cls(**columns)


def predict_sets(
    predict_proba: Callable[[Any], npt.NDArray[np.float32]], x: npt.NDArray[Any], sets: Candidates
) -> SetPredictions:
    """Predict all examples in blocks of rows, never with the full matrix of probabilities."""
    found = SetPredictions.empty(sets)
    for rows in _in_blocks(len(x), sets.n_classes):
        probabilities = torch.from_numpy(predict_proba(x[rows[0] : rows[-1] + 1]))
        found.store_rows(rows, SetPredictions.of(probabilities, sets.select(rows)))
    return found


def _in_blocks(n: int, n_classes: int) -> list[Numbers]:
    """The numbers of all rows, a few at a time."""
    return np.array_split(np.arange(n), max(1, n * n_classes // PROBABILITIES_AT_ONCE))


def judged(classifier: Any, x: npt.NDArray[Any], sets: Candidates) -> dict[str, Tensor]:
    """A fitted classifier's predictions for examples, as tensors to be stored."""
    return predict_sets(classifier.predict_proba, x, sets).tensors()
