"""Members: the classifiers of a committee, each trained on candidate sets or on soft labels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor

from ltpll.committee.forest import SoftForest, repeated_rows
from ltpll.errors import InputError
from ltpll.estimator import PartialLabelClassifier
from ltpll.rebalancers import RECORDS
from ltpll.training.checkpoint import Tensors

MOST_COLUMNS = 128  # that are read in bins; more are probably an embedding, which bins harm
TREES = 100  # on all rows; half as many in each fold
ENOUGH = 3  # distinct values from which bins say more than the number itself
ON_GROUPS = "network on groups"
CONTENT = "classifier."
VALUES = "classifier-values"


@dataclass(frozen=True, eq=False)
class NetworkMember:
    """A network that learns from candidate sets.

    Args:
        name: What reports call it.
        classifier: An untrained classifier.
        bins: Whether numbers are also read in bins (`PiecewiseLinear`).
        lifts: Whether it predicts rare classes more often than the sets suggest, as with RECORDS;
            it then has no say in how frequent the classes are.
        told: Whether it starts from the soft labels of the other networks, as weights of the
            candidates.
    """

    name: str
    classifier: PartialLabelClassifier
    bins: bool = False
    lifts: bool = False
    told: bool = False


@dataclass(frozen=True, eq=False)
class SoftLabelMember:
    """A classifier that learns from the soft labels of the networks.

    Args:
        name: What reports call it.
        classifier: A `SoftForest`, or a classifier of scikit-learn whose `fit` takes
            `sample_weight`.
    """

    name: str
    classifier: Any

    def fitted(self, x: npt.NDArray[Any], soft: npt.NDArray[Any], *, of_fold: bool = False) -> Any:
        """A copy of the classifier, fitted to soft labels, (rows, classes).

        The forest of a fold has half of the trees, which takes half of the time.
        """
        if isinstance(self.classifier, SoftForest):
            trees = self.classifier.trees
            return self.classifier.unfitted(-(-trees // 2) if of_fold else trees).fit(x, soft)
        rows, labels, weights = repeated_rows(soft)
        return clone(self.classifier).fit(x[rows], labels, sample_weight=weights)


Member = NetworkMember | SoftLabelMember


def default_members(
    x: npt.NDArray[Any], base: PartialLabelClassifier, seed: int, *, grouped: bool = False
) -> list[Member]:
    """The members of a committee on a table.

    There are a linear model and networks on scaled numbers and on numbers in bins, whose class
    shares are fixed as the rebalancer "auto" decides by the sets alone; a network with RECORDS; and
    a forest. Where rows share their sets in groups, the shares are known well without RECORDS, and
    labels of the other rows tell more: a network that starts from them is in its place.

    Args:
        x: The features, (rows, features).
        base: A classifier with the settings that all networks share.
        seed: The seed of the forest.
        grouped: Whether rows share their sets in groups (`SharedSets`).
    """
    found: list[Member] = [
        NetworkMember("linear model", clone(base).set_params(model="linear")),
        NetworkMember("network", clone(base)),
    ]
    bins = few_columns(x)
    if bins:
        found.append(NetworkMember("network on bins", clone(base), bins=True))
    if grouped:
        found.append(NetworkMember(ON_GROUPS, clone(base), bins=bins, told=True))
    else:
        lifting = clone(base).set_params(rebalancer=RECORDS())
        found.append(NetworkMember("network, RECORDS", lifting, lifts=True))
    return [*found, SoftLabelMember("random forest", SoftForest(TREES, seed=seed))]


def few_columns(x: npt.NDArray[Any]) -> bool:
    """Whether some columns have numbers to be read in bins, and not too many have."""
    sample = x[:: max(1, len(x) // 1000)]
    numbers = [column for column in sample.T if len(np.unique(column)) >= ENOUGH]
    return 0 < len(numbers) <= MOST_COLUMNS


def takes_weights(classifier: Any) -> bool:
    """Whether this is a classifier that learns from weighted rows and predicts probabilities."""
    able = not isinstance(classifier, type) and hasattr(classifier, "predict_proba")
    return able and has_fit_parameter(classifier, "sample_weight")


def all_classes(classifier: Any, x: npt.NDArray[Any], n_classes: int) -> npt.NDArray[np.float32]:
    """A classifier's probabilities of all classes, also of those that it was not trained on."""
    found = np.asarray(classifier.predict_proba(x), dtype=np.float32)
    if found.shape[1] == n_classes:
        return found
    whole = np.zeros((len(x), n_classes), dtype=np.float32)
    whole[:, classifier.classes_] = found
    return whole


def content_of(classifier: PartialLabelClassifier) -> Tensors:
    """A fitted classifier as tensors, for `classifier_of`."""
    tensors, values = classifier.content()
    text = torch.frombuffer(bytearray(json.dumps(values).encode()), dtype=torch.uint8)
    return {**{f"{CONTENT}{name}": one for name, one in tensors.items()}, VALUES: text}


def classifier_of(tensors: Mapping[str, Tensor], device: str) -> PartialLabelClassifier:
    """The fitted classifier whose `content_of` these are.

    Raises:
        InputError: They are damaged.
    """
    own = {
        name.removeprefix(CONTENT): one for name, one in tensors.items() if name.startswith(CONTENT)
    }
    try:
        values = json.loads(bytes(tensors[VALUES].cpu().numpy()))
    except (KeyError, ValueError, UnicodeDecodeError):
        raise InputError("The network in this file is damaged: train again.") from None
    return PartialLabelClassifier.from_content(own, values, device)
