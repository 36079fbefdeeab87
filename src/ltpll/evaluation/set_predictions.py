"""Set predictions: what a classifier says about each example's candidate set, computed a few rows at a time."""

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
    """The label of each row and its likeliest other candidate, and their probabilities given that the true label is a candidate."""

    label: Numbers
    share: Shares
    runner_up: Numbers  # the label itself where it is the only candidate
    runner_up_share: Shares


@dataclass(frozen=True)
class SetPredictions:
    """A classifier's predictions for examples with candidate sets; the probabilities of all classes are kept only if they are few."""

    offsets: (
        Numbers  # the candidates of row i are entries offsets[i] to offsets[i + 1] of `candidates`
    )
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
    log_probability: npt.NDArray[np.float16] | None = (
        None  # of every class, (rows, classes); None if they would be too many
    )

    @classmethod
    def empty(cls, sets: Candidates) -> SetPredictions:
        """Zeros for all rows of the sets, to be filled by `put`."""
        n, flat = len(sets), len(sets.labels)
        offsets, labels = (
            part.cpu().numpy().astype(np.int64) for part in (sets.offsets, sets.labels)
        )
        inside, outside = np.zeros((2, n), dtype=np.int64)
        of_set, of_outside = np.zeros((2, n, len(TEMPERATURES)), dtype=np.float32)
        weights = (
            np.ones(flat, dtype=np.float32)
            if sets.weights is None
            else sets.weights.cpu().numpy().astype(np.float32)
        )
        log_probability = (
            np.zeros((n, sets.n_classes), dtype=np.float16)
            if n * sets.n_classes <= PROBABILITIES_STORED
            else None
        )
        candidate, supported = np.zeros(flat, dtype=np.float32), np.zeros(n, dtype=bool)
        return cls(
            offsets,
            labels,
            weights,
            candidate,
            of_set,
            of_outside,
            inside,
            outside,
            supported,
            log_probability,
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
            found.outside_probability[:, t] = (
                (tempered * ~mask).gather(1, outside[:, None]).squeeze(1).numpy()
            )
        found.inside[:], found.supported[:] = best.numpy(), (inside >= other).numpy()
        found.outside[:] = torch.where(other < 0, -1, outside).numpy()
        return found

    def put(self, rows: npt.NDArray[Any], other: SetPredictions) -> None:
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
        by_row["log_probability"] = (
            None if self.log_probability is None else self.log_probability[rows]
        )
        flat = (self.candidates[places], self.weights[places], self.candidate_probability[places])
        return SetPredictions(np.append(0, np.cumsum(sizes)), *flat, **by_row)

    def places(self, rows: npt.NDArray[Any]) -> Numbers:
        """The places of the rows' candidates in the flat arrays."""
        sizes = np.diff(self.offsets)[rows]
        ends = np.cumsum(sizes)
        return np.asarray(
            np.repeat(self.offsets[:-1][rows] - (ends - sizes), sizes) + np.arange(sizes.sum())
        )

    def most_probable(self, shares: Shares) -> InsideSets:
        """Each row's label and runner-up, by the share of each candidate, such as those of `candidate_shares`."""
        rows = np.repeat(np.arange(len(self.inside)), np.diff(self.offsets))
        # Sorted by row, then by falling share; the lower class number comes first in a tie.
        order = np.lexsort((self.candidates, -shares, rows))
        first, alone = order[self.offsets[:-1]], np.diff(self.offsets) == 1
        second = order[self.offsets[:-1] + ~alone]
        return InsideSets(
            self.candidates[first],
            shares[first],
            self.candidates[second],
            np.where(alone, np.float32(0), shares[second]),
        )

    def outside_shares(self, temperature: float = 1.0) -> Shares:
        """The probability of the likeliest class that is not a candidate, given that no candidate is the true label.

        Args:
            temperature: By which logits are divided, one of `TEMPERATURES`.
        """
        place = TEMPERATURES.index(temperature)
        rest = np.maximum(1 - self.set_probability[:, place], self.outside_probability[:, place])
        return np.asarray(
            self.outside_probability[:, place] / np.maximum(rest, TINY), dtype=np.float32
        )

    def candidate_shares(self, temperature: float = 1.0) -> Shares:
        """The probability of each candidate given that one of the row's candidates is the true label, with their weights."""
        logs = np.log(np.maximum(self.candidate_probability, TINY)) / temperature
        starts, sizes = self.offsets[:-1], np.diff(self.offsets)
        weights = self.weights * np.exp(logs - np.repeat(np.maximum.reduceat(logs, starts), sizes))
        return np.asarray(
            weights / np.repeat(np.add.reduceat(weights, starts), sizes), dtype=np.float32
        )

    def probabilities(self, temperature: float = 1.0) -> npt.NDArray[np.float16] | None:
        """The probability of every class, (rows, classes), a few rows at a time; None if they were not kept."""
        if self.log_probability is None:
            return None
        found = np.empty_like(self.log_probability)
        for rows in np.array_split(
            np.arange(len(found)), max(1, found.size // PROBABILITIES_AT_ONCE)
        ):
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
        columns: dict[str, Any] = {
            column.name: tensors[column.name].numpy() for column in fields(cls)
        }
        return cls(
            **{
                **columns,
                "log_probability": columns["log_probability"]
                if columns["log_probability"].size
                else None,
            }
        )


def predict_sets(
    predict_proba: Callable[[Any], npt.NDArray[np.float32]], x: npt.NDArray[Any], sets: Candidates
) -> SetPredictions:
    """Predict all examples in blocks of rows, so that the full matrix of probabilities never exists."""
    found = SetPredictions.empty(sets)
    for rows in np.array_split(
        np.arange(len(x)), max(1, len(x) * sets.n_classes // PROBABILITIES_AT_ONCE)
    ):
        found.put(
            rows,
            SetPredictions.of(
                torch.from_numpy(predict_proba(x[rows[0] : rows[-1] + 1])), sets.select(rows)
            ),
        )
    return found


def judged(classifier: Any, x: npt.NDArray[Any], sets: Candidates) -> dict[str, Tensor]:
    """A fitted classifier's predictions for examples, as tensors to be stored."""
    return predict_sets(classifier.predict_proba, x, sets).tensors()
