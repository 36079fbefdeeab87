"""Pruning: candidates that the sets of a row's nearest neighbours vote against are removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.formatting import counted
from ltpll.validation import as_inputs, in_range, whole_number
from ltpll.views import FeatureViews

# Chosen on eight data sets (benchmarks/pruning_choices.py): the largest threshold of 0.1, 0.2, … at
# which none of them lost more than 4 % of its true labels, and the number of neighbours, of 10, 20
# and 30, at which most wrong labels were removed then.
NEIGHBOURS, THRESHOLD = 20, 0.3
FREQUENCY_POWER = 0.5
VOTES_PER_PASS = 1 << 22  # limits the memory of votes, which are dense: rows × classes
VALUES_PER_BLOCK = 1 << 24  # limits memory, which must not grow with the square of the rows
SPARE = 4  # further neighbours that are kept until distances are computed without cancellation
NOBODY = -1

Array = npt.NDArray[np.float64]


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


def prune_candidates(
    features: Any,
    candidates: Any,
    *,
    neighbours: int = NEIGHBOURS,
    threshold: float = THRESHOLD,
    scaled: bool = False,
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
        scaled: Whether the sizes of features say how much each counts, as after a `ColumnEncoder`.

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
        which = f"The features have shape {tuple(x.shape)}, not one row of numbers for each example"
        raise InputError(f"{which}: compute features of pictures first.")
    if len(x) != len(sets):
        which = f"There are {counted(len(x), 'row')} of features, but {counted(len(sets), 'set')}"
        raise InputError(f"{which}: give one set per row.")
    x = directions(x.cpu(), scaled=scaled)
    index = nearest_neighbours(x, neighbours, sets.groups).numpy()
    return remove_marked_labels(sets, relative_votes(index, sets) < threshold)


def nearest_neighbours(x: Tensor, k: int, groups: Tensor | None = None) -> Tensor:
    """Find the k nearest other rows of every row, by Euclidean distance, in blocks of rows.

    Rows of the same group are not neighbours of each other.

    Returns:
        The numbers of these rows, (N, k), the nearest first, or (N, N) if there are fewer rows; −1
        where a row has fewer than k others. Of rows at the same distance, the one with the lower
        number comes first.

    Examples:
        >>> nearest_neighbours(torch.tensor([[0.0], [1.0], [3.0]]), k=1).flatten()
        tensor([1, 0, 1])
    """
    n, kept = len(x), min(k + SPARE, len(x))
    groups = torch.arange(n) if groups is None else groups
    shifted = x - x.mean(0)
    half = shifted.square().sum(1) / 2
    found = []
    for rows in torch.arange(n).split(max(1, VALUES_PER_BLOCK // max(n, kept * x.shape[1]))):
        # Half the squared distances, without what the distances of a row have in common.
        distances = torch.addmm(half, shifted[rows], shifted.T, alpha=-1)
        distances.masked_fill_(groups[rows][:, None] == groups, torch.inf)
        nearest, index = distances.topk(kept, dim=1, largest=False)
        index = index.masked_fill(nearest.isinf(), NOBODY).sort(dim=1).values
        # From differences, since distances from products are inexact for rows that are close.
        exact = torch.linalg.vector_norm(x[index.clamp_min(0)].sub_(x[rows][:, None]), dim=2)
        order = exact.masked_fill_(index == NOBODY, torch.inf).argsort(dim=1, stable=True)
        found.append(index.gather(1, order)[:, :k])
    return torch.cat(found)


def directions(x: Tensor, *, scaled: bool = False) -> Tensor:
    """Standardised features of length one: their distance depends on their angle alone."""
    return torch.nn.functional.normalize(FeatureViews.of(x, scaled=scaled).plain(x), dim=1)


def relative_votes(
    index: npt.NDArray[np.int64], sets: Candidates, frequency_power: float = FREQUENCY_POWER
) -> Array:
    """The votes for each entry of `sets.labels`, relative to those of the best candidate of its
    row; 1 where nobody votes. `index` has the neighbours of each row; −1 does not vote.
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
