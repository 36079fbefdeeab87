"""Mixtures: how far to trust each member of a committee, told by held-out candidate sets.

Member m gives each class j of a row the probability p_mj(x), and the committee believes the sum of
w_m p_mj(x) over its members. The weights w are those with the most set information
(`ltpll.evaluation.set_information`) about rows that the members were not trained on.

Some members predict rare classes more often than others, as a rebalancer makes them. Information
about sets rewards that, whatever predictions are for. So members first agree on the shares of the
classes: each one's probabilities are multiplied by the shares over its own mean prediction. What is
left to compare is what each has learned about the features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from ltpll.candidates import Candidates
from ltpll.evaluation.set_information import set_probabilities

Numbers = npt.NDArray[np.float64]
Shares = npt.NDArray[np.floating[Any]]
# The share of the sets that say nothing about the label, such as those that lack it: one row cannot
# exclude a member that is sure of another class.
UNINFORMATIVE = 0.01
PSEUDO_ROWS = 5.0  # a prior that every member has the same weight, as strong as so many rows
LEAST_LOGIT, MOST_LOGIT = -8.0, 8.0


def floored_shares(shares: Shares, n: int) -> Numbers:
    """Class shares of n rows, each at least half a row."""
    floored: Numbers = np.maximum(np.asarray(shares, dtype=np.float64), 0.5 / n)
    return np.asarray(floored / floored.sum())


def with_shares(probabilities: Shares, own: Shares, shared: Shares) -> npt.NDArray[np.float32]:
    """Probabilities for other class shares than a model's own: Bayes' rule with a new prior.

    Args:
        probabilities: What a model predicts, (rows, classes).
        own: Its mean prediction, (classes,), without zeros.
        shared: The shares that predictions are for, (classes,).

    Examples:
        >>> with_shares(np.array([[0.5, 0.5]]), np.array([0.5, 0.5]), np.array([0.9, 0.1]))
        array([[0.9, 0.1]], dtype=float32)
    """
    found = np.asarray(probabilities, dtype=np.float32) * (shared / own).astype(np.float32)
    return np.asarray(found / np.maximum(found.sum(1, keepdims=True), np.float32(1e-30)))


def inside_sets(probabilities: Shares, candidates: Candidates) -> npt.NDArray[np.float32]:
    """Soft labels: the probabilities of each row's candidates, which sum to one.

    Weights of the candidates count as factors.
    """
    found = np.zeros((len(candidates), candidates.n_classes), dtype=np.float32)
    labels, sizes = candidates.labels.cpu().numpy(), candidates.sizes.cpu().numpy()
    rows = np.repeat(np.arange(len(candidates)), sizes)
    weights = 1.0 if candidates.weights is None else candidates.weights.cpu().numpy()
    # A little for every candidate, so that a row that a model excludes has soft labels as well.
    found[rows, labels] = (np.asarray(probabilities)[rows, labels] + np.float32(1e-6)) * weights
    return np.asarray(found / found.sum(1, keepdims=True))


def mixture_weights(members: Sequence[Shares], candidates: Candidates) -> Numbers:
    """The weights of a mixture with the most information about held-out candidate sets.

    Few rows change the weights little: a prior is worth five rows that favour none of the members.

    Args:
        members: The out-of-fold probabilities of each member, (rows, classes).
        candidates: The candidate sets of these rows.

    Returns:
        One weight for each member; they are positive and sum to one.

    Examples:
        >>> sets = Candidates.of([[0], [0, 1], [2], [1, 2]] * 20)
        >>> sure = np.array([[0.9, 0.05, 0.05]] * 2 + [[0.05, 0.05, 0.9]] * 2 * 1)
        >>> weights = mixture_weights([np.tile(sure, (20, 1)), np.full((80, 3), 1 / 3)], sets)
        >>> bool(weights[0] > 0.9)
        True
    """
    both = [set_probabilities(one, candidates) for one in members]
    without = np.stack([mean for _, mean in both], axis=1)
    found = np.stack([by_features for by_features, _ in both], axis=1)
    found = (1 - UNINFORMATIVE) * found + UNINFORMATIVE * without
    n, n_members = found.shape

    def loss(logits: Numbers) -> tuple[float, Numbers]:
        weights = np.exp(logits - logits.max())
        weights /= weights.sum()
        by_features, by_mean = found @ weights, without @ weights
        value = np.log(by_features).mean() - np.log(by_mean).mean()
        value += PSEUDO_ROWS / n * np.log(weights).mean()
        slope = (found / by_features[:, None] - without / by_mean[:, None]).mean(0) * weights
        slope += PSEUDO_ROWS / n / n_members
        return -float(value), -(slope - weights * slope.sum())

    limits = [(LEAST_LOGIT, MOST_LOGIT)] * n_members
    best = minimize(loss, np.zeros(n_members), jac=True, method="L-BFGS-B", bounds=limits).x
    weights = np.exp(best - best.max())
    return np.asarray(weights / weights.sum())
