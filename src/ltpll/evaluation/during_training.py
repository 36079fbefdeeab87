"""Evaluation during training: test accuracy, target recovery and the estimated prior."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.errors import InputError
from ltpll.evaluation.metrics import RunningEvaluation, Shots, prior_distance, target_recovery
from ltpll.interfaces import Outputs, Rebalancer
from ltpll.training.callbacks import Measurement
from ltpll.training.nonfinite import not_finite_error
from ltpll.training.state import without_long_lists
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.validation import as_inputs, as_labels, whole_number

UNCORRECTED = "uncorrected"
"""The figures of predictions for the goal "accuracy", not corrected for the class prior."""


class Evaluate(Measurement):
    """Adds figures about test data, and about known training labels, to the record of an epoch.

    None of this is used for training.

    Args:
        x_test: Test features or images.
        y_test: Their class numbers.
        y_train: The true class numbers of the training examples, if known.
        every: The number of epochs between two evaluations; the last epoch is always evaluated.
        details_every: The figures of single classes are kept for every so many epochs, for the last
            one and for those that are better than all before them in some row. More than 1 keeps
            the records of long runs small.
        shots: The bounds of many-, medium- and few-shot classes.
        posthoc: Further rebalancers to apply to the same logits, by the name under which their
            figures are recorded; they see the end of the epochs that are evaluated.

    Examples:
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = uniform_candidates(y, n_classes=4, ambiguity=0.3, seed=0)
        >>> model = build_model("mlp", seed=0, n_inputs=2, n_classes=4)
        >>> trainer = PartialLabelTrainer(model, PRODEN(), epochs=2)
        >>> _ = trainer.fit(X, sets, callbacks=[Evaluate(X, y)])
        >>> 0 <= trainer.history[-1]["test"]["balanced_accuracy"] <= 1
        True
    """

    def __init__(
        self,
        x_test: npt.ArrayLike | Tensor,
        y_test: npt.ArrayLike | Tensor,
        y_train: npt.ArrayLike | Tensor | None = None,
        *,
        every: int = 1,
        details_every: int = 1,
        shots: Shots | None = None,
        posthoc: Mapping[str, Rebalancer] | None = None,
    ) -> None:
        super().__init__(every)
        self.details_every = whole_number(details_every, 1, "details_every")
        self.x_test = as_inputs(x_test, "test")
        self.y_test = y_test
        self.y_train = y_train
        self.shots = shots or Shots()
        self.posthoc = dict(posthoc or {})

    def on_train_begin(self, trainer: PartialLabelTrainer) -> None:
        n_classes = trainer.head.out_features
        self._x = self.x_test.to(trainer.device)
        self._y = as_labels(self.y_test, "test", n_classes).to(trainer.device)
        if len(self._x) != len(self._y):
            raise InputError(
                f"There are {len(self._x)} test rows but {len(self._y)} test labels: "
                "they must be the same rows."
            )
        for rebalancer in self.posthoc.values():
            rebalancer.attach(trainer.model)
            rebalancer.to(trainer.device)
        self._y_train: Tensor | None = None
        self._counts: Tensor | None = None
        if self.y_train is not None:
            self._y_train = as_labels(self.y_train, "training", n_classes).to(trainer.device)
            if len(self._y_train) != len(trainer.candidates):
                raise InputError(
                    f"There are {len(self._y_train)} training labels for "
                    f"{len(trainer.candidates)} training rows."
                )
            self._counts = torch.bincount(self._y_train, minlength=n_classes)

    def measure(self, trainer: PartialLabelTrainer) -> dict[str, Any]:
        """Return the figures of the current state.

        `test` holds the figures of the trainer's predictions, `uncorrected` those for the goal
        "accuracy" if they differ; the post-hoc rebalancers and the method's variants have entries
        of the same form under their names.

        Raises:
            NotFiniteError: If predictions are not finite.
        """
        mean_target = trainer.targets.mean()
        record = self._test_figures(trainer)
        record["mean_target"] = mean_target.tolist()
        prior = trainer.predictor.estimated_prior()
        if prior is not None:
            record["prior"] = prior.tolist()
        if self._y_train is not None and self._counts is not None:
            true_prior = self._counts / self._counts.sum()
            record["target_recovery"] = target_recovery(trainer.targets.labels(), self._y_train)
            record["mean_target_distance"] = prior_distance(mean_target, true_prior)
            if prior is not None:
                record["prior_distance"] = prior_distance(prior, true_prior)
        try:
            json.dumps(record, allow_nan=False)
        except ValueError:
            # Weights can be finite but so large that no prediction is.
            what = "The network's predictions of test examples are"
            raise not_finite_error(what, trainer.epoch, None, (), trainer.lr) from None
        return record if self._keeps_details(record, trainer) else without_long_lists(record, 0)

    def _keeps_details(self, record: Mapping[str, Any], trainer: PartialLabelTrainer) -> bool:
        if trainer.epoch % self.details_every == 0 or trainer.epoch == trainer.epochs:
            return True
        for row in [name for name, figures in record.items() if isinstance(figures, Mapping)]:
            earlier = [_accuracy(one, row) for one in trainer.history if row in one]
            if _accuracy(record, row) > max(earlier, default=-1.0):
                return True
        return False

    @torch.no_grad()
    def _test_figures(self, trainer: PartialLabelTrainer) -> dict[str, Any]:
        ways: dict[str, Callable[[Outputs], Tensor]] = {"test": trainer.predictor.adjusted}
        if trainer.predictor.corrects:
            ways[UNCORRECTED] = partial(trainer.predictor.adjusted, goal="accuracy")
        for name, other in self.posthoc.items():
            other.end_epoch(trainer)
            ways[name] = partial(self._posthoc_logits, trainer, other)
        for name in trainer.method.variants:
            ways[name] = partial(trainer.predictor.adjusted, variant=name)
        how = trainer.head.out_features, trainer.device
        running = {name: RunningEvaluation(*how) for name in ways}
        share = trainer.world.own_rows(len(self._x))  # each process evaluates its share
        x, start = self._x[share], share.start
        for outputs in trainer.predictor.chunks(x) if len(x) else ():
            labels = self._y[start : start + len(outputs.logits[0])]
            start += len(labels)
            for name, logits_of in ways.items():
                running[name].count(logits_of(outputs), labels)
        return {
            name: vars(each.over_processes(trainer.world).evaluation(self._counts, self.shots))
            for name, each in running.items()
        }

    @staticmethod
    def _posthoc_logits(
        trainer: PartialLabelTrainer, rebalancer: Rebalancer, outputs: Outputs
    ) -> Tensor:
        predicted = trainer.method.predict(outputs)
        return rebalancer.adjust(predicted, "prediction", trainer.head).logits[0]


def best_epoch(history: Sequence[Mapping[str, Any]], row: str = "test") -> Mapping[str, Any]:
    """Return the record with the highest balanced test accuracy.

    It is selected on the test set and therefore optimistic; never report it as *the* result.

    Args:
        history: The records of a training run.
        row: "test", or the name of a post-hoc rebalancer or variant.

    Raises:
        InputError: If no epoch was evaluated.
    """
    measured = [record for record in history if row in record]
    if not measured:
        raise InputError("No epoch was evaluated: pass callbacks=[Evaluate(…)] to fit.")
    return max(measured, key=lambda record: _accuracy(record, row))


def _accuracy(record: Mapping[str, Any], row: str) -> float:
    accuracy: float = record[row]["balanced_accuracy"]
    return accuracy
