"""Set information: what features say about candidate sets, and so which model to trust.

A model gives each class j of a row the probability p_j(x). If wrong labels join a set S without
regard to x, then P(S | x) is the sum of P(S | y = j) p_j(x). Where the unknown P(S | y = j) is the
same for all candidates, it cancels in the ratio

    P(S | x) / P(S)  =  sum of p_j(x) over S / sum of m_j over S,

with m the mean of the model's predictions. The mean logarithm of this ratio over rows that the
model was not trained on estimates a lower bound of the mutual information of features and sets.
A model that is right about the labels has more of it. Frequent labels, which stand in many sets,
raise the numerator and the denominator alike, so that predicting them gains nothing.

It does not cancel where wrong labels depend on the features, or where some labels of a set are much
likelier than others to bring just this set about; weights of candidates state that likelihood where
it is known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.evaluation.scorers import sets_for_estimator
from ltpll.formatting import counted

Numbers = npt.NDArray[np.float64]
# A model that excludes all candidates of a row loses 28 nats there, not infinitely many.
TINY = 1e-12


class SetInformation(NamedTuple):
    """What `set_information` returns, in nats."""

    nats: float
    """The mean over rows."""
    standard_error: float
    """The standard error of the mean; over groups, if the sets have groups."""
    possible: float
    """What the mean would be if the model put all probability into the sets or, with weights, on
    their heaviest candidates."""

    def __str__(self) -> str:
        share = self.nats / self.possible if self.possible > 0 else 0.0
        return (
            f"{share:.0%} of what can be known about candidate sets "
            f"({self.nats:.2f} ± {self.standard_error:.2f} nats)"
        )


def set_information(probabilities: npt.ArrayLike, candidates: Candidates) -> SetInformation:
    """What a model says about candidate sets that it was not trained on.

    It needs no true labels. Of several models of the same rows, the one with more information about
    the sets is the more likely to be right about the labels.

    Args:
        probabilities: Predicted class probabilities of held-out rows, (rows, classes); the last
            classes of the sets may be missing, if they were unseen in training.
        candidates: The candidate sets of these rows.

    Returns:
        The information, its standard error, and the most there could be.

    Raises:
        InputError: There are not as many rows of probabilities as sets.

    Examples:
        >>> sets = Candidates.of([[0], [0, 1], [2], [1, 2]])
        >>> sure = np.array([[0.9, 0.05, 0.05]] * 2 + [[0.05, 0.05, 0.9]] * 2)
        >>> set_information(sure, sets).nats > set_information(np.full((4, 3), 1 / 3), sets).nats
        True
    """
    with_features, without = set_probabilities(probabilities, candidates)
    by_row = np.log(with_features) - np.log(without)
    most = np.ones(len(candidates))
    if candidates.weights is not None:
        starts = candidates.offsets[:-1].cpu().numpy()
        most = np.maximum.reduceat(_relative_weights(candidates), starts)
    possible = float(np.log(np.maximum(most / without, 1.0)).mean())
    return SetInformation(float(by_row.mean()), _standard_error(by_row, candidates), possible)


def set_information_by_class(probabilities: npt.ArrayLike, candidates: Candidates) -> Numbers:
    """The information about the sets of each class, in nats, (classes,).

    A row counts for its candidates in proportion to their predicted probabilities. A class that is
    nowhere a candidate has NaN.
    """
    found = _of_all_classes(probabilities, candidates)
    with_features, without = set_probabilities(found, candidates)
    by_row = np.log(with_features) - np.log(without)
    rows, labels = _rows_and_labels(candidates)
    shares = found[rows, labels] + TINY
    shares /= np.bincount(rows, weights=shares)[rows]
    n_classes = candidates.n_classes
    total = np.bincount(labels, weights=shares * by_row[rows], minlength=n_classes)
    count = np.bincount(labels, weights=shares, minlength=n_classes)
    by_class: Numbers = np.divide(total, count, out=np.full(n_classes, np.nan), where=count > 0)
    return by_class


def set_probabilities(
    probabilities: npt.ArrayLike, candidates: Candidates
) -> tuple[Numbers, Numbers]:
    """The probability of each set by the features of its row, and by the mean prediction.

    Both are sums over the candidates of a row, times their weights if they have any, (rows,).
    """
    found = np.asarray(probabilities)
    if len(found) != len(candidates):
        raise InputError(
            f"Give one row of probabilities per set, not {counted(len(found), 'row')} for "
            f"{counted(len(candidates), 'candidate set')}."
        )
    rows, labels = _rows_and_labels(candidates)
    weights = _relative_weights(candidates)
    known = np.flatnonzero(labels < found.shape[1])  # classes that were seen in training
    inside = np.zeros(len(labels))
    inside[known] = found[rows[known], labels[known]]
    means = np.zeros(candidates.n_classes)
    means[: found.shape[1]] = found.mean(0, dtype=np.float64)
    by_features = np.bincount(rows, weights=weights * inside)
    by_mean = np.bincount(rows, weights=weights * means[labels])
    return np.maximum(by_features, TINY), np.maximum(by_mean, TINY)


def information_of_sets(estimator: Any, X: Any, y: Any) -> float:
    """`set_information` as a scorer of a fitted classifier on held-out inputs and their sets.

    Examples:
        >>> from sklearn.model_selection import GridSearchCV
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = Candidates.of([{label, (label + 1) % 4} for label in y])
        >>> classifier = PartialLabelClassifier(epochs=1)
        >>> choices = {"rebalancer": ["mean-target", "records"]}
        >>> how = {"scoring": information_of_sets, "cv": CandidateKFold(2)}
        >>> list(GridSearchCV(classifier, choices, **how).fit(X, sets).best_params_)
        ['rebalancer']
    """
    return set_information(estimator.predict_proba(X), sets_for_estimator(estimator, y)).nats


def _of_all_classes(probabilities: npt.ArrayLike, candidates: Candidates) -> Numbers:
    """The probabilities with a column of zeros for each class that was unseen in training."""
    found = np.asarray(probabilities, dtype=np.float64)
    return np.pad(found, ((0, 0), (0, max(0, candidates.n_classes - found.shape[1]))))


def _relative_weights(candidates: Candidates) -> Numbers:
    """The weight of each candidate over the mean of its row; 1 without weights."""
    if candidates.weights is None:
        return np.ones(len(candidates.labels))
    rows, _ = _rows_and_labels(candidates)
    return np.asarray(candidates.weights.cpu().numpy() * np.bincount(rows)[rows], dtype=np.float64)


def _rows_and_labels(
    candidates: Candidates,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    labels = candidates.labels.cpu().numpy()
    return np.repeat(np.arange(len(candidates)), candidates.sizes.cpu().numpy()), labels


def _standard_error(by_row: Numbers, candidates: Candidates) -> float:
    """The standard error of a mean over rows; rows of a group are not independent of each other."""
    deviations = by_row - by_row.mean()
    if candidates.groups is not None:
        of_row = np.unique(candidates.groups.cpu().numpy(), return_inverse=True)[1]
        deviations = np.bincount(of_row, weights=deviations)
    return float(np.sqrt((deviations**2).sum()) / len(by_row))
