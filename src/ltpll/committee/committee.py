"""`Committee`, a scikit-learn estimator that weighs several learners by held-out candidate sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import softmax
from sklearn.base import BaseEstimator, clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
from torch import Tensor

from ltpll.backbones import Backbone
from ltpll.before_training import (
    AUTO,
    NEVER,
    FoldsOf,
    check_truth_missing,
    estimate_missing,
    overall_share,
)
from ltpll.columns import PiecewiseLinear
from ltpll.committee.forest import SoftForest
from ltpll.committee.members import (
    ON_GROUPS,
    Member,
    NetworkMember,
    SoftLabelMember,
    classifier_of,
    content_of,
    default_members,
    takes_weights,
)
from ltpll.committee.mixture import floored_shares, inside_sets, with_shares
from ltpll.committee.shared_sets import SharedSets
from ltpll.committee.training import (
    CommitteeTraining,
    EarlierCommittee,
    FittedMember,
    TrainedCommittee,
)
from ltpll.errors import InputError, first_line, shown
from ltpll.estimator import SCALED, PartialLabelClassifier, seed_of
from ltpll.evaluation.scorers import SetClassifier, as_checked_by_sklearn
from ltpll.evaluation.set_information import SetInformation
from ltpll.targets import Transduced, initial_targets, transduce
from ltpll.training.checkpoint import read_checkpoint, under_prefix, write_checkpoint
from ltpll.training.distributed import current_world
from ltpll.validation import whole_number

KIND = "committee"
STEPS = 2000  # of each network, as of one that predicts alone: shorter ones lose rare classes
VALUES_AT_ONCE = 2**23  # of features in double precision
MOST_NAMED = 3  # members in the sentence about the weights
LEAST_NAMED = 0.1
OF_GROUPS = "Rows share their sets in groups, so the other rows of a group also count for a label."


class Committee(SetClassifier, BaseEstimator):  # type: ignore[misc]
    """Several classifiers for candidate sets, weighted by what held-out sets reveal about them.

    No single learner is best on all tables. The members of a committee are a linear model, networks
    on scaled numbers and on numbers in bins, and a random forest. One cross-validation trains all
    of them. Their weights are those with the most set information (`set_information`) about the
    rows that were held out, which needs no true labels. See docs/committee.md.

    Args:
        members: "auto", or a list of pairs of a name and a classifier, in which "auto" stands for
            the usual members: `["auto", ("boosting", HistGradientBoostingClassifier())]`. A
            `PartialLabelClassifier` learns from the sets; any other classifier of scikit-learn
            whose `fit` takes `sample_weight` learns from the soft labels of these.
        folds: The number of folds.
        steps: The number of training steps of each network.
        views: "auto" scales each feature to the same size; "scaled" keeps their relative sizes, as
            after a `ColumnEncoder`.
        truth_missing: Whether candidate sets may lack the true label, as for
            `PartialLabelClassifier`.
        goal: What `predict` optimises: "accuracy" (every example counts the same) or "balanced"
            (every class counts the same). It may be changed with `set_params` after `fit`.
        random_state: An integer, a `RandomState` or None. An integer makes results reproducible.
        device: "cpu", "cuda" or "auto", for the networks.
        threads: The number of CPU threads for `fit`, or "auto".
        workers: How many networks are trained in parallel on a CPU; None decides by the amount of
            work and the machine. A script with several needs `if __name__ == "__main__":`.

    Attributes:
        classes_: The class labels, (n_classes,).
        weights_: The weight of each member by its name; 0 for those that are not used.
        information_: What the committee says about held-out sets (`SetInformation`).
        choice_: In one sentence, the members that count most, and what they say together.
        class_prior_: The estimated share of each class, (n_classes,).
        out_of_fold_: Probabilities of the training rows by members that were not trained on them,
            (rows, n_classes).
        n_features_in_: The number of features.
        feature_names_in_: The names of the features, if `X` was a DataFrame.
        temperature_: The logarithms of probabilities are divided by it for the goal "accuracy"; 1
            unless `LabelCleaner` or `ltpll train` has calibrated them.
        balanced_temperature_: The same for the goal "balanced".
        truth_missing_: The share of candidate sets that was assumed to lack the true label.

    Examples:
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = uniform_candidates(y, n_classes=4, ambiguity=0.3, seed=0)
        >>> committee = Committee(folds=2, steps=20).fit(X, sets)
        >>> committee.predict([[-0.5, -0.5]])
        array([0])
        >>> round(sum(committee.weights_.values()), 6)
        1.0
    """

    def __init__(
        self,
        members: str | Sequence[str | tuple[str, Any]] = "auto",
        *,
        folds: int = 5,
        steps: int = STEPS,
        views: str = "auto",
        truth_missing: float | str | Sequence[float] = "never",
        goal: str = "accuracy",
        random_state: Any = 0,
        device: str = "auto",
        threads: int | str = "auto",
        workers: int | None = 1,
    ) -> None:
        self.members = members
        self.folds = folds
        self.steps = steps
        self.views = views
        self.truth_missing = truth_missing
        self.goal = goal
        self.random_state = random_state
        self.device = device
        self.threads = threads
        self.workers = workers

    # ---- fitting ---------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train all members on examples and their candidate sets, and weigh them.

        Args:
            X: Features, (rows, features): numbers without gaps. `LabelCleaner` encodes other
                columns first; in a pipeline, `ColumnEncoder` does.
            y: The candidate sets, in any form that `PartialLabelClassifier.fit` takes.
            groups: The picture, scene or recording that each row belongs to. Rows of a group are
                in the same fold.

        Raises:
            InputError: The data cannot be used.
        """
        workers = None if self.workers is None else whole_number(self.workers, 1, "workers")
        training = self.prepare_training(X, y, groups)
        self.decide_missing(training)
        return self.take_over(training.run(stage=training.stage(workers)), training)

    def prepare_training(
        self, X: Any, y: Any, groups: Any = None, *, earlier: EarlierCommittee | None = None
    ) -> CommitteeTraining:
        """The training runs that `fit` makes, for callers of `decide_missing` and `take_over`.

        They start from those of an `earlier` committee on the same rows, if there is one.
        """
        check_truth_missing(self.truth_missing)
        folds = whole_number(self.folds, 2, "folds")
        _ = self._goal  # is checked
        if not current_world().alone:
            raise InputError("A committee trains in one process: use PartialLabelClassifier.")
        if self.views not in ("auto", SCALED):
            raise InputError(f"views is {shown(self.views)}: choose 'auto' or {SCALED!r}.")
        x = self._features(X, reset=True)
        candidates = self._candidates_of(y, groups)
        check_consistent_length(x, candidates)
        seed = seed_of(self.random_state)
        shared_sets = SharedSets.found_in(candidates)
        members = self._members(x, self.base_classifier(), seed, shared_sets is not None)
        return CommitteeTraining(members, x, candidates, folds, seed, shared_sets, earlier)

    def base_classifier(self) -> PartialLabelClassifier:
        """A classifier with the settings that all networks share."""
        seed = seed_of(self.random_state)
        return PartialLabelClassifier(
            views=self.views,
            steps=self.steps,
            random_state=seed,
            device=self.device,
            threads=self.threads,
        )

    def decide_missing(self, training: CommitteeTraining, kept: FoldsOf = ()) -> None:
        """Tell all networks the share of sets that may lack the true label.

        `kept` has the callbacks of each run of an estimate, and where the runs are kept.
        """
        shares: Any = self.truth_missing
        sets = training.candidates
        if shares == AUTO:
            shares = estimate_missing(self.base_classifier(), training.x, sets, *kept)
        training.set_network_params(truth_missing=shares)
        several = isinstance(shares, list | tuple)
        overall = overall_share(shares, sets) if several else shares
        self.truth_missing_ = 0.0 if overall == NEVER else float(overall)

    def checked_inputs(self, X: Any, *, reset: bool) -> npt.NDArray[np.floating[Any]]:
        """Features as scikit-learn checks them; `reset` stores their number and names."""
        X = as_checked_by_sklearn(X)
        if len(getattr(X, "shape", (0, 0))) == 4:
            raise InputError("A committee takes features: give images to PartialLabelClassifier.")
        least = 2 if reset else 1
        how: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_min_samples": least}
        checked: npt.NDArray[np.floating[Any]] = validate_data(self, X, reset=reset, **how)
        return checked

    def _features(self, X: Any, *, reset: bool) -> npt.NDArray[np.float32]:
        """The features, centred and scaled in double precision, which float32 may need."""
        x = self.checked_inputs(X, reset=reset)
        size = max(1, VALUES_AT_ONCE // x.shape[1])
        blocks = [x[start : start + size] for start in range(0, len(x), size)]
        if reset:
            self._scaler = StandardScaler()
            for block in blocks:
                self._scaler.partial_fit(block.astype(np.float64, copy=False))
            if self.views == SCALED:
                self._scaler.scale_[:] = np.sqrt(self._scaler.var_.mean()) or 1.0
        scaled = np.empty(x.shape, dtype=np.float32)
        for number, block in enumerate(blocks):
            whole = (block - self._scaler.mean_) / self._scaler.scale_
            scaled[number * size : number * size + len(block)] = whole
        return scaled

    def _members(
        self, x: Any, base: PartialLabelClassifier, seed: int, grouped: bool
    ) -> list[Member]:
        given = [self.members] if isinstance(self.members, str) else self.members
        found: list[Member] = []
        for one in given:
            if one == AUTO:
                found += default_members(x, base, seed, grouped=grouped)
                continue
            if not (isinstance(one, tuple | list) and len(one) == 2 and isinstance(one[0], str)):
                raise InputError(
                    f"A member is {shown(one)}: give 'auto', or a pair of a name and a classifier."
                )
            name, classifier = one
            if isinstance(classifier, PartialLabelClassifier):
                found.append(NetworkMember(name, clone(classifier)))
            elif isinstance(classifier, SoftForest) or takes_weights(classifier):
                found.append(SoftLabelMember(name, classifier))
            else:
                raise InputError(
                    f"The member {shown(name)} is {shown(classifier)}: give a classifier with "
                    "predict_proba, whose fit takes sample_weight."
                )
        return found

    def take_over(self, found: TrainedCommittee, training: CommitteeTraining) -> Self:
        """Become the committee that a training has found."""
        self._fitted, self._shared = found.members, found.prior
        self.weights_, self.information_ = found.weights, found.information
        self.choice_ = said_of(found.weights, found.information)
        self.temperature_ = self.balanced_temperature_ = 1.0
        self.out_of_fold_, self.own_ = found.out_of_fold, found.own
        sets = training.candidates
        unseen, own = inside_sets(found.out_of_fold, sets), inside_sets(found.own, sets)
        self.class_prior_ = floored_shares(unseen.mean(0), len(unseen))
        soft = initial_targets(sets)
        for rows in sets.row_blocks(sets.n_classes):
            soft[rows] = torch.from_numpy((unseen[rows] + own[rows]) / 2)
        self.transduced_ = transduce(soft, sets)
        return self

    # ---- predicting ------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Class probabilities for the goal: of equally frequent classes if it is "balanced".

        Returns:
            Probabilities, (rows, classes), in the order of `classes_`.
        """
        check_is_fitted(self)
        goal, x = self._goal, self._features(X, reset=False)
        found: Any = 0.0
        for member in self._fitted:
            found = found + np.float32(member.weight) * member.probabilities(x, self._shared)
        if goal == "balanced":
            even = np.full(len(self.classes_), 1 / len(self.classes_))
            found = with_shares(found, self.class_prior_, even)
        temperature = self._goal_temperature
        if temperature != 1:
            logs = np.log(np.maximum(found, np.finfo(np.float32).tiny))
            found = softmax(logs / temperature, axis=1)
        return np.asarray(found, dtype=np.float32)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The predicted class label of each row, (rows,), for the goal."""
        check_is_fitted(self)
        predicted: npt.NDArray[Any] = self.classes_[self.predict_proba(X).argmax(1)]
        return predicted

    # ---- saving ----------------------------------------------------------------------------------

    def save(self, path: Path | str) -> None:
        """Write the fitted committee to a file, which can be loaded without unpickling.

        Raises:
            InputError: A member is neither a network nor a forest of the committee's own.
        """
        check_is_fitted(self)
        tensors: dict[str, Any] = {
            "mean": self._scaler.mean_,
            "scale": self._scaler.scale_,
            "shared": self._shared,
            "class_prior": self.class_prior_,
            **{f"transduced.{k}": column for k, column in enumerate(self.transduced_)},
        }
        for k, member in enumerate(self._fitted):
            own: dict[str, Any] = {"mean": member.mean}
            if isinstance(member.classifier, PartialLabelClassifier):
                own |= {
                    f"network.{name}": one for name, one in content_of(member.classifier).items()
                }
            elif isinstance(member.classifier, SoftForest):
                own |= {f"forest.{name}": one for name, one in member.classifier.arrays().items()}
            else:
                raise InputError(
                    f"The member {shown(member.name)} cannot be saved as numbers and text: pickle "
                    "this committee instead."
                )
            if member.bins is not None:
                own |= {f"bins.{i}": edges for i, edges in enumerate(member.bins.edges_)}
            tensors |= {f"{k}.{name}": one for name, one in own.items()}
        params = {**self.get_params(deep=False), "members": AUTO, "random_state": None}
        values = {
            "kind": KIND,
            "params": params,
            "classes": self.classes_.tolist(),
            "members": [[member.name, member.weight] for member in self._fitted],
            "weights": self.weights_,
            "information": list(self.information_),
            "feature_names_in": getattr(self, "feature_names_in_", np.asarray([])).tolist(),
            "temperature": self.temperature_,
            "balanced_temperature": self.balanced_temperature_,
            "truth_missing": self.truth_missing_,
        }
        write_checkpoint(
            Path(path), {name: torch.as_tensor(one) for name, one in tensors.items()}, values
        )

    @property
    def input_shape_(self) -> tuple[int]:
        """The shape of one example."""
        return (self.n_features_in_,)

    def to_onnx(
        self,
        path: Path | str,
        feature_names: Sequence[str] | None = None,
        backbone: Backbone | None = None,
    ) -> None:
        """Write an ONNX model that maps inputs of `predict` to logits and probabilities.

        It is the same as that of `PartialLabelClassifier.to_onnx`.

        Args:
            path: The file to write.
            feature_names: Names of the features for the description; by default those of the
                DataFrame that was used for training.
            backbone: The backbone whose features the committee was trained on; the model then takes
                pictures.

        Raises:
            InputError: A member is neither a network nor a forest of the committee's own, or
                `ltpll[onnx]` is not installed.
        """
        from ltpll.committee.onnx_export import export_committee

        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", ()) if feature_names is None else feature_names
        export_committee(self, Path(path), [*map(str, names)], backbone)

    @classmethod
    def load(cls, path: Path | str, device: str = "auto") -> Self:
        """Load a committee that `save` has written, to predict on `device`.

        Raises:
            InputError: The file is damaged or was not written by `save`.
        """
        tensors, values = read_checkpoint(Path(path), advice="save the committee again")
        if values.get("kind") != KIND:
            raise InputError(f"{path} is a checkpoint, but not that of a committee.")
        try:
            return cls._from_content(tensors, values, device)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            problem = f"The committee in {path} is damaged ({first_line(error)})"
            raise InputError(f"{problem}: save it again.") from None

    @classmethod
    def _from_content(cls, tensors: Mapping[str, Tensor], values: Any, device: str) -> Self:
        self = cls(**{**values["params"], "device": device})
        arrays = {name: one.numpy() for name, one in tensors.items()}
        self.classes_ = np.asarray(values["classes"])
        self._scaler = StandardScaler()
        self._scaler.mean_, self._scaler.scale_ = arrays["mean"], arrays["scale"]
        self._scaler.var_ = arrays["scale"] ** 2
        self.n_features_in_ = self._scaler.n_features_in_ = len(arrays["mean"])
        names = list(values["feature_names_in"])
        if names:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        self.class_prior_, self._shared = arrays["class_prior"], arrays["shared"]
        self.transduced_ = Transduced(*(arrays[f"transduced.{k}"] for k in range(4)))
        self.weights_ = {str(name): float(one) for name, one in values["weights"].items()}
        self.information_ = SetInformation(*map(float, values["information"]))
        self.choice_ = said_of(self.weights_, self.information_)
        self.temperature_ = values["temperature"]
        self.balanced_temperature_ = values.get("balanced_temperature", self.temperature_)
        self.truth_missing_ = float(values["truth_missing"])
        sizes = {len(self.class_prior_), len(self._shared), len(self.classes_)}
        least = min(self.temperature_, self.balanced_temperature_)
        if len(sizes) > 1 or len(names) not in (0, self.n_features_in_) or least <= 0:
            raise ValueError("its classes or features differ in number")
        self._fitted = [
            _member_of(under_prefix(str(k), tensors), str(name), float(weight), device)
            for k, (name, weight) in enumerate(values["members"])
        ]
        for member in self._fitted:  # of other sizes, it fails here
            member.probabilities(np.zeros((1, self.n_features_in_), np.float32), self._shared)
        return self


def _member_of(
    tensors: Mapping[str, Tensor], name: str, weight: float, device: str
) -> FittedMember:
    arrays, bins = {key: one.numpy() for key, one in tensors.items()}, None
    own: Any
    if forest := {
        key.removeprefix("forest."): one for key, one in arrays.items() if key.startswith("forest.")
    }:
        own = SoftForest.from_arrays(forest)
    else:
        own = classifier_of(under_prefix("network", tensors), device)
    n_edges = sum(key.startswith("bins.") for key in arrays)
    if n_edges:
        bins = PiecewiseLinear()
        bins.edges_, bins.n_features_in_ = [arrays[f"bins.{i}"] for i in range(n_edges)], n_edges
    return FittedMember(name, weight, own, bins, arrays["mean"])


def said_of(weights: Mapping[str, float], information: SetInformation) -> str:
    """A sentence about the members that count most, and what all together know."""
    largest = sorted(weights.items(), key=lambda one: -one[1])[:MOST_NAMED]
    named = [f"{name} {weight:.0%}" for name, weight in largest if weight >= LEAST_NAMED]
    members = ", ".join(named or [f"{largest[0][0]} most"])
    found = f"Weights by held-out sets: {members}. Together they know {information}."
    return f"{found} {OF_GROUPS}" if ON_GROUPS in weights else found
