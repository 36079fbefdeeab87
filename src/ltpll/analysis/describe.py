"""Describe: statistics of candidate sets: sizes, pairs of classes, ambiguity, class prior."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import triu

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.priors.distinct_sets import DistinctSets, distinct_sets
from ltpll.priors.estimate import PriorEstimate, estimate_prior

Array = npt.NDArray[np.float64]
LARGEST_SET = 16_384


@dataclass(frozen=True)
class Pair:
    """Two classes: the number of sets that contain both, and the number expected if they joined
    sets independently.
    """

    classes: tuple[Hashable, Hashable]
    sets: int
    expected: float
    times: float


@dataclass(frozen=True)
class Pairs:
    """The most frequent of the `n` pairs of classes that share a set.

    `n_above` pairs do so more often than chance explains.
    """

    most_frequent: list[Pair]
    n: int
    n_above: int
    most_above: Pair | None


@dataclass(frozen=True)
class Description:
    """The result of `describe`; lists over classes are in the order of `classes`.

    `prior` is what `estimate_prior` finds, and `errors` are the L1 errors of its estimates if all
    true labels are known.
    """

    n_examples: int
    n_labelled: int  # examples whose true label is known
    n_classes: int
    classes: tuple[Hashable, ...]
    appearances: list[int]
    mean_size: float
    size_counts: dict[int, int]
    pairs: Pairs
    wrong_label_rate: float
    ambiguity_degree: float | None
    ambiguity_bounds: tuple[float, float]
    distinct_sets: int
    recurring: float
    prior: PriorEstimate
    errors: dict[str, float] | None
    class_counts: list[int] | None
    true_imbalance: float | None

    def record(self) -> dict[str, Any]:
        """All values in a dictionary that JSON can hold."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "pairs": asdict(self.pairs), "prior": self.prior.as_record()}


def describe(
    candidates: Candidates,
    labels: Sequence[int] | npt.NDArray[np.int64] | None = None,
    *,
    most_pairs: int = 10,
) -> Description:
    """Compute statistics of candidate sets.

    Args:
        candidates: The candidate sets.
        labels: True class numbers, −1 where unknown. If all are known, they add the ambiguity
            degree, class counts and the errors of the estimated priors.
        most_pairs: The number of most frequent pairs of classes to list.

    Returns:
        Sizes, pairs, ambiguity, and the class prior with its bounds.

    Examples:
        >>> describe(Candidates.of(["cat|fox", "dog", "cat"])).mean_size
        1.3333333333333333
    """
    sets = distinct_sets(candidates)
    n, n_classes = sets.n, candidates.n_classes
    n_labelled = 0 if labels is None else int((np.asarray(labels) >= 0).sum())
    known = None if labels is None or n_labelled < n else np.asarray(labels)
    truth = None if known is None else np.bincount(known, minlength=n_classes)
    together = co_occurrence(sets)
    found = pairs(sets, together, candidates.classes, most_pairs)
    prior = estimate_prior(candidates)
    sizes = np.bincount(sets.sizes, weights=sets.counts)
    return Description(
        n_examples=n,
        n_labelled=n_labelled,
        n_classes=n_classes,
        classes=candidates.classes,
        appearances=sets.appearances.astype(int).tolist(),
        mean_size=sets.mean_size,
        size_counts={int(size): int(sizes[size]) for size in np.flatnonzero(sizes)},
        pairs=found,
        wrong_label_rate=wrong_label_rate(sets),
        ambiguity_degree=None if known is None else ambiguity_degree(candidates, known.tolist()),
        ambiguity_bounds=ambiguity_bounds(sets, together),
        distinct_sets=len(sets.counts),
        recurring=float(sets.counts[sets.counts > 1].sum()) / n,
        prior=prior,
        errors=None if truth is None else _errors_of_prior(prior, truth / n),
        class_counts=None if truth is None else truth.tolist(),
        true_imbalance=None if truth is None else float(truth.max() / truth[truth > 0].min()),
    )


