"""Analysis: statistics of candidate sets: sizes, class prior."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ltpll.candidates import Candidates
from ltpll.priors.distinct_sets import distinct_sets
from ltpll.priors.estimate import PriorEstimate, estimate_prior


@dataclass(frozen=True)
class Description:
    """The result of `describe`; lists over classes are in the order of `classes`.

    `wrong_label_rate` is the average probability that a wrong label joins a set.
    """

    n_examples: int
    n_classes: int
    classes: tuple[Hashable, ...]
    appearances: list[int]
    mean_size: float
    size_counts: dict[int, int]
    wrong_label_rate: float
    distinct_sets: int
    recurring: float
    prior: PriorEstimate

    def record(self) -> dict[str, Any]:
        """All values in a dictionary that JSON can hold."""
        return {**vars(self), "prior": self.prior.as_record()}


def describe(candidates: Candidates) -> Description:
    """Compute statistics of candidate sets."""
    sets = distinct_sets(candidates)
    sizes = np.bincount(sets.sizes, weights=sets.counts)
    return Description(
        n_examples=sets.n,
        n_classes=candidates.n_classes,
        classes=candidates.classes,
        appearances=sets.appearances.astype(int).tolist(),
        mean_size=sets.mean_size,
        size_counts={int(size): int(sizes[size]) for size in np.flatnonzero(sizes)},
        wrong_label_rate=(sets.mean_size - 1) / (candidates.n_classes - 1),
        distinct_sets=len(sets.counts),
        recurring=float(sets.counts[sets.counts > 1].sum()) / sets.n,
        prior=estimate_prior(candidates),
    )
