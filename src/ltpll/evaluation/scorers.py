"""Scorers: how good predictions are where only candidate sets are known, for choosing among models without true labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.candidates.labels import read_labels
from ltpll.errors import InputError


def covering_rate_score(candidates: Candidates, predicted: npt.NDArray[np.int64]) -> float:
    """The share of rows whose predicted class is among their candidates: accuracy, if no set had more than one."""
    inside = _membership(candidates, predicted)
    return float(inside.mean())


def approximated_accuracy_score(candidates: Candidates, probabilities: npt.NDArray[Any]) -> float:
    """The accuracy that the model itself would expect, knowing the sets: Σ over rows of p_ŷ / Σ_{j∈S} p_j where ŷ is in S, over N.

    Unlike the covering rate it does not count a prediction as right because the set is large (Wang et al., "Realistic Evaluation of Deep
    Partial-Label Learning Algorithms", ICLR 2025).
    """
    probabilities = np.asarray(probabilities, dtype=np.float64)
    predicted = probabilities.argmax(1)
    inside = _membership(candidates, predicted)
    offsets, labels = candidates.offsets.cpu().numpy(), candidates.labels.cpu().numpy()
    rows = np.repeat(np.arange(len(candidates)), np.diff(offsets))
    mass = np.bincount(rows, weights=probabilities[rows, labels], minlength=len(candidates))
    largest = probabilities[np.arange(len(probabilities)), predicted]
    return float(np.where(inside, largest / np.maximum(mass, np.finfo(np.float64).tiny), 0.0).mean())


def covering_rate(estimator: Any, X: Any, y: Any) -> float:
    """A scorer for scikit-learn's model selection: `GridSearchCV(..., scoring=covering_rate)`."""
    number = {name: i for i, name in enumerate(estimator.classes_.tolist())}
    predicted = np.asarray([number[name] for name in np.asarray(estimator.predict(X)).tolist()])
    return covering_rate_score(_sets_for(estimator, y), predicted)


def approximated_accuracy(estimator: Any, X: Any, y: Any) -> float:
    """A scorer for scikit-learn's model selection: `GridSearchCV(..., scoring=approximated_accuracy)`."""
    return approximated_accuracy_score(_sets_for(estimator, y), estimator.predict_proba(X))


def _membership(candidates: Candidates, predicted: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    import torch

    if len(candidates) != len(predicted):
        raise InputError(f"There are {len(predicted)} predictions for {len(candidates)} candidate sets: they must be the same rows.")
    found: npt.NDArray[np.bool_] = candidates.contains(torch.from_numpy(np.ascontiguousarray(predicted, dtype=np.int64))).cpu().numpy()
    return found


def _sets_for(estimator: Any, y: Any) -> Candidates:
    """Candidate sets whose classes are numbered as the estimator's are."""
    return read_labels(y, tuple(estimator.classes_.tolist())).candidates
