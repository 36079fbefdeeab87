"""Folds: the rows of a cross-validation, with all rows of a group in the same fold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.errors import InputError

Rows = npt.NDArray[np.int64]


def fold_splits(sets: Candidates, folds: int, seed: int) -> list[tuple[Rows, Rows]]:
    """The rows to train on and the rows to predict, for each fold; all rows of a group are in the same fold."""
    from sklearn.model_selection import GroupKFold, KFold

    n, groups = number_of_folds(sets, folds), sets.groups
    rows = np.empty(len(sets))
    if groups is None:
        return list(KFold(n, shuffle=True, random_state=seed).split(rows))
    return list(GroupKFold(n, shuffle=True, random_state=seed).split(rows, groups=groups.cpu().numpy()))


def number_of_folds(sets: Candidates, folds: int) -> int:
    """The number of folds: at most one for each group or, without groups, for each row.

    Raises:
        InputError: All rows are in one group, which cannot be divided.
    """
    if sets.groups is None:
        return min(folds, len(sets))
    n_groups = len(sets.groups.unique())
    if n_groups < 2:
        raise InputError(f"All rows to train on are in one group, which cannot be divided into {folds} folds: use --folds 0.")
    return min(folds, n_groups)
