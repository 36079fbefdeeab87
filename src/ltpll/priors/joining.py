"""Joining: which labels join which sets, and what that says about the true label.

A set of three birds and a car is more probable if a bird is true than if the car is. Methods for
partial labels ignore this: they take all candidates of a set for equally probable before they look
at the features, which is right only if wrong labels join independently.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.candidates import Candidates
from ltpll.priors.distinct_sets import DistinctSets, distinct_sets

Array = npt.NDArray[np.float64]

PSEUDO_ROWS = 10.0  # with the mean rate, which are added to the rows of each pair of classes
LEAST_RATE = 1e-4
ROWS_AT_ONCE = 16_384
POWER = 0.5  # of the likelihood of a set
UNTIL = 0.5  # share of the epochs
CLASS_LIMIT = 2_000  # beyond it, a matrix of classes × classes takes too much memory


def joining_rates(sets: DistinctSets) -> Array:
    """Estimate how probable it is that label j joins a set whose true label is y.

    Every candidate of a set counts as true with the same share. The rates are

        q_yj = (2 Σ_i S_iy S_ij / |S_i| + κ q̄) / (n_y + n_j + κ),    n_y = Σ_i S_iy / |S_i|,

    with the mean rate q̄ and κ = 10. They are symmetric, so that the rates of rare classes are
    known from the rows of frequent ones. They lie between the true rates and what chance would
    give, since the true labels are unknown; iterating with the labels that they make probable (EM)
    gives extreme rates, which cost labels on real features (docs/beyond.md).

    Returns:
        The rates, (C, C), symmetric; the diagonal has no meaning.
    """
    weights = sets.counts / sets.sizes
    together = np.zeros((sets.n_classes, sets.n_classes))
    for first in range(0, len(weights), ROWS_AT_ONCE):
        block = slice(first, first + ROWS_AT_ONCE)
        dense = sets.matrix[block].toarray()
        together += dense.T @ (dense * weights[block, None])
    rows = sets.sum_per_class(weights)
    mean = (sets.mean_size - 1) / max(sets.n_classes - 1, 1)
    shared = rows[:, None] + rows[None, :] + PSEUDO_ROWS
    return np.asarray((2 * together + PSEUDO_ROWS * mean) / shared)


def set_evidence(candidates: Candidates, power: float = 1.0) -> Tensor:
    """How well each candidate explains the other labels of its set.

    The probability of y is proportional to (Π_{j∈S} q_yj Π_{j∉S} (1 − q_yj)) ** power, with the
    `joining_rates` q of the sets before answers replaced some of them. A power below 1 allows for
    labels of a set that are not independent.

    Returns:
        For each candidate, in the order of `candidates.labels`, the log of its probability times
        the size of its set: zero if all candidates explain the set equally well.
    """
    rates = torch.from_numpy(joining_rates(distinct_sets(candidates.observed or candidates)))
    rates = rates.clamp(LEAST_RATE, 1 - LEAST_RATE)
    other = 1 - torch.eye(len(rates), dtype=rates.dtype)
    joins = (torch.logit(rates) * other).to(candidates.device)
    stays_out = (torch.log1p(-rates) * other).sum(1).to(candidates.device)
    found = torch.empty(len(candidates.labels), device=candidates.device)
    for index in candidates.row_blocks(candidates.n_classes):
        labels, filled = candidates.rows(index).labels, candidates.is_candidate_slot(index)
        joined = (candidates[index].to(joins.dtype) @ joins).gather(1, labels)
        likelihood = (power * (joined + stays_out[labels])).masked_fill(~filled, -torch.inf)
        sizes = candidates.sizes[index, None].double()
        evidence = torch.log_softmax(likelihood, dim=1) + sizes.log()
        first, last = candidates.offsets[index[0]], candidates.offsets[index[-1] + 1]
        found[first:last] = evidence[filled].to(found.dtype)
    return found


class FadingEvidence:
    """The evidence of the candidates of every row, whose weight falls to zero during training.

    It is computed from the sets, so it needs no checkpoint, and no longer counts after the share
    `until` of the epochs.
    """

    def __init__(self, candidates: Candidates, power: float = POWER, until: float = UNTIL) -> None:
        self.candidates, self.until = candidates, until
        self.values = set_evidence(candidates, power)
        # Changed in place, since recorded steps hold on to it.
        self.weight = torch.ones((), device=candidates.device)

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        """Set the weight for an epoch; epochs count from 0."""
        self.weight.fill_(max(0.0, 1 - epoch / (self.until * n_epochs)) if self.until else 0.0)

    def __getitem__(self, index: Tensor) -> Tensor:
        """The evidence of some rows, (batch, classes), zero for other classes."""
        return self.weight * self.candidates.spread_over_classes(self.values, index)


def can_weigh(candidates: Candidates) -> bool:
    """Whether the sets are the only evidence, and a matrix of class pairs fits memory."""
    return candidates.weights is None and candidates.n_classes <= CLASS_LIMIT
