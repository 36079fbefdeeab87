"""Open sets: candidate sets that may lack the true label, and get one from outside the set.

If a share ε of the sets of k among C classes lacks the true label, and wrong labels are drawn at
random, then a class outside such a set is less probable than a candidate with the same logit by the
factor

    λ = ε / (1 − ε) · k / (C − k),

and targets are proportional to p ⊙ (S + λ (1 − S)) instead of p ⊙ S. Only the likeliest class
outside the set is stored (`outside_labels`), as one more candidate label.

Candidate sets restrain a network: a class can become the label of at most the rows that have it as
a candidate. Candidate labels from outside the sets remove this limit. A class that the network
slightly prefers would be added to most rows, and soon become their label. Therefore, the odds of a
class that a batch predicts more often than the sets allow are lowered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.candidates.storage import Candidates, Rows

LEAST_ODDS = 1e-12  # of a label from outside a set
# The odds of a class that is predicted r times as often as the sets allow are divided by r to this
# power.
RESTRAINT = 2.0


def outside_odds(
    shares: float | Sequence[float], sizes: npt.NDArray[Any], n_classes: int
) -> npt.NDArray[np.float64]:
    """λ: how probable a class outside a set is, compared with a candidate of the same logit.

    `shares` are as for `OpenSets`. A set of all classes has no class outside, and any finite λ.
    """
    share = np.asarray(shares, dtype=np.float64)
    share = share[sizes] if share.ndim else share
    odds: npt.NDArray[np.float64] = share / (1 - share) * sizes / np.maximum(n_classes - sizes, 1)
    return odds


class OpenSets(Candidates):
    """Candidate sets that may lack the true label, each with one more candidate label from outside.

    The added label has less weight than the others. `labels`, `offsets` and `sizes` are those of
    the given sets; `rows`, and so the masks and targets of a batch, include the added labels.

    Args:
        sets: The candidate sets.
        shares: The share of sets that lack the true label, below 1: one number, or one for each
            size of a set, from 0 to the number of classes.

    Attributes:
        outside_labels: (N,) the added label of each row, a number of any type; −1 for none.
        outside_strength: By which λ is multiplied, a scalar tensor; it is changed in place, since
            recorded steps hold on to it.

    Examples:
        >>> sets = OpenSets(Candidates.of([[0, 1], [2]]), 0.1)
        >>> given = sets.add_outside_labels(torch.tensor([1]), torch.tensor([[0.0, 3.0, 1.0]]))
        >>> sets[torch.tensor([0, 1])]
        tensor([[ True,  True, False],
                [False,  True,  True]])
    """

    def __init__(self, sets: Candidates, shares: float | Sequence[float]) -> None:
        flat = (sets.offsets, sets.labels, sets.n_classes, sets.classes)
        super().__init__(*flat, sets.groups, sets.weights, sets.observed)
        self.sets = sets
        self.max_size, self._even = sets.max_size + 1, False
        odds = outside_odds(shares, sets.sizes.cpu().numpy(), sets.n_classes)
        # Finite for a share of zero, too.
        self._log_odds = torch.from_numpy(odds).to(sets.device).float().clamp_min(LEAST_ODDS).log()
        self.outside_strength = torch.ones((), device=sets.device)
        self._log_most = torch.zeros(sets.n_classes, device=sets.device)  # no limit
        # The logarithm of what the odds of each class are multiplied by in the current step.
        self._held_back = torch.zeros(sets.n_classes, device=sets.device)
        self.outside_labels = torch.full((len(sets),), -1, device=sets.device)
        # A person's answer stays as it is.
        self._answered: Tensor | None = None
        if sets.observed is not None:
            parts = self.row_blocks(sets.n_classes)
            changed = [(sets[part] != sets.observed[part]).any(1) for part in parts]
            self._answered = torch.cat(changed)

    @property
    def n_slots(self) -> int:
        return len(self.labels) + len(self)

    def class_of_slots(self) -> Tensor:
        return torch.cat([self.labels.long(), self.outside_labels.long().clamp_min(0)])

    def limit_outside_shares(self, most: npt.ArrayLike) -> None:
        """Set the largest share that each class can have, above which it is added to fewer sets."""
        shares = torch.as_tensor(np.asarray(most), dtype=torch.float32)
        self._log_most.copy_(shares.clamp_min(LEAST_ODDS).log())

    def add_outside_labels(self, index: Tensor, logits: Tensor) -> Tensor:
        """Add the likeliest class outside the set to each row; damp classes predicted too often.

        Returns the sets of these rows without the added labels, (batch, classes).
        """
        predicted = torch.softmax(logits, dim=1).mean(0).clamp_min(LEAST_ODDS).log()
        self._held_back.copy_(RESTRAINT * (self._log_most - predicted).clamp_max(0.0))
        mask = self.sets[index]
        guests = (logits + self._held_back).masked_fill(mask, -torch.inf).argmax(1)
        closed = mask.all(1) if self._answered is None else mask.all(1) | self._answered[index]
        added = torch.where(closed, -1, guests).to(self.outside_labels.dtype)
        self.outside_labels.index_copy_(0, index, added)
        return mask

    def rows(self, index: Tensor) -> Rows:
        """The candidates of some rows; the last column has added labels or repeats a candidate."""
        index = index.to(self.device, torch.int64)
        index = torch.where(index < 0, index + len(self), index)
        where, labels = self.sets.slots(index), self.sets.rows(index).labels
        guests = self.outside_labels.index_select(0, index).long()
        present = guests >= 0
        place = torch.where(present, index + len(self.labels), where[:, -1])
        labels = torch.cat([labels, torch.where(present, guests, labels[:, -1])[:, None]], dim=1)
        return Rows(torch.cat([where, place[:, None]], dim=1), labels)

    def is_candidate_slot(self, index: Tensor) -> Tensor:
        added = (self.outside_labels[index] >= 0)[:, None]
        return torch.cat([self.sets.is_candidate_slot(index), added], dim=1)

    def log_weights(self, index: Tensor) -> Tensor:
        """The evidence for each candidate, (batch, C); added labels have a damped log λ."""
        known, guests = self.sets.log_weights(index), self.outside_labels[index].long()
        dense = self._log_odds.new_zeros(len(index), self.n_classes) if known is None else known
        place = guests.clamp_min(0)
        odds = self._log_odds[index] + self.outside_strength.log() + self._held_back[place]
        odds = torch.where(guests >= 0, odds, 0.0)
        return dense.scatter_add(1, place[:, None], odds[:, None].to(dense.dtype))