# ---- sets and pairs ------------------------------------------------------------------------------


def co_occurrence(sets: DistinctSets) -> Any:
    """The number of rows whose sets contain both of two classes, a sparse (C, C) matrix."""
    largest = int(sets.sizes.max())
    if largest > LARGEST_SET:  # the pairs of its labels alone take gigabytes
        which = f"A row has {largest:,} candidates, and pairs of classes are counted in rows of at"
        raise InputError(
            f"{which} most {LARGEST_SET:,}: leave such rows out, or limit the classes that are "
            "possible in them."
        )
    return (sets.matrix.T @ sets.matrix.multiply(sets.counts[:, None]).tocsr()).tocsr()


def pairs(sets: DistinctSets, together: Any, classes: Sequence[Hashable], most: int) -> Pairs:
    """Count the pairs of classes that share sets, and list the `most` most frequent pairs.

    A pair is above chance if √count is too far from its expectation under independence, where it
    has a standard deviation of 1/2; the threshold keeps the probability of finding any such pair by
    chance below 1%.
    """
    upper = triu(together, k=1).tocoo()
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


def wrong_label_rate(sets: DistinctSets) -> float:
    """The average probability that a wrong label joins a set.

    No true labels are needed, since one label of every set is true.
    """
    return (sets.mean_size - 1) / (sets.n_classes - 1)


def ambiguity_degree(candidates: Candidates, labels: list[int]) -> float:
    """Estimate the ambiguity degree: the largest share of the examples of one class whose sets
    contain the same wrong label.

    The estimate is too high for small classes, where some wrong label is in all sets by chance.

    Args:
        candidates: The candidate sets.
        labels: The true class numbers.

    Returns:
        A share between 0 and 1.

    Examples:
        >>> ambiguity_degree(Candidates.of([[0, 1], [0], [1]]), [0, 0, 1])
        0.5
    """
    n_classes = candidates.n_classes
    sizes = np.bincount(labels, minlength=n_classes)
    true = np.repeat(np.asarray(labels, dtype=np.int64), candidates.sizes.cpu().numpy())
    # With many classes, far fewer pairs occur than there could be.
    keys = true * n_classes + candidates.labels.cpu().numpy()
    pairs, counts = np.unique(keys, return_counts=True)
    true, other = np.divmod(pairs, n_classes)
    shares = (counts / sizes[true])[true != other]
    return float(shares.max(initial=0.0))


def ambiguity_bounds(sets: DistinctSets, together: Any) -> tuple[float, float]:
    """Lower and upper bounds on the ambiguity degree η (see `bound.ambiguity_degree`) that hold for
    any true labels.

    Lower: class b, true in a share π_b of the rows, is in a share p_b ≤ π_b + (1 − π_b) η of the
    sets. Summing over the k most frequent classes gives η ≥ (p_1 + … + p_k − 1) / (k − 1). Upper:
    at most n_ab examples of class a have b in their sets, and the rows with the set {a} are
    examples of a without b.
    """
    shares = np.sort(sets.appearances / sets.n)[::-1]
    low = float(((np.cumsum(shares)[1:] - 1) / np.arange(1, len(shares))).max())
    certain = sets.sum_per_class(sets.counts * (sets.sizes == 1))
    entries = together.tocoo()
    other = entries.row != entries.col
    shared = entries.data[other]
    high = float((shared / (shared + certain[entries.row[other]])).max(initial=0.0))
    return max(low, 0.0), high


# ---- the class prior -----------------------------------------------------------------------------


def _errors_of_prior(prior: PriorEstimate, truth: Array) -> dict[str, float]:
    """The L1 errors of the estimates, and the share of classes whose bounds hold."""
    names = ("estimate", "em", "average")
    errors = {name: float(np.abs(getattr(prior, name) - truth).sum()) for name in names}
    inside = (truth >= prior.lower - 1e-12) & (truth <= prior.upper + 1e-12)
    return {**errors, "within_bounds": float(inside[prior.seen].mean())}
