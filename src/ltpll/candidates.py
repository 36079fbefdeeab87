"""Candidates: which labels each example may have, stored as one flat list of labels so that memory grows with their number."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence, Set
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.errors import InputError, InputWarning

if TYPE_CHECKING:
    import pandas as pd


class Candidates:
    """For N examples and C classes, the candidate labels of row i are `labels[offsets[i]:offsets[i + 1]]`, sorted and distinct.

    `candidates[index]` gives a dense boolean (batch, C) tensor for a tensor of row numbers, on the device of `index`'s owner.
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
        cls,
        source: Any,
        *,
        classes: Sequence[Hashable] | None = None,
        n_classes: int | None = None,
        separator: str = "|",
    ) -> Candidates:
        """From whatever holds the sets: a 0/1 matrix (numpy, torch, scipy sparse, DataFrame), a list of sets, a pandas Series."""
        if isinstance(source, Candidates):
            return source
        kind = type(source).__module__.split(".")[0]
        if kind == "pandas" and type(source).__name__ == "Series":
            return cls.from_series(source, classes=classes, n_classes=n_classes, separator=separator)
        if kind == "pandas":
            return cls.from_matrix(source.to_numpy(), classes=list(source.columns) if classes is None else classes)
        if kind == "scipy" or isinstance(source, Tensor) or (isinstance(source, np.ndarray) and source.ndim == 2):
            return cls.from_matrix(source, classes=classes)
        return cls.from_sets(source, classes=classes, n_classes=n_classes)

    @classmethod
    def from_matrix(cls, matrix: Any, *, classes: Sequence[Hashable] | None = None) -> Candidates:
        """From an N × C matrix of zeros and ones: numpy, torch or scipy sparse."""
        if hasattr(matrix, "tocsr"):
            csr = matrix.tocsr(copy=True)
            csr.sum_duplicates()
            _check_binary(csr.data, lambda k: int(np.searchsorted(csr.indptr, k, side="right") - 1))
            csr.eliminate_zeros()
            csr.sort_indices()
            shape, indptr, indices = csr.shape, csr.indptr, csr.indices
        else:
            dense = matrix.detach().cpu().numpy() if isinstance(matrix, Tensor) else np.asarray(matrix)
            if dense.ndim != 2:
                raise InputError(f"A candidate matrix has two dimensions (rows × classes); this one has shape {dense.shape}.")
            if dense.dtype == object:
                raise InputError("A candidate matrix holds zeros and ones; this one holds Python objects: convert it to int first.")
            _check_binary(dense.ravel(), lambda k: k // dense.shape[1])
            rows, indices = np.nonzero(dense)
            shape, indptr = dense.shape, np.searchsorted(rows, np.arange(dense.shape[0] + 1))
        names = None if classes is None else _checked_names(classes, shape[1])
        return cls.from_flat(np.asarray(indptr), np.asarray(indices), shape[1], names)

    @classmethod
    def from_sets(
        cls,
        sets: Iterable[Iterable[Hashable]],
        *,
        classes: Sequence[Hashable] | None = None,
        n_classes: int | None = None,
    ) -> Candidates:
        """From one set or list of labels per row.

        Labels are class names where `classes` is given or where they are strings, else class numbers from 0.
        Without `classes`, names are the sorted distinct ones; without `n_classes`, numbers run up to the largest one.
        """
        rows: list[Sequence[Any] | Set[Any]] = [_as_labels(row, i) for i, row in enumerate(sets)]
        sizes = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
        flat: list[Any] = list(chain.from_iterable(rows))
        indptr = np.concatenate([[0], np.cumsum(sizes)])

        named = classes is not None or any(isinstance(label, str) for label in flat)
        if named:
            names = _sorted_names(flat) if classes is None else _checked_names(classes)
            if n_classes is not None and n_classes != len(names):
                raise InputError(f"n_classes is {n_classes}, but there are {len(names)} class names: give only one of the two.")
            numbers = _numbers_of_names(flat, names, indptr)
            return cls.from_flat(indptr, numbers, len(names), names)
        numbers = _class_numbers(flat, indptr)
        if n_classes is None:
            n_classes = int(numbers.max()) + 1 if len(numbers) else 0
        return cls.from_flat(indptr, numbers, n_classes, None)

    @classmethod
    def from_series(
        cls,
        series: pd.Series,
        *,
        classes: Sequence[Hashable] | None = None,
        n_classes: int | None = None,
        separator: str = "|",
    ) -> Candidates:
        """From a pandas Series of lists or of strings such as `cat|dog`; blanks around names are dropped."""
        if not separator:
            raise InputError("The separator between candidate names is empty: give the character that separates them, such as '|'.")
        missing = np.flatnonzero([value is None or (isinstance(value, float) and np.isnan(value)) for value in series])
        if len(missing):
            raise InputError(_empty_row(int(missing[0])))

        def split(value: Any) -> Any:
            if not isinstance(value, str):
                return value
            return [part for part in (part.strip() for part in value.split(separator)) if part]

        return cls.from_sets([split(value) for value in series], classes=classes, n_classes=n_classes)

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
            raise InputError(_empty_row(int(empty[0]), len(empty)))
        wrong = np.flatnonzero((numbers < 0) | (numbers >= n_classes))
        if len(wrong):
            row = _row_of(int(wrong[0]), indptr)
            raise InputError(
                f"Row {row} has the candidate {int(numbers[wrong[0]])}, but classes are numbered 0 to {n_classes - 1}: "
                "correct the row or raise n_classes."
            )
        if n_classes < 2:
            raise InputError(f"There is only {n_classes} class: learning to tell classes apart needs at least two.")
        row_of = np.repeat(np.arange(n_rows), np.diff(indptr))
        keys = np.unique(row_of.astype(np.int64) * n_classes + numbers.astype(np.int64))
        row_of, numbers = keys // n_classes, keys % n_classes
        indptr = np.searchsorted(row_of, np.arange(n_rows + 1))
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
        return Candidates(torch.from_numpy(indptr.astype(offsets.dtype)), torch.from_numpy(labels[where]), self.n_classes, self.classes)

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
                names = ", ".join(str(self.classes[label]) for label in self.row(0))
                raise InputError(
                    f"All {len(self)} rows have the same candidates ({names}): nothing tells the classes apart; "
                    "check how the sets were read."
                )
        never = torch.nonzero(self.counts() == 0).flatten().tolist()
        if never:
            names = ", ".join(repr(self.classes[label]) for label in never[:5]) + (", …" if len(never) > 5 else "")
            warnings.warn(
                f"{len(never)} of {self.n_classes} classes are never a candidate ({names}): they cannot be learned; "
                "remove them from the classes if they were not meant.",
                InputWarning,
                stacklevel=2,
            )


def _as_labels(row: Any, i: int) -> Sequence[Any] | Set[Any]:
    """One row as a collection of labels."""
    if isinstance(row, str):
        raise InputError(
            f"Row {i} is the string {row!r}, not a set of labels: pass lists of names, or a pandas Series to have strings split."
        )
    if isinstance(row, (Tensor, np.ndarray)):
        return row.ravel().tolist()
    if isinstance(row, (list, tuple, set, frozenset)):
        return row
    try:
        return list(row)
    except TypeError:
        raise InputError(f"Row {i} is {row!r}, not a set or list of labels: a known label is a list of one.") from None


def _row_of(position: int, indptr: npt.NDArray[Any]) -> int:
    return int(np.searchsorted(indptr, position, side="right") - 1)


def _empty_row(row: int, n: int = 1) -> str:
    more = f" ({n} such rows)" if n > 1 else ""
    return f"Row {row} has no candidate label{more}: drop the row, or list every class if nothing is known about it."


def _check_binary(values: npt.NDArray[Any], row_of: Any) -> None:
    wrong = np.flatnonzero(~((values == 0) | (values == 1)))
    if len(wrong):
        value = values[wrong[0]]
        raise InputError(
            f"Row {row_of(int(wrong[0]))} of the candidate matrix holds {value}, but only 0 and 1 are allowed: "
            "turn scores into sets first, for example `scores > 0`."
        )


def _checked_names(classes: Sequence[Hashable], n_columns: int | None = None) -> tuple[Hashable, ...]:
    names = tuple(classes)
    if len(set(names)) != len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise InputError(f"The class name {twice!r} stands twice in the list of classes: names must be distinct.")
    if n_columns is not None and len(names) != n_columns:
        raise InputError(f"There are {len(names)} class names for {n_columns} columns of the candidate matrix: give one name a column.")
    return names


def _sorted_names(flat: list[Any]) -> tuple[Hashable, ...]:
    distinct = set(flat)
    odd = next((label for label in distinct if not isinstance(label, str)), None)
    if odd is not None:
        raise InputError(f"Labels mix names with {odd!r}, which is no string: use names everywhere, or give the list of classes.")
    return tuple(sorted(distinct))


def _numbers_of_names(flat: list[Any], names: tuple[Hashable, ...], indptr: npt.NDArray[Any]) -> npt.NDArray[Any]:
    number = {name: i for i, name in enumerate(names)}
    numbers = np.fromiter((number.get(label, -1) for label in flat), dtype=np.int64, count=len(flat))
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        first = int(unknown[0])
        shown = ", ".join(repr(name) for name in names[:5]) + (", …" if len(names) > 5 else "")
        raise InputError(
            f"Row {_row_of(first, indptr)} has the candidate {flat[first]!r}, which is not one of the {len(names)} classes ({shown}): "
            "correct the row or add the class."
        )
    return numbers


def _class_numbers(flat: list[Any], indptr: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not flat:
        return np.zeros(0, dtype=np.int64)
    try:
        values = np.asarray(flat)
        numbers = values.astype(np.int64)
        wrong = np.flatnonzero(numbers != values) if values.dtype.kind in "fiu" else np.arange(1)
    except (TypeError, ValueError, OverflowError):
        wrong = np.asarray([next(i for i, v in enumerate(flat) if not isinstance(v, (int, np.integer)))])
    if len(wrong):
        first = int(wrong[0])
        raise InputError(
            f"Row {_row_of(first, indptr)} has the candidate {flat[first]!r}, which is no class number: "
            "use whole numbers from 0, or give the list of classes."
        )
    return numbers
