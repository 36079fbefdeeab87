"""The covering rate: how many predictions are candidates, a score that needs no true labels.

Held-out sets may hold classes that were never a candidate in training. They cannot be predicted, so
a set that holds nothing else is not covered. Settings that are compared on the same folds lack the
same classes, so their scores can be compared.
"""

from __future__ import annotations

from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ltpll.candidates import Candidates
from ltpll.candidates.arrow import arrow_table, is_arrow, is_frame
from ltpll.candidates.labels import read_labels
from ltpll.errors import InputError, shown
from ltpll.formatting import counted
from ltpll.interfaces import Goal
from ltpll.targets import Transduced


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


class SetClassifier(ClassifierMixin):  # type: ignore[misc]
    """What classifiers that learn from candidate sets share: inputs, goal, score, saved labels."""

    classes_: npt.NDArray[Any]
    goal: str
    temperature_: float
    balanced_temperature_: float
    transduced_: Transduced

    @property
    def _goal(self) -> Goal:
        if self.goal not in get_args(Goal):
            raise InputError(
                f"The goal is {shown(self.goal)}: choose 'balanced' (every class counts the same) "
                "or 'accuracy' (every example)."
            )
        return cast(Goal, self.goal)

    @property
    def _goal_temperature(self) -> float:
        return self.temperature_ if self._goal == "accuracy" else self.balanced_temperature_

    def _candidates_of(self, y: Any, groups: Any) -> Candidates:
        """The candidate sets that `fit` was given; stores their classes."""
        if y is None:
            missing = "This classifier requires y to be passed, but the target y is None"
            raise InputError(f"{missing}: give the candidate sets.")
        labels = read_labels(y)
        self.classes_ = labels.classes
        return labels.candidates if groups is None else labels.candidates.with_groups(groups)

    def transduce(self) -> Transduced:
        """The disambiguated labels of the training examples, in their order.

        Those of a committee are the likeliest candidates by the mean of the members that were
        trained on a row and those that were not.

        Returns:
            For each row the label, its confidence (its share of the probability of the set), the
            runner-up, and the margin between the two.
        """
        check_is_fitted(self)
        first, confidence, second, margin = self.transduced_
        return Transduced(self.classes_[first], confidence, self.classes_[second], margin)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

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


def as_checked_by_sklearn(X: Any) -> Any:
    """Inputs as scikit-learn checks them; in an Arrow table, it finds the names of columns."""
    if isinstance(X, torch.Tensor):
        return X.detach().cpu().numpy()
    if is_arrow(X) and is_frame(X):
        return arrow_table(X)
    return X.toarray() if issparse(X) else X  # networks multiply dense matrices


def sets_for_estimator(estimator: Any, y: Any) -> Candidates:
    """The candidate sets with the estimator's class numbers; unseen classes come behind them."""
    return read_labels(y, tuple(estimator.classes_.tolist()), more=True).candidates
