"""Scores: which classes a model's scores make candidates, and how the scores weight them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates.cells import FlatSets
from ltpll.candidates.parsing import as_matrix
from ltpll.errors import InputError, shown
from ltpll.validation import in_range, whole_number

SCORES = ("weights", "none")  # what the scores of candidates are used for
DEFAULT_SCORES = "weights"
ROUNDING = 1e-6  # error of single precision in sums of probabilities
# Of scores that become weights: models are overconfident, and their scores contain their own class
# prior.
POWER = 0.25
VALUES_PER_PASS = 1 << 20  # limits the memory that ranking takes


def chosen_by_scores(
    scores: npt.NDArray[Any], top_k: int | None, mass: float | None
) -> npt.NDArray[np.bool_]:
    """Which classes become candidates, (N, C): the `top_k` highest scores, or the fewest that reach
    the share `mass` of all.

    A score of zero never makes a candidate, and of equal scores the first counts as higher.
    """
    order = np.argsort(-scores, axis=1, kind="stable")
    if top_k is not None:
        first = np.broadcast_to(np.arange(scores.shape[1]) < top_k, scores.shape)
    else:
        ranked = np.take_along_axis(scores, order, axis=1).astype(np.float64)
        total = ranked.sum(1, keepdims=True)
        first = np.cumsum(ranked, axis=1) - ranked < (float(mass or 0) - ROUNDING) * total
    chosen = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(chosen, order, first, axis=1)
    result: npt.NDArray[np.bool_] = chosen & (scores > 0)
    return result


def tempered(scores: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The scores of candidates as weights, which training takes for likelihoods."""
    weights: npt.NDArray[np.float64] = np.asarray(scores, dtype=np.float64) ** POWER
    return weights


def read_scores(
    matrix: Any, top_k: int | None, mass: float | None, classes: Sequence[Hashable] | None
) -> FlatSets:
    """Read an N × C matrix of scores, which may be sparse."""
    if (top_k is None) == (mass is None):
        rules = "by top_k (the k highest) or by mass (the fewest that reach it)"
        raise InputError(f"Scores become sets {rules}: give one of the two.")
    matrix, names = as_matrix(matrix, classes)
    if mass is not None:
        in_range(mass, "mass", 0, 1, above=True)
    elif whole_number(top_k, 1, "top_k") > matrix.shape[1]:
        which = f"top_k is {top_k}, but there are scores of only {matrix.shape[1]} classes"
        raise InputError(f"{which}: lower it.")
    sizes = [np.zeros(1, dtype=np.int64)]
    numbers = [np.zeros(0, dtype=np.int64)]
    scores = [np.zeros(0)]
    step = max(1, VALUES_PER_PASS // max(matrix.shape[1], 1))
    for first in range(0, matrix.shape[0], step):
        block = matrix[first : first + step]
        block = np.asarray(block.toarray() if hasattr(block, "toarray") else block)
        wrong = np.argwhere(~(np.isfinite(block) & (block >= 0)))
        if len(wrong):
            i, label = wrong[0].tolist()
            name = shown(label if names is None else names[label])
            raise InputError(
                f"Row {first + i} has the score {block[i, label]} for {name}: scores must be "
                "finite and not negative; turn logits into probabilities first, for example with a "
                "softmax."
            )
        chosen = chosen_by_scores(block, top_k, mass)
        sizes.append(chosen.sum(1))
        numbers.append(np.nonzero(chosen)[1])
        scores.append(block[chosen].astype(np.float64))
    indptr = np.cumsum(np.concatenate(sizes))
    joined = np.concatenate(numbers), matrix.shape[1], names, np.concatenate(scores)
    return FlatSets(indptr, *joined)
