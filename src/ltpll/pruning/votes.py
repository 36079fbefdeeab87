"""Votes: the sets of a row's nearest neighbours vote on its candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.formatting import counted
from ltpll.pruning.neighbours import OnProgress, nearest_neighbours
from ltpll.validation import as_inputs, in_range, whole_number
from ltpll.views import FeatureViews

# Chosen on eight data sets (benchmarks/pruning_choices.py): the largest threshold of 0.1, 0.2, … at
# which none of them lost more than 4 % of its true labels, and the number of neighbours, of 10, 20
# and 30, at which most wrong labels were removed then.
NEIGHBOURS, THRESHOLD = 20, 0.3
FREQUENCY_POWER = 0.5
VOTES_PER_PASS = 1 << 22  # limits the memory of votes, which are dense: rows × classes

Array = npt.NDArray[np.float64]


class Lost(NamedTuple):
    """How many true labels pruning has removed, in all classes and in the rarest third."""

    rows: int
    lost: int
    rare_rows: int
    rare_lost: int


@dataclass(frozen=True)
class Pruned:
    """The result of `prune_candidates`.

    Attributes:
        candidates: What is left of the sets, with the groups and the weights of the given ones;
            weights sum to one again in each row.
        given: The sets before.
        removed: (L,) bool, which of `given.labels` were removed.
    """

    candidates: Candidates
    given: Candidates
    removed: Tensor

    def removed_from(self, row: int) -> list[int]:
        """The class numbers that were removed from a row."""
        start, end = int(self.given.offsets[row]), int(self.given.offsets[row + 1])
        return [int(label) for label in self.given.labels[start:end][self.removed[start:end]]]

    def changed(self) -> npt.NDArray[np.int64]:
        """The rows from which something was removed, in ascending order."""
        return np.flatnonzero(self.candidates.sizes.numpy() < self.given.sizes.numpy())

    def rows_per_class(self) -> Tensor:
        """The number of rows from which each class was removed, (C,)."""
        return torch.bincount(
            self.given.labels[self.removed].long(), minlength=self.given.n_classes
        )

    def lost(self, labels: npt.ArrayLike) -> Lost:
        """Count removed true labels, for evaluation.

        Args:
            labels: True class numbers, −1 where unknown.
        """
        true = torch.as_tensor(np.asarray(labels, dtype=np.int64))
        before = self.given.contains(true)
        gone = (before & ~self.candidates.contains(true)).numpy()
        counts = np.bincount(true[before], minlength=self.given.n_classes)
        order = np.argsort(counts, kind="stable")
        order = order[counts[order] > 0]
        rare = np.isin(true.numpy(), order[: max(1, len(order) // 3)]) & before.numpy()
        return Lost(int(before.sum()), int(gone.sum()), int(rare.sum()), int((gone & rare).sum()))


def prune_candidates(
    features: Any,
    candidates: Any,
    *,
    neighbours: int = NEIGHBOURS,
    threshold: float = THRESHOLD,
    on_progress: OnProgress | None = None,
) -> Pruned:
    """Remove candidates that the sets of the nearest neighbours vote against.

    Each neighbour gives every one of its m candidates 1/m of a vote, or the candidate's weight if
    candidates have weights. Votes are divided by the square root of the label's share of all votes:
    without it, rare labels lose to frequent ones, and true rare labels are removed up to three
    times as often. A candidate is removed if its votes are less than `threshold` times those of the
    row's best candidate, so no set becomes empty.

    Neighbours are nearest by the angle between standardised features. Rows of the same group
    (`Candidates.groups`) share their set, which says nothing about which of its labels is whose, so
    they are not neighbours of each other. Without groups, such rows do vote: a set that equals the
    row's own gives the same to each of its candidates and makes the result more cautious. Leaving
    equal sets out removed fewer wrong labels at the same loss of true ones.

    Args:
        features: (N, d) numbers; for pictures, the features of a pretrained network
            (`ltpll.Embedder`).
        candidates: Candidate sets, in any form that `Candidates.of` accepts.
        neighbours: The number of neighbours that vote.
        threshold: The smallest share of the best candidate's votes with which a candidate is kept,
            from 0 (nothing is removed) to 1.
        on_progress: Called several times with the amount of finished work and its total.

    Returns:
        The pruned sets, and which labels were removed.

    Raises:
        InputError: The features are not a table of numbers with one row per set, or a setting is
            out of range.

    Examples:
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = uniform_candidates(y, n_classes=4, ambiguity=0.3, seed=0)
        >>> pruned = prune_candidates(X, sets)
        >>> int(sets.sizes.sum()), int(pruned.candidates.sizes.sum())
        (149, 110)
        >>> classifier = PartialLabelClassifier(epochs=1, rebalancer="records")
        >>> _ = classifier.fit(X, pruned.candidates)
    """
    neighbours = whole_number(neighbours, 1, "neighbours")
    threshold = in_range(threshold, "threshold", 0, 1)
    sets = Candidates.of(candidates).to("cpu")
    x = as_inputs(features, "given")
    if x.ndim != 2:
        which = f"The features have shape {tuple(x.shape)}, but neighbours need a row of numbers"
        raise InputError(
            f"{which} for each example: compute features of pictures first, with a pretrained "
            "network."
        )
    if len(x) != len(sets):
        which = f"There are {counted(len(x), 'row')} of features, but {counted(len(sets), 'set')}"
        raise InputError(f"{which}: give one set per row.")
    x = directions(x.cpu())
    index = nearest_neighbours(x, neighbours, groups=sets.groups, on_progress=on_progress).rows
    return remove_marked_labels(sets, relative_votes(index.numpy(), sets) < threshold)


def directions(x: Tensor) -> Tensor:
    """Standardised features of length one: their distance depends on their angle alone."""
    return torch.nn.functional.normalize(FeatureViews.of(x).plain(x), dim=1)


def relative_votes(
    index: npt.NDArray[np.int64], sets: Candidates, frequency_power: float = FREQUENCY_POWER
) -> Array:
    """The votes for each entry of `sets.labels`, relative to those of the best candidate of its
    row; 1 where nobody votes.

    Args:
        index: (N, k) the neighbours of each row; negative numbers do not vote.
        sets: The candidate sets.
        frequency_power: Votes are divided by this power of the label's frequency.
    """
    offsets, labels = sets.offsets.numpy(), sets.labels.numpy()
    sizes = np.diff(offsets)
    shares = np.repeat(1 / sizes, sizes) if sets.weights is None else sets.weights.double().numpy()
    frequency = np.bincount(labels, weights=shares, minlength=sets.n_classes)
    given = csr_matrix((shares, labels, offsets), shape=(len(sets), sets.n_classes))
    votes = np.empty(len(labels))
    n_parts = max(1, len(sets) * sets.n_classes // VOTES_PER_PASS)
    for rows in np.array_split(np.arange(len(sets)), n_parts):
        known = index[rows] >= 0
        ends = np.concatenate([[0], np.cumsum(known.sum(1))])
        flat = (np.ones(ends[-1]), index[rows][known], ends)
        voters = csr_matrix(flat, shape=(len(rows), len(sets)))
        own = slice(offsets[rows[0]], offsets[rows[-1] + 1])
        owners = np.repeat(np.arange(len(rows)), sizes[rows])
        votes[own] = (voters @ given).toarray()[owners, labels[own]]
    votes /= frequency[labels] ** frequency_power
    best = np.repeat(np.maximum.reduceat(votes, offsets[:-1]), sizes)
    relative: Array = np.divide(votes, best, out=np.ones_like(votes), where=best > 0)
    return relative


def remove_marked_labels(sets: Candidates, removed: npt.NDArray[np.bool_]) -> Pruned:
    """The sets without the labels that are marked in `removed`, (L,).

    At least one is left in each row.
    """
    mask = torch.from_numpy(removed)
    kept = torch.cat([mask.new_zeros(1), ~mask]).cumsum(0)
    offsets = kept[sets.offsets.long()].to(sets.offsets.dtype)
    left = Candidates(offsets, sets.labels[~mask], sets.n_classes, sets.classes, sets.groups)
    if sets.weights is not None:
        left = left.with_weights(sets.weights[~mask])
    return Pruned(left, sets, mask)
