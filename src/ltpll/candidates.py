"""Candidates: which labels each example may have, stored as one flat list of labels so that memory grows with their number."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.errors import InputError, InputWarning, shown
from ltpll.sets import MOST_CLASSES, empty_row, read_matrix, read_series, read_sets, row_of

if TYPE_CHECKING:
    import pandas as pd


class Candidates:
    """For N examples and C classes, the candidate labels of row i are `labels[offsets[i]:offsets[i + 1]]`, sorted and distinct.

    `candidates[index]` gives a dense boolean (batch, C) tensor for a tensor of row numbers, on the device of the candidates.
    Build one with `Candidates.of(anything)` or with the `from_…` functions it chooses from.
    """

    def __init__(self, offsets: Tensor, labels: Tensor, n_classes: int, classes: Sequence[Hashable] | None = None) -> None:
        self.offsets = offsets
        self.labels = labels
        self.n_classes = n_classes
        self.classes: tuple[Hashable, ...] = tuple(range(n_classes)) if classes is None else tuple(classes)
        self.max_size = int(self.sizes.max()) if len(self) else 0
        self._slots = torch.arange(max(self.max_size, 1), device=offsets.device)

    # ---- building -------------------------------------------------------------------------------------------------

    @classmethod
    def of(
        cls, source: Any, *, classes: Sequence[Hashable] | None = None, n_classes: int | None = None, separator: str = "|"
    ) -> Candidates:
        """From whatever holds the sets: a 0/1 matrix (numpy, torch, scipy sparse, DataFrame), a list of sets, a pandas Series."""
        if isinstance(source, Candidates):
            return source
        kind = type(source).__module__.split(".")[0]
        if kind == "pandas" and hasattr(source, "columns"):
            names = list(source.columns) if classes is None else classes
            return cls.from_matrix(source.to_numpy(), classes=names, n_classes=n_classes)
        if kind == "pandas":
            return cls.from_series(source, classes=classes, n_classes=n_classes, separator=separator)
        if kind == "scipy" or isinstance(source, Tensor) or (isinstance(source, np.ndarray) and source.ndim != 1):
            return cls.from_matrix(source, classes=classes, n_classes=n_classes)
        if not isinstance(source, Iterable):
            raise InputError(f"Candidates cannot be read from {shown(source)}: give a 0/1 matrix, a list of sets or a pandas Series.")
        return cls.from_sets(source, classes=classes, n_classes=n_classes)

    @classmethod
    def from_matrix(cls, matrix: Any, *, classes: Sequence[Hashable] | None = None, n_classes: int | None = None) -> Candidates:
        """From an N × C matrix of zeros and ones: numpy, torch or scipy sparse."""
        return cls.from_flat(*read_matrix(matrix, classes, n_classes))

    @classmethod
    def from_sets(
        cls, sets: Iterable[Iterable[Hashable]], *, classes: Sequence[Hashable] | None = None, n_classes: int | None = None
    ) -> Candidates:
        """From one set or list of labels per row.

        Labels are class names where `classes` is given or where they are strings, else class numbers from 0.
        Without `classes`, names are the sorted distinct ones; without `n_classes`, numbers run up to the largest one.
        """
        return cls.from_flat(*read_sets(sets, classes, n_classes))

    @classmethod
    def from_series(
        cls, series: pd.Series, *, classes: Sequence[Hashable] | None = None, n_classes: int | None = None, separator: str = "|"
    ) -> Candidates:
        """From a pandas Series of lists or of strings such as `cat|dog`; blanks around names are dropped."""
        return cls.from_flat(*read_series(series.tolist(), separator, classes, n_classes))

    @classmethod
    def from_flat(
        cls, indptr: npt.NDArray[Any], numbers: npt.NDArray[Any], n_classes: int, names: tuple[Hashable, ...] | None = None
    ) -> Candidates:
        """From all labels in one array, those of row i at `indptr[i]:indptr[i + 1]`; every other constructor ends here.

        Refuses what cannot be a set of candidates, sorts each row and drops repeated labels.
        """
        n_rows = len(indptr) - 1
        if n_rows == 0:
            raise InputError("There are no rows: candidates need at least one example.")
        empty = np.flatnonzero(np.diff(indptr) == 0)
        if len(empty):
            raise InputError(empty_row(int(empty[0]), len(empty)))
        wrong = np.flatnonzero((numbers < 0) | (numbers >= n_classes))
        if len(wrong):
            row = row_of(int(wrong[0]), indptr)
            raise InputError(
                f"Row {row} has the candidate {int(numbers[wrong[0]])}, but classes are numbered 0 to {n_classes - 1}: "
                "correct the row or raise n_classes."
            )
        if n_classes > MOST_CLASSES:
            raise InputError(
                f"There would be {n_classes:,} classes, numbered from 0, and more than {MOST_CLASSES:,} cannot be learned: "
                "give labels that are no such numbers as text, or with the list of classes."
            )
        if n_classes < 2:
            raise InputError(f"There is only {n_classes} class: learning to tell classes apart needs at least two.")
        owner = np.repeat(np.arange(n_rows, dtype=np.int64), np.diff(indptr))
        # Rows come in order, so a merge sort is nearly free; numpy's unique hashes and took ten times as long on five million labels.
        keys = np.sort(owner * n_classes + numbers.astype(np.int64), kind="stable")
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
        owner, numbers = keys // n_classes, keys % n_classes
        indptr = np.searchsorted(owner, np.arange(n_rows + 1))
        offsets = torch.from_numpy(indptr.astype(np.int32 if len(numbers) < 2**31 else np.int64))
        labels = torch.from_numpy(numbers.astype(np.int16 if n_classes <= 2**15 else np.int32))
        return cls(offsets, labels, n_classes, names)

    # ---- reading --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Tensor:
        """How many candidates each row has, (N,)."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def device(self) -> torch.device:
        return self.offsets.device

    def slots(self, index: Tensor) -> Tensor:
        """Positions in `labels` of the rows' candidates, (batch, max_size); short rows repeat their last one.

        The shape depends on nothing but the batch size, so no host synchronisation is needed and a step can be captured.
        Repeating a valid position, rather than masking, makes every duplicate write carry the same value.
        """
        index = torch.where(index < 0, index + len(self), index)  # as tensors count: −1 is the last row
        start = self.offsets[index].long()
        last = self.offsets[index + 1].long() - 1
        return torch.minimum(start[:, None] + self._slots, last[:, None])

    def __getitem__(self, index: Tensor) -> Tensor:
        dense = torch.zeros(len(index), self.n_classes, dtype=torch.bool, device=self.device)
        return dense.scatter_(1, self.labels[self.slots(index)].long(), True)

    def row(self, i: int) -> list[int]:
        """The candidate labels of one row."""
        return [int(label) for label in self.labels[self.offsets[i] : self.offsets[i + 1]]]

    def dense(self) -> Tensor:
        """All rows as a boolean (N, C) tensor; for small data and tests."""
        return self[torch.arange(len(self), device=self.device)]

    def counts(self) -> Tensor:
        """In how many rows each class is a candidate, (C,)."""
        return torch.bincount(self.labels.long(), minlength=self.n_classes)

    def to(self, device: torch.device | str) -> Candidates:
        return Candidates(self.offsets.to(device), self.labels.to(device), self.n_classes, self.classes)

    def select(self, rows: npt.ArrayLike) -> Candidates:
        """The candidates of some rows, in the given order."""
        chosen = np.asarray(rows)
        offsets, labels = self.offsets.cpu().numpy(), self.labels.cpu().numpy()
        sizes = (offsets[1:] - offsets[:-1])[chosen]
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        where = np.repeat(offsets[:-1][chosen] - indptr[:-1], sizes) + np.arange(indptr[-1])
        chosen_offsets, chosen_labels = torch.from_numpy(indptr.astype(offsets.dtype)), torch.from_numpy(labels[where])
        return Candidates(chosen_offsets, chosen_labels, self.n_classes, self.classes).to(self.device)

    def contains(self, labels: Tensor) -> Tensor:
        """For one label per row, whether it is among the row's candidates, (N,) bool."""
        everything = torch.arange(len(self), device=self.device)
        return torch.cat(
            [(self.labels[self.slots(part)].long() == labels[part].to(self.device)[:, None]).any(1) for part in everything.split(1 << 16)]
        )

    @property
    def n_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (self.offsets, self.labels, self._slots))

    def __repr__(self) -> str:
        mean = len(self.labels) / max(len(self), 1)
        return f"Candidates({len(self)} rows, {self.n_classes} classes, {mean:.2f} candidates a row)"

    # ---- judging --------------------------------------------------------------------------------------------------

    def check_learnable(self) -> None:
        """Refuse sets that no method can learn from, and warn of those that probably were not meant."""
        if len(self) < 2:
            raise InputError("There is only 1 row: training needs at least two examples.")
        if bool((self.sizes == self.sizes[0]).all()):
            by_row = self.labels.view(len(self), -1)
            if bool((by_row == by_row[0]).all()):
                names = ", ".join(str(self.classes[label]) for label in self.row(0)[:10])[:200]
                raise InputError(
                    f"All {len(self)} rows have the same candidates ({names}): nothing tells the classes apart; "
                    "check how the sets were read."
                )
        never = torch.nonzero(self.counts() == 0).flatten().tolist()
        if never:
            names = ", ".join(shown(self.classes[label]) for label in never[:5]) + (", …" if len(never) > 5 else "")
            warnings.warn(
                f"{len(never)} of {self.n_classes} classes are never a candidate ({names}): they cannot be learned; "
                "remove them from the classes if they were not meant.",
                InputWarning,
                stacklevel=2,
            )
