"""The covering rate: how many predictions are candidates, a score that needs no true labels.

Held-out sets may hold classes that were never a candidate in training. They cannot be predicted, so
a set that holds nothing else is not covered. Settings that are compared on the same folds lack the
same classes, so their scores can be compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ltpll.candidates import Candidates
from ltpll.candidates.labels import read_labels
from ltpll.errors import InputError
from ltpll.formatting import counted


def covering_rate(estimator: Any, X: Any, y: Any) -> float:
    """The share of held-out rows whose predicted class is a candidate, as a scorer.

    It is the accuracy if sets have one label. Classes that the classifier was not trained on cannot be predicted; `ltpll.CandidateKFold` keeps
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
    predicted = [number[name] for name in np.asarray(estimator.predict(X)).tolist()]
    candidates = sets_for_estimator(estimator, y)
    if len(candidates) != len(predicted):
        raise InputError(
            f"Give one set per row, not {counted(len(candidates), 'set')} for "
            f"{counted(len(predicted), 'row')}."
        )
    return float(candidates.contains(torch.tensor(predicted)).double().mean())


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


def sets_for_estimator(estimator: Any, y: Any) -> Candidates:
    """The candidate sets with the estimator's class numbers; unseen classes come behind them."""
    return read_labels(y, tuple(estimator.classes_.tolist()), more=True).candidates
