"""Analysis: statistics of candidate sets: sizes, pairs of classes, class prior."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from scipy.sparse import triu

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.priors.distinct_sets import DistinctSets, distinct_sets
from ltpll.priors.estimate import PriorEstimate, estimate_prior

LARGEST_SET = 16_384


@dataclass(frozen=True)
class Pair:
    """Two classes: the number of sets that contain both, and the number expected by chance."""

    classes: tuple[Hashable, Hashable]
    sets: int
    expected: float
    times: float


@dataclass(frozen=True)
class Pairs:
    """The most frequent of `n` pairs that share a set, `n_above` of them more often than by chance."""

    most_frequent: list[Pair]
    n: int
    n_above: int
    most_above: Pair | None


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
    pairs: Pairs
    wrong_label_rate: float
    distinct_sets: int
    recurring: float
    prior: PriorEstimate

    def record(self) -> dict[str, Any]:
        """All values in a dictionary that JSON can hold."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "pairs": asdict(self.pairs), "prior": self.prior.as_record()}


def describe(candidates: Candidates, most_pairs: int = 10) -> Description:
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
        pairs=pairs(sets, candidates.classes, most_pairs),
        wrong_label_rate=(sets.mean_size - 1) / (candidates.n_classes - 1),
        distinct_sets=len(sets.counts),
        recurring=float(sets.counts[sets.counts > 1].sum()) / sets.n,
        prior=estimate_prior(candidates),
    )


def pairs(sets: DistinctSets, classes: Sequence[Hashable], most: int) -> Pairs:
    """Count the pairs of classes that share sets, and list the `most` most frequent pairs.

    A pair is above chance if √count is too far from its expectation under independence, where it
    has a standard deviation of 1/2; the threshold keeps the probability of finding any such pair by
    chance below 1%.
    """
    largest = int(sets.sizes.max())
    if largest > LARGEST_SET:  # the pairs of its labels alone take gigabytes
        which = f"A row has {largest:,} candidates, and pairs of classes are counted in rows of at"
        raise InputError(
            f"{which} most {LARGEST_SET:,}: leave such rows out, or limit the classes that are "
            "possible in them."
        )
    together = sets.matrix.T @ sets.matrix.multiply(sets.counts[:, None]).tocsr()
    upper = triu(together.tocsr(), k=1).tocoo()
    counts = upper.data
    expected = sets.appearances[upper.row] * sets.appearances[upper.col] / sets.n
    threshold = math.sqrt(2 * math.log(100 * max(len(counts), 1)))
    above = np.flatnonzero(2 * (np.sqrt(counts) - np.sqrt(expected)) > threshold)

    def pair(i: int) -> Pair:
        names = classes[int(upper.row[i])], classes[int(upper.col[i])]
        return Pair(names, int(counts[i]), float(expected[i]), float(counts[i] / expected[i]))

    order = np.lexsort((upper.col, upper.row, -counts))[:most]
    most_above = None
    if len(above):
        most_above = pair(int(above[np.argmax(counts[above] / expected[above])]))
    return Pairs([pair(int(i)) for i in order], len(counts), len(above), most_above)
