"""Candidates: which labels each example may have, stored as one flat array."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.candidates.cells import (
    PLAIN_ROW,
    SEPARATOR,
    FlatSets,
    RowName,
    no_candidates_error,
    row_at,
)
from ltpll.candidates.expressions import SetRules
from ltpll.candidates.parsing import (
    CLASS_LIMIT,
    DEFAULT_SCORES,
    VALUES_PER_PASS,
    is_missing_value,
    read_matrix,
    read_scores,
    read_source,
)
from ltpll.candidates.taxonomy import Taxonomy
from ltpll.errors import InputError, InputWarning, shown
from ltpll.formatting import are, counted, format_names

REMEMBERED = 1 << 16  # most positions of the last lookup that are kept
FEW_POSITIONS = 1 << 20  # most positions of all rows that are kept as a table
# Of scores that become weights: models are overconfident, and their scores contain their own class
# prior.
POWER_OF_SCORES = 0.25
LEAST_WEIGHT = 1e-6  # of a candidate, since its logarithm is taken


class Rows(NamedTuple):
    """The candidates of a batch of rows."""

    # For `read` and `write`: the rows' `slots`, or their numbers if all rows have equally many.
    where: Tensor
    labels: Tensor  # (batch, max_size), int64; short rows repeat their last label


class Candidates:
    """The candidate labels of N examples among C classes.

    Row i has the labels `labels[offsets[i]:offsets[i + 1]]`, sorted and distinct.
    `candidates[index]` is a dense boolean (batch, C) tensor for a tensor of row numbers, on the
    device of the candidates. Build candidates with `Candidates.of` or one of the `from_…`
    constructors; this one does not check its arguments.

    Args:
        offsets: (N + 1,) integers.
        labels: Class numbers from 0.
        n_classes: The number of classes.
        classes: Their names; by default 0, 1, ….
        groups: (N,) int64 numbers of the picture or scene that each row belongs to, if known.
        weights: (L,) float32, the evidence for each entry of `labels` that is known before
            training; it sums to one in each row.
        observed: The sets before a person's answers replaced some of them; they say how the sets
            arose, and how frequent classes are.

    Examples:
        >>> candidates = Candidates.of(["cat|fox", "dog"])
        >>> candidates[torch.tensor([0])]
        tensor([[ True, False,  True]])
    """

    def __init__(
        self,
        offsets: Tensor,
        labels: Tensor,
        n_classes: int,
        classes: Sequence[Hashable] | None = None,
        groups: Tensor | None = None,
        weights: Tensor | None = None,
        observed: Candidates | None = None,
    ) -> None:
        self.offsets, self.labels, self.n_classes = offsets, labels, n_classes
        self.groups, self.weights, self.observed = groups, weights, observed
        self.classes = tuple(range(n_classes) if classes is None else classes)
        self.max_size = int(self.sizes.max()) if len(self) else 0
        self._even = self.max_size > 0 and len(self) * self.max_size == len(labels)
        positions = torch.arange(max(self.max_size, 1), dtype=offsets.dtype)
        self._slots = positions.to(offsets.device)
        self._last: tuple[Tensor, Rows] | None = None
        # Relative to equal weights, so that equal weights change nothing. Computed here, because a
        # CUDA graph must not allocate it.
        sizes = self.sizes.long()
        self._log_weights = (
            None if weights is None else (weights * sizes.repeat_interleave(sizes)).log()
        )

    # ---- building --------------------------------------------------------------------------------

    @classmethod
    def of(
        cls,
        source: Any,
        *,
        classes: Sequence[Hashable] | None = None,
        n_classes: int | None = None,
        separator: str = SEPARATOR,
        groups: Iterable[Hashable] | None = None,
        taxonomy: Taxonomy | Mapping[str, str] | None = None,
        empty: str = "stop",
    ) -> Candidates:
        """Build candidates from any object that holds the sets.

        Args:
            source: A 0/1 matrix (numpy, torch, scipy sparse, or a table of pandas, polars or
                pyarrow), a list of sets, or a list, array or column (pandas, polars, pyarrow) of
                lists, or of strings such as `"cat|dog"`, `"!dog"` (every class but dog), `"*"`
                (every class); or a list of dictionaries with a score for each name (see
                `from_scores`). Names in lists are literal, and blanks
                around names are dropped.
            classes: The names of the classes in order; by default the column names of a table, or
                the sorted names that occur.
            n_classes: The number of classes, if the sets hold class numbers.
            separator: What separates the names in a string.
            groups: The picture or scene that each row belongs to, as any hashable values (see
                `with_groups`).
            taxonomy: Groups of classes whose names stand for all classes below them: a `Taxonomy`,
                or the parent of each name.
            empty: What an empty string, or a missing one, means: "stop" (an error) or "all" (every
                class).

        Returns:
            The candidates; `source` itself if it is a `Candidates` already and no groups are given.

        Raises:
            InputError: A row is not a set of candidates, or the classes or groups do not fit.

        Examples:
            >>> Candidates.of([{"cat", "fox"}, {"dog"}]).classes
            ('cat', 'dog', 'fox')
            >>> Candidates.of(["cat|fox", "dog", "!fox"]).row(2)
            [0, 1]
            >>> taxonomy = {"red fox": "Vulpes", "fennec": "Vulpes", "wolf": "Canis"}
            >>> Candidates.of(["Vulpes", "wolf"], taxonomy=taxonomy).row(0)
            [0, 1]
        """
        if isinstance(source, Candidates):
            found = source
        else:
            tree = Taxonomy(taxonomy) if isinstance(taxonomy, Mapping) else taxonomy
            rules = SetRules(tree, empty)
            found = cls.from_sets(read_source(source, classes, n_classes, separator, rules))
        if n_classes not in (None, found.n_classes):
            own = counted(found.n_classes, "class", "classes")
            raise InputError(f"n_classes is {n_classes}, but the sets have {own}: leave it out.")
        return found if groups is None else found.with_groups(groups)

    @classmethod
    def from_sets(
        cls, sets: FlatSets, row: RowName = PLAIN_ROW, scores: str = DEFAULT_SCORES
    ) -> Candidates:
        """Build candidates from sets that were read; scores weight them unless this is "none"."""
        found = cls.from_flat(*sets[:4], row)
        if sets.scores is None or scores == "none":
            return found
        return found.with_weights(sets.scores**POWER_OF_SCORES)

    @classmethod
    def from_matrix(cls, matrix: Any, *, classes: Sequence[Hashable] | None = None) -> Candidates:
        """Build candidates from an N × C matrix of zeros and ones.

        Args:
            matrix: A numpy array, a torch tensor or a scipy sparse matrix.
            classes: One name per column; by default 0, 1, ….

        Raises:
            InputError: The matrix holds other values than 0 and 1, or has a row without a 1.

        Examples:
            >>> Candidates.from_matrix(np.array([[1, 0, 1], [0, 1, 0]])).row(0)
            [0, 2]
        """
        return cls.from_sets(read_matrix(matrix, classes))

    @classmethod
    def from_scores(
        cls,
        matrix: Any,
        *,
        top_k: int | None = None,
        mass: float | None = None,
        classes: Sequence[Hashable] | None = None,
    ) -> Candidates:
        """Build weighted candidates from an N × C matrix of a model's probabilities.

        The weights are the fourth roots of the scores (see `with_weights`), since models are
        overconfident; `with_weights(None)` removes them.

        Args:
            matrix: A numpy array, a torch tensor, a scipy sparse matrix or a table of pandas or
                polars with numbers that are not negative.
            top_k: The candidates are the k classes with the highest scores, without those whose
                score is zero.
            mass: The candidates are the fewest classes that together have this share of the row's
                scores.
            classes: One name per column; by default the columns of a table, or else 0, 1, ….

        Raises:
            InputError: Not exactly one of `top_k` and `mass` is given, or a score is negative or
                not finite, or all scores of a row are zero.

        Examples:
            >>> scores = np.array([[0.64, 0.0, 0.36], [0.1, 0.8, 0.1]])
            >>> candidates = Candidates.from_scores(scores, top_k=2)
            >>> candidates.row(0), candidates.weights[:2]
            ([0, 2], tensor([0.5359, 0.4641]))
        """
        return cls.from_sets(read_scores(matrix, top_k, mass, classes))

    @classmethod
    def from_flat(
        cls,
        indptr: npt.NDArray[Any],
        numbers: npt.NDArray[Any],
        n_classes: int,
        names: tuple[Hashable, ...] | None = None,
        row: RowName = PLAIN_ROW,
    ) -> Candidates:
        """Build candidates from class numbers in one array; every other constructor ends here.

        Row i has the labels `numbers[indptr[i]:indptr[i + 1]]`. Each row is sorted, and repeated
        labels are dropped. `row` is how an error message refers to a row.

        Raises:
            InputError: A row is empty, a number is out of range, or there are fewer than two
                classes.

        Examples:
            >>> Candidates.from_flat(np.array([0, 2, 3]), np.array([2, 0, 1]), n_classes=3).row(0)
            [0, 2]
        """
        n_rows = len(indptr) - 1
        if n_rows == 0:
            raise InputError("There are no rows: candidates need at least one example.")
        empty = np.flatnonzero(np.diff(indptr) == 0)
        if len(empty):
            raise InputError(no_candidates_error(row(int(empty[0])), len(empty)))
        wrong = np.flatnonzero((numbers < 0) | (numbers >= n_classes))
        if len(wrong):
            first = int(wrong[0])
            which = f"{row(row_at(first, indptr))} has the candidate {int(numbers[first])}"
            range_ = f"classes are numbered 0 to {n_classes - 1}"
            raise InputError(f"{which}, but {range_}: correct the row or raise n_classes.")
        if n_classes > CLASS_LIMIT:
            raise InputError(
                f"There would be {n_classes:,} classes, more than {CLASS_LIMIT:,}: give labels "
                "that are not class numbers as text, or with the list of classes."
            )
        if n_classes < 2:
            raise InputError(f"There is only {n_classes} class: there must be at least two.")
        # In place, since these are the largest arrays of all.
        keys = np.repeat(np.arange(n_rows, dtype=np.int64) * n_classes, np.diff(indptr))
        keys += numbers.astype(np.int64, copy=False)
        # Rows come in order, so a merge sort is nearly free; np.unique took ten times as long on
        # five million labels.
        keys.sort(kind="stable")
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
        indptr = np.searchsorted(keys, np.arange(n_rows + 1, dtype=np.int64) * n_classes)
        numbers = np.remainder(keys, n_classes, out=keys)
        # `slots` computes positions of up to n_classes beyond the end before it clamps them.
        fits = len(numbers) + n_classes < 2**31
        offsets = torch.from_numpy(indptr.astype(np.int32 if fits else np.int64))
        labels = torch.from_numpy(numbers.astype(np.int16 if n_classes <= 2**15 else np.int32))
        return cls(offsets, labels, n_classes, names)

    # ---- reading ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and classes; scikit-learn then divides candidates into folds as it does arrays."""
        return len(self), self.n_classes

    @property
    def sizes(self) -> Tensor:
        """The number of candidates of each row, (N,)."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def n_slots(self) -> int:
        """The number of values that targets store: one per candidate of each row."""
        return len(self.labels)

    def class_of_slots(self) -> Tensor:
        """The class number of each of these values, int64."""
        return self.labels.long()

    @property
    def device(self) -> torch.device:
        return self.offsets.device

    def slots(self, index: Tensor) -> Tensor:
        """Positions in `labels` of the candidates of some rows, (batch, max_size).

        Short rows repeat their last position.

        The shape depends only on the batch size, so no synchronisation is needed and a CUDA graph
        can capture the step. Positions are repeated rather than masked, so that duplicate writes
        carry the same value.
        """
        start, end = self.offsets.index_select(0, index), self.offsets[1:].index_select(0, index)
        return torch.minimum(start[:, None] + self._slots, end[:, None] - 1).long()

    @cached_property
    def _table(self) -> Rows | None:
        """The positions and labels of all rows, if they differ in size and the table is small."""
        if self._even or not self.offsets.is_cpu or len(self) * self.max_size > FEW_POSITIONS:
            return None
        slots = self.slots(torch.arange(len(self)))
        return Rows(slots, self.labels[slots].long())

    def rows(self, index: Tensor) -> Rows:
        """The candidates of some rows; as in a tensor, −1 is the last row."""
        if not self.offsets.is_cpu:
            index = index.to(self.device, torch.int64)
            return self._find_rows(torch.where(index < 0, index + len(self), index))
        # A step asks for the same rows three times: to read candidates, to read targets and to
        # write targets. On a GPU the comparison would force a synchronisation, and a CUDA graph
        # must not depend on a lookup outside of it.
        last = self._last
        if last is not None and last[0].dtype == index.dtype and torch.equal(last[0], index):
            return last[1]
        own = index.to(torch.int64, copy=True)  # the caller may modify its tensor
        try:
            rows = self._find_rows(own)
        except IndexError:  # checking for negative numbers would slow down every batch
            rows = self._find_rows(torch.where(own < 0, own + len(self), own))
        self._last = (own, rows) if rows.labels.numel() <= REMEMBERED else None
        return rows

    def _find_rows(self, index: Tensor) -> Rows:
        if self._table is not None:
            return Rows(*(part.index_select(0, index) for part in self._table))
        where = index if self._even else self.slots(index)
        return Rows(where, self.gather_values(self.labels, where).long())

    def gather_values(self, flat: Tensor, where: Tensor) -> Tensor:
        """Read the values of some rows, (batch, max_size), from one value per label."""
        if self._even:
            return flat.view(-1, self.max_size).index_select(0, where)
        return flat.index_select(0, where.view(-1)).view(where.shape)

    def scatter_values(self, flat: Tensor, where: Tensor, values: Tensor) -> None:
        """Write (batch, max_size) values to where `read` finds them."""
        if self._even:
            flat.view(-1, self.max_size).index_copy_(0, where, values)
        else:
            flat.scatter_(0, where.view(-1), values.reshape(-1))

    @overload
    def __getitem__(self, index: Tensor) -> Tensor: ...

    @overload
    def __getitem__(self, index: slice | npt.NDArray[Any] | tuple[Any, ...]) -> Candidates: ...

    def __getitem__(self, index: Any) -> Tensor | Candidates:
        if not isinstance(index, Tensor):  # scikit-learn asks for `candidates[rows, ...]`
            return self.select(index[0] if isinstance(index, tuple) else index)
        labels = self.rows(index).labels
        dense = self.labels.new_zeros(len(labels), self.n_classes, dtype=torch.bool)
        # A tensor of ones: scattering a scalar takes twice as long.
        return dense.scatter_(1, labels, torch.ones_like(labels, dtype=torch.bool))

    def is_candidate_slot(self, index: Tensor) -> Tensor:
        """Which columns of `rows` hold candidates, not repeated ones, (batch, max_size) bool."""
        return torch.arange(self.max_size, device=self.device) < self.sizes[index][:, None]

    def row(self, i: int) -> list[int]:
        """The candidate labels of one row."""
        return [int(label) for label in self.labels[self.offsets[i] : self.offsets[i + 1]]]

    def dense(self) -> Tensor:
        """All rows as a boolean (N, C) tensor, for small data."""
        return self[torch.arange(len(self), device=self.device)]

    def rows_per_class(self) -> Tensor:
        """The number of rows in which each class is a candidate, (C,)."""
        return torch.bincount(self.labels.long(), minlength=self.n_classes)

    def log_weights(self, index: Tensor) -> Tensor | None:
        """The evidence for each candidate, (batch, C): the log of weight times size of set.

        It is zero for other classes, and where all candidates have the same weight. None if nothing
        is known.
        """
        flat = self._log_weights
        return None if flat is None else self.spread_over_classes(flat, index)

    def spread_over_classes(self, flat: Tensor, index: Tensor) -> Tensor:
        """The values of some rows, (batch, C), from `flat`, which has one value per label.

        Zero for other classes.
        """
        where, labels = self.rows(index)
        dense = flat.new_zeros(len(labels), self.n_classes)
        return dense.scatter_(1, labels, self.gather_values(flat, where))

    def _copy_with(self, **parts: Any) -> Candidates:
        """A copy with other tensors or candidates in the place of some."""
        kept = {"classes": self.classes, "groups": self.groups, "weights": self.weights}
        known = {"offsets": self.offsets, "labels": self.labels, "observed": self.observed}
        return Candidates(n_classes=self.n_classes, **{**kept, **known, **parts})

    def to(self, device: torch.device | str) -> Candidates:
        names = ("offsets", "labels", "groups", "weights", "observed")
        parts = {name: getattr(self, name) for name in names}
        return self._copy_with(
            **{name: None if part is None else part.to(device) for name, part in parts.items()}
        )

    def with_groups(self, groups: Iterable[Hashable] | None) -> Candidates:
        """Say which rows belong to the same picture or scene.

        Args:
            groups: One hashable value per row, equal for rows of the same group; None removes the
                groups.

        Returns:
            A copy with the attribute `groups`, numbered in order of first appearance; it shares the
            storage of the sets.

        Raises:
            InputError: There is not one value per row, or a value is missing or not hashable.

        Examples:
            >>> sets = Candidates.of(["cat|dog", "cat|dog", "fox"])
            >>> sets.with_groups(["a.png", "a.png", "b.png"]).groups
            tensor([0, 0, 1])
        """
        numbers = None if groups is None else _group_numbers(groups, len(self)).to(self.device)
        observed = None if self.observed is None else self.observed.with_groups(groups)
        return self._copy_with(groups=numbers, observed=observed)

    def with_weights(self, weights: npt.ArrayLike | Tensor | None) -> Candidates:
        """Say how much speaks for each candidate before training, such as the votes of annotators.

        Training starts from these weights and multiplies every later estimate by them. They are
        likelihoods: do not include how frequent the classes are, which the rebalancer corrects for.

        Args:
            weights: One positive number per candidate, in the order of `labels`; None removes the
                weights.

        Returns:
            A copy with the attribute `weights`, which sums to one in each row; it shares the
            storage of the sets.

        Raises:
            InputError: There is not one number per candidate, or a number is not positive and
                finite.

        Examples:
            >>> Candidates.of(["cat|dog", "fox"]).with_weights([2, 1, 1]).weights
            tensor([0.6667, 0.3333, 1.0000])
        """
        if weights is None:
            return self._copy_with(weights=None)
        given = weights.detach().cpu() if isinstance(weights, Tensor) else weights
        try:
            values = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError("The weights are not numbers: give one per candidate.") from None
        if values.shape != (len(self.labels),):
            which = f"The weights have shape {values.shape} for {len(self.labels)} candidates"
            raise InputError(f"{which}: give one number per candidate, row by row.")
        offsets = self.offsets.cpu().numpy()
        wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
        if len(wrong):
            first = int(wrong[0])
            name = shown(self.classes[int(self.labels[first])])
            which = f"{PLAIN_ROW(row_at(first, offsets))} has the weight {values[first]} for {name}"
            raise InputError(
                f"{which}: weights must be positive; remove a label that is impossible from the "
                "candidates."
            )
        starts, sizes = offsets[:-1], np.diff(offsets)
        values = values / np.repeat(np.maximum.reduceat(values, starts), sizes)  # no sum overflows
        values = np.maximum(
            values / np.repeat(np.add.reduceat(values, starts), sizes), LEAST_WEIGHT
        )
        values = values / np.repeat(np.add.reduceat(values, starts), sizes)
        shares = torch.from_numpy(values.astype(np.float32))
        return self._copy_with(weights=shares.to(self.device))

    def select(self, rows: npt.ArrayLike | slice) -> Candidates:
        """The candidates of some rows, in the given order."""
        chosen = np.arange(len(self))[rows if isinstance(rows, slice) else np.asarray(rows)]
        offsets = self.offsets.cpu().numpy()
        sizes = np.diff(offsets)[chosen]
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        where = np.repeat(offsets[:-1][chosen] - indptr[:-1], sizes) + np.arange(indptr[-1])

        def at(part: Tensor | None, index: npt.NDArray[Any]) -> Tensor | None:
            return None if part is None else torch.from_numpy(part.cpu().numpy()[index])

        found = self._copy_with(
            offsets=torch.from_numpy(indptr.astype(offsets.dtype)),
            labels=at(self.labels, where),
            groups=at(self.groups, chosen),
            weights=at(self.weights, where),
            observed=None if self.observed is None else self.observed.select(rows),
        )
        return found.to(self.device)

    def with_answers(self, rows: npt.ArrayLike, sets: Sequence[Iterable[int]]) -> Candidates:
        """The candidates with other sets for some rows, such as a person's answers.

        Args:
            rows: The numbers of these rows, each at most once.
            sets: Their new candidates, as class numbers.

        Returns:
            A copy. The candidates of the given rows weigh the same; other rows keep their weights.
            The class prior is still estimated from the sets as they were (`observed`), because
            people are asked about special rows.

        Raises:
            InputError: A new set is empty, or has a number that is not a class.

        Examples:
            >>> Candidates.of(["cat|dog", "cat|fox"]).with_answers([1], [[1]]).row(1)
            [1]
        """
        chosen = np.asarray(rows, dtype=np.int64)
        given = [np.asarray(list(one), dtype=np.int64) for one in sets]
        owners = np.repeat(np.arange(len(self)), self.sizes.cpu().numpy())
        kept = ~np.isin(owners, chosen)
        owners = np.concatenate([owners[kept], np.repeat(chosen, [len(one) for one in given])])
        labels = np.concatenate([self.labels.cpu().numpy()[kept].astype(np.int64), *given])
        order = np.lexsort((labels, owners))
        indptr = np.searchsorted(owners[order], np.arange(len(self) + 1))
        found = Candidates.from_flat(indptr, labels[order], self.n_classes, self.classes)
        if self.weights is not None:
            answered = np.ones(len(labels) - kept.sum(), dtype=np.float32)
            weights = np.append(self.weights.cpu().numpy()[kept], answered)
            distinct = np.unique(owners * self.n_classes + labels, return_index=True)[1]
            found = found.with_weights(weights[distinct])
        observed = self if self.observed is None else self.observed
        return found._copy_with(groups=self.groups, observed=observed).to(self.device)

    def contains(self, labels: Tensor) -> Tensor:
        """Whether the label given for each row is one of its candidates, (N,) bool."""
        labels = labels.to(self.device)
        found = [
            (self.labels[self.slots(part)].long() == labels[part][:, None]).any(1)
            for part in self.row_blocks(self.max_size)
        ]
        return torch.cat(found)

    def row_blocks(self, width: int) -> tuple[Tensor, ...]:
        """All row numbers in parts, so that arrays with `width` values per row stay small."""
        rows = torch.arange(len(self), device=self.device)
        parts: tuple[Tensor, ...] = rows.split(max(1, VALUES_PER_PASS // max(width, 1)))
        return parts

    def __repr__(self) -> str:
        mean = f"{len(self.labels) / max(len(self), 1):.2f} candidates per row"
        return f"Candidates({len(self)} rows, {self.n_classes} classes, {mean})"

    # ---- checking --------------------------------------------------------------------------------

    def check_learnable(self) -> None:
        """Check that the sets can be trained on.

        Raises:
            InputError: There is one row, or all rows have the same candidates.

        Warns:
            InputWarning: A class is never a candidate.
        """
        if len(self) < 2:
            raise InputError("There is only 1 row: training needs at least two examples.")
        if bool((self.sizes == self.sizes[0]).all()):
            by_row = self.labels.view(len(self), -1)
            if bool((by_row == by_row[0]).all()):
                names = format_names([str(self.classes[label]) for label in self.row(0)], 10)
                which = f"All {len(self)} rows have the same candidates ({names})"
                problem = "so the classes cannot be told apart"
                raise InputError(f"{which}, {problem}: check how the sets were read.")
        never = torch.nonzero(self.rows_per_class() == 0).flatten().tolist()
        if never:
            names = format_names([shown(self.classes[label]) for label in never], 5)
            them = "it: remove it" if len(never) == 1 else "them: remove them"
            warnings.warn(
                f"{len(never)} of {self.n_classes} classes {are(len(never))} never a candidate "
                f"({names}), so nothing can be learned about {them} from the classes if that is "
                "not intended.",
                InputWarning,
                stacklevel=2,
            )


def _group_numbers(groups: Iterable[Hashable], n_rows: int) -> Tensor:
    """Number groups in order of first appearance."""
    listed: list[Any] = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    if len(listed) != n_rows:
        which = f"There {are(len(listed))} {counted(len(listed), 'group')}"
        raise InputError(f"{which} for {counted(n_rows, 'row')}: give one per row.")
    number: dict[Hashable, int] = {}
    for i, group in enumerate(listed):
        if not isinstance(group, Hashable) or is_missing_value(group):
            which = f"{PLAIN_ROW(i)} has the group {shown(group)}"
            raise InputError(f"{which}: give a name or number, which may be the row's own.")
        number.setdefault(group, len(number))
    return torch.tensor([number[group] for group in listed])
