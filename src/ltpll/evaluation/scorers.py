"""Scores of predictions against candidate sets, for model selection without true labels.

Held-out sets may hold classes that were never a candidate in training. They cannot be predicted, so
their probability is zero: a set that holds nothing else is not covered, and their recall is zero.
Settings that are compared on the same folds lack the same classes, so their scores can be compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ltpll.candidates import Candidates
from ltpll.candidates.labels import read_labels
from ltpll.errors import InputError
from ltpll.formatting import counted


def covering_rate_score(candidates: Candidates, predicted: npt.NDArray[np.int64]) -> float:
    """The share of rows whose predicted class is a candidate: the accuracy if sets have one label.

    Args:
        candidates: The candidate sets.
        predicted: The predicted class number of each row.

    Examples:
        >>> covering_rate_score(Candidates.of([[0, 1], [2]]), np.array([1, 0]))
        0.5
    """
    return float(_covered(candidates, predicted).mean())


def approximated_accuracy_score(candidates: Candidates, probabilities: npt.NDArray[Any]) -> float:
    """The accuracy that the model itself expects given the candidate sets (Wang et al., ICLR 2025).

    It is the mean over rows of p_ŷ / Σ_{j∈S} p_j, or 0 where the prediction ŷ is not in the set S.
    Unlike the covering rate, it does not reward a prediction just because the set is large
    ("Realistic Evaluation of Deep Partial-Label Learning Algorithms").

    Args:
        candidates: The candidate sets.
        probabilities: Predicted class probabilities, (rows, classes); the last classes of the sets
            may be missing, if they were unseen.

    Examples:
        >>> probabilities = np.array([[0.6, 0.2, 0.2], [0.1, 0.1, 0.8]])
        >>> approximated_accuracy_score(Candidates.of([[0, 1], [2]]), probabilities)
        0.875
    """
    probabilities = probabilities_of_all_classes(candidates, probabilities)
    predicted = probabilities.argmax(1)
    covered = _covered(candidates, predicted)
    _, _, mass = _inside(candidates, probabilities)
    largest = probabilities[np.arange(len(probabilities)), predicted]
    return float(np.where(covered, largest / mass, 0.0).mean())


def approximated_balanced_accuracy_score(
    candidates: Candidates, probabilities: npt.NDArray[Any]
) -> float:
    """The balanced accuracy that the model itself expects given the candidate sets.

    Row i belongs to class j with probability P_ij = p_ij / Σ_{k∈S} p_ik, or 0 where j is not in the
    set S. The recall of class j is then the share of Σ_i P_ij in rows that are predicted as j; the
    score is its mean over the classes that any set holds.

    Args:
        candidates: The candidate sets.
        probabilities: Predicted class probabilities, (rows, classes); the last classes of the sets
            may be missing, if they were unseen.

    Examples:
        >>> probabilities = np.array([[0.6, 0.2, 0.2], [0.1, 0.1, 0.8]])
        >>> approximated_balanced_accuracy_score(Candidates.of([[0, 1], [2]]), probabilities)
        0.6666666666666666
    """
    probabilities = probabilities_of_all_classes(candidates, probabilities)
    predicted = probabilities.argmax(1)
    _covered(candidates, predicted)
    rows, labels, mass = _inside(candidates, probabilities)
    weights, n_classes = probabilities[rows, labels] / mass[rows], candidates.n_classes
    expected = np.bincount(labels, weights=weights, minlength=n_classes)
    found = np.bincount(labels, weights=weights * (predicted[rows] == labels), minlength=n_classes)
    possible = np.bincount(labels, minlength=n_classes) > 0
    return float(
        (found[possible] / np.maximum(expected[possible], np.finfo(np.float64).tiny)).mean()
    )


def covering_rate(estimator: Any, X: Any, y: Any) -> float:
    """`covering_rate_score` as a scorer of a fitted classifier on held-out inputs and their sets.

    Classes that the classifier was not trained on cannot be predicted; `ltpll.CandidateKFold` keeps
    rare classes in training.

    Examples:
        >>> from sklearn.model_selection import GridSearchCV
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = [{label, (label + 1) % 4} for label in y]
        >>> classifier = PartialLabelClassifier(rebalancer="records", epochs=1)
        >>> search = GridSearchCV(
        ...     classifier, {"lr": [0.01, 0.1]}, scoring=covering_rate, cv=CandidateKFold(2)
        ... )
        >>> list(search.fit(X, sets).best_params_)
        ['lr']
    """
    number = {name: i for i, name in enumerate(estimator.classes_.tolist())}
    predicted = np.asarray([number[name] for name in np.asarray(estimator.predict(X)).tolist()])
    return covering_rate_score(sets_for_estimator(estimator, y), predicted)


def approximated_accuracy(estimator: Any, X: Any, y: Any) -> float:
    """`approximated_accuracy_score` as a scorer, used like `covering_rate`."""
    return approximated_accuracy_score(sets_for_estimator(estimator, y), estimator.predict_proba(X))


def approximated_balanced_accuracy(estimator: Any, X: Any, y: Any) -> float:
    """`approximated_balanced_accuracy_score` as a scorer, used like `covering_rate`."""
    return approximated_balanced_accuracy_score(
        sets_for_estimator(estimator, y), estimator.predict_proba(X)
    )


class ScoredBySets(ClassifierMixin):  # type: ignore[misc]
    """The score of classifiers that learn from candidate sets."""

    classes_: npt.NDArray[Any]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy if `y` has a single label per row, or else the covering rate.

        The covering rate is the share of predictions that are candidates.

        Args:
            X: Inputs of the kind that the classifier was fitted to.
            y: Labels or candidate sets in any form that `fit` takes.
            sample_weight: Weights of the rows; with them, `y` must have a single label per row.
        """
        check_is_fitted(self)
        if sample_weight is None:
            labels = read_labels(y, tuple(self.classes_.tolist()), more=True)
            if not labels.certain:
                return covering_rate(self, X, y)
        return float(super().score(X, y, sample_weight))


def probabilities_of_all_classes(
    candidates: Candidates, probabilities: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """The probabilities with a column of zeros for each class that was unseen in training."""
    found = np.asarray(probabilities, dtype=np.float64)
    return np.pad(found, ((0, 0), (0, max(0, candidates.n_classes - found.shape[1]))))


def _inside(
    candidates: Candidates, probabilities: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The row and the label of every candidate, and the probability of the set of each row."""
    offsets, labels = candidates.offsets.cpu().numpy(), candidates.labels.cpu().numpy()
    rows = np.repeat(np.arange(len(candidates)), np.diff(offsets))
    mass = np.bincount(rows, weights=probabilities[rows, labels], minlength=len(candidates))
    return rows, labels, np.maximum(mass, np.finfo(np.float64).tiny)


def _covered(candidates: Candidates, predicted: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether each prediction is a candidate."""
    import torch

    if len(candidates) != len(predicted):
        raise InputError(
            f"Give one prediction per set, not {counted(len(predicted), 'prediction')} for "
            f"{counted(len(candidates), 'candidate set')}."
        )
    labels = torch.from_numpy(np.ascontiguousarray(predicted, dtype=np.int64))
    found: npt.NDArray[np.bool_] = candidates.contains(labels).cpu().numpy()
    return found


def sets_for_estimator(estimator: Any, y: Any) -> Candidates:
    """The candidate sets with the estimator's class numbers; unseen classes come behind them."""
    return read_labels(y, tuple(estimator.classes_.tolist()), more=True).candidates
