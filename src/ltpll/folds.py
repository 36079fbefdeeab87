"""Folds: rows of a cross-validation; rare classes stay in training, groups stay together."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _num_samples

from ltpll.candidates import Candidates
from ltpll.candidates.labels import read_labels
from ltpll.errors import InputError, option
from ltpll.formatting import are, counted
from ltpll.validation import whole_number

# A class with fewer groups per fold than this is spread over the folds; chance spreads the others
# well enough.
RARE = 20
Rows = npt.NDArray[np.int64]


class CandidateKFold(BaseCrossValidator):  # type: ignore[misc]
    """K-fold cross-validation for candidate sets, as a splitter for scikit-learn.

    With `KFold`, all rows of a rare class may lie in one fold, and a classifier that is trained on
    the other folds does not know the class. Here rare classes are spread over the folds, so that
    every class that is a candidate in at least two rows stays a candidate in each training part; a
    class may be lost only if rare classes share so many rows that no division keeps all of them.
    Folds have about the same size.

    Args:
        n_splits: The number of folds, at least 2.
        random_state: An integer, a `RandomState` or None; rows are always shuffled. An integer
            makes folds reproducible.

    Examples:
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = uniform_candidates(y, n_classes=4, ambiguity=0.3, seed=0)
        >>> for train, test in CandidateKFold(5).split(X, sets):
        ...     print(len(train), len(test))
        68 17
        68 17
        68 17
        68 17
        68 17
    """

    # So that scikit-learn's metadata routing passes groups on.
    __metadata_request__split: ClassVar[dict[str, bool]] = {"groups": True}

    def __init__(self, n_splits: int = 5, *, random_state: Any = 0) -> None:
        self.n_splits = whole_number(n_splits, 2, "n_splits")
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of folds; the arguments are ignored."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Rows, Rows]]:
        """Divide the rows into folds.

        Args:
            X: The inputs, of which only the number counts.
            y: Candidate sets in any form that `PartialLabelClassifier.fit` takes: `Candidates`,
                sets, strings, a 0/1 matrix, plain labels.
            groups: The picture or scene of each row; all rows of a group are in the same fold, and
                rare classes stay in at least two folds if they occur in at least two groups. By
                default the groups of `y`, if it is a `Candidates` that has some.

        Yields:
            The numbers of the rows to train on and of the rows to test on.

        Raises:
            InputError: There are no sets, not as many as inputs, or fewer rows or groups than
                folds.
        """
        if y is None:
            raise InputError(
                "Folds depend on the candidate sets, but y is None: give the sets, or use KFold."
            )
        sets = read_labels(y).candidates
        if groups is not None:
            sets = sets.with_groups(groups)
        n = len(sets)
        n_inputs = n if X is None else _num_samples(X)
        if n_inputs != n:
            raise InputError(
                f"There {are(n)} {counted(n, 'candidate set')} for {counted(n_inputs, 'row')}: "
                "give one set per row."
            )
        n_groups = number_of_groups(sets)
        if n_groups < self.n_splits:
            what = counted(n_groups, "row" if sets.groups is None else "group")
            raise InputError(
                f"{what} cannot be divided into {self.n_splits} folds: use fewer folds."
            )
        yield from _splits(sets, self.n_splits, self.random_state)


def number_of_groups(sets: Candidates) -> int:
    """The number of groups; without groups, every row is one of its own."""
    return len(sets) if sets.groups is None else len(sets.groups.unique())


def fold_splits(sets: Candidates, folds: int, seed: int) -> list[tuple[Rows, Rows]]:
    """The rows to train on and to predict for each fold; at most as many folds as groups.

    Raises:
        InputError: All rows are in one group, which cannot be divided.
    """
    n_groups = number_of_groups(sets)
    if n_groups < 2 and sets.groups is not None:
        raise InputError(
            "All rows to train on are in one group, which cannot be divided into "
            f"{folds} folds: use {option('folds', 0)}."
        )
    return _splits(sets, min(folds, n_groups), seed)


def check_folds(x: npt.NDArray[Any], sets: Candidates, folds: Sequence[tuple[Rows, Rows]]) -> None:
    """Refuse folds that leave too little to train on, before any training."""
    groups = "" if sets.groups is None else f" in {counted(number_of_groups(sets), 'group')}"
    for others, _ in folds:
        first, last = int(others[0]), int(others[-1])
        equal_sets = all(sets.row(row) == sets.row(first) for row in others)
        if equal_sets or ((x[last] == x[first]).all() and (x[others] == x[first]).all()):
            which = f"{counted(len(sets), 'row')}{groups} cannot be divided into {len(folds)} folds"
            raise InputError(
                f"{which}, since each fold must leave rows with different candidates and different "
                f"features to train on: add rows, or use {option('folds', 0)}."
            )


def _splits(sets: Candidates, n_folds: int, random_state: Any) -> list[tuple[Rows, Rows]]:
    fold = _fold_of_each_row(sets, n_folds, check_random_state(random_state))
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(n_folds)]


# ---- dividing ------------------------------------------------------------------------------------


class _Division:
    """Groups that are being divided into folds; without groups, every row is one of its own."""

    def __init__(self, sets: Candidates, n_folds: int) -> None:
        self.group_of_row, n_classes = np.arange(len(sets)), sets.n_classes
        if sets.groups is not None:
            self.group_of_row = np.unique(sets.groups.cpu().numpy(), return_inverse=True)[1]
        self.n_rows = np.bincount(self.group_of_row)  # of each group
        owners = np.repeat(self.group_of_row, sets.sizes.cpu().numpy())
        pairs = np.unique(owners * n_classes + sets.labels.cpu().numpy())
        # Which label is a candidate in which group.
        self.groups, self.labels = pairs // n_classes, pairs % n_classes
        self.start = np.searchsorted(self.groups, np.arange(len(self.n_rows) + 1))
        self.n_groups = np.bincount(self.labels, minlength=n_classes)  # of each class
        self.fold = np.full(len(self.n_rows), -1)  # of each group, −1 if it has none yet
        self.in_fold = np.zeros((n_classes, n_folds), dtype=np.int64)  # groups of each class
        self.rows_in_fold = np.zeros(n_folds, dtype=np.int64)

    def classes(self, group: int) -> npt.NDArray[np.int64]:
        return self.labels[self.start[group] : self.start[group + 1]]

    def move(self, group: int, fold: int) -> None:
        for place, change in ((self.fold[group], -1), (fold, 1)):
            if place >= 0:
                self.in_fold[self.classes(group), place] += change
                self.rows_in_fold[place] += change * self.n_rows[group]
        self.fold[group] = fold

    def n_lost(self, group: int) -> npt.NDArray[np.int64]:
        """The number of classes that would be in no other fold, for each fold of the group."""
        classes = self.classes(group)
        others = self.in_fold[classes]
        if self.fold[group] >= 0:
            others[:, self.fold[group]] -= 1
        n_others = self.n_groups[classes][:, None] - 1
        return np.asarray(((others == n_others) & (n_others > 0)).sum(0))


def _fold_of_each_row(
    sets: Candidates, n_folds: int, rng: np.random.RandomState
) -> npt.NDArray[np.int64]:
    """Spread the groups of rare classes, the rarest first, and fill up by chance.

    This is iterative stratification (Sechidis et al., 2011).
    """
    division = _Division(sets, n_folds)
    order = rng.permutation(len(division.labels))
    most_rows = -(-len(sets) // n_folds)
    rare = order[division.n_groups[division.labels[order]] < RARE * n_folds]
    labels = division.labels[rare]
    rare = rare[np.lexsort((labels, division.n_groups[labels]))]
    for c, group in zip(division.labels[rare], division.groups[rare], strict=True):
        if division.fold[group] < 0:
            full = division.rows_in_fold + division.n_rows[group] > most_rows
            # The most important key is the last: do not lose a class, do not overfill a fold,
            # spread the class, fill folds evenly.
            chance, n_rows = rng.permutation(n_folds), division.rows_in_fold
            keys = (chance, n_rows, division.in_fold[c], full, division.n_lost(group))
            division.move(group, int(np.lexsort(keys)[0]))
    _fill(division, rng)
    _return_lost_classes(division)
    return division.fold[division.group_of_row]


def _fill(division: _Division, rng: np.random.RandomState) -> None:
    """Put the groups that are left into the smallest folds, large ones first, as `GroupKFold`."""
    left = rng.permutation(np.flatnonzero(division.fold < 0))
    left = left[np.argsort(-division.n_rows[left], kind="stable")]
    heap = [(rows, k) for k, rows in enumerate(division.rows_in_fold.tolist())]
    heapq.heapify(heap)
    folds = []
    for n_rows in division.n_rows[left].tolist():
        rows, k = heap[0]
        heapq.heapreplace(heap, (rows + n_rows, k))
        folds.append(k)
    division.fold[left] = folds
    n_classes, n_folds = division.in_fold.shape
    places = division.labels * n_folds + division.fold[division.groups]
    in_fold = np.bincount(places, minlength=n_classes * n_folds)
    division.in_fold = in_fold.reshape(n_classes, n_folds)
    rows_in_fold = np.bincount(division.fold, weights=division.n_rows, minlength=n_folds)
    division.rows_in_fold = rows_in_fold.astype(np.int64)


def _return_lost_classes(division: _Division) -> None:
    """Move a group of each class that lies in a single fold, if fewer classes are lost then."""
    single = (division.n_groups > 1) & (division.in_fold.max(1) == division.n_groups)
    for c in np.flatnonzero(single):
        groups = division.groups[division.labels == c]
        lost = np.stack([division.n_lost(group) for group in groups])
        gain = lost[np.arange(len(groups)), division.fold[groups]][:, None] - lost
        which, fold = np.unravel_index(gain.argmax(), gain.shape)
        if gain[which, fold] > 0:
            division.move(int(groups[which]), int(fold))
