"""Evaluation: how well logits predict labels, overall and by how often a class was seen, and how well targets and priors are recovered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.contract import Outputs, Rebalancer
from ltpll.errors import InputError
from ltpll.finite import finite_throughout, not_finite
from ltpll.inputs import as_inputs, as_labels
from ltpll.trainer import PartialLabelTrainer


@dataclass(frozen=True)
class Shots:
    """Which classes count as many-, medium- and few-shot: more than `many` training examples, fewer than `few`, and the rest."""

    many: int = 100
    few: int = 20

    def __post_init__(self) -> None:
        if not 0 < self.few <= self.many:
            raise InputError(f"Few-shot means fewer than {self.few} and many-shot more than {self.many} examples: the bounds overlap.")

    def groups(self, class_counts: Tensor) -> dict[str, Tensor]:
        """A boolean (classes,) mask for each group."""
        many, few = class_counts > self.many, class_counts < self.few
        return {"many": many, "medium": ~many & ~few, "few": few}


@dataclass(frozen=True)
class Evaluation:
    """Every figure is a share between 0 and 1; `None` where there is nothing to average (no class in the group, no such rank)."""

    accuracy: float
    top5: float | None
    balanced_accuracy: float
    balanced_error: float
    many: float | None
    medium: float | None
    few: float | None
    per_class: list[float | None]
    mean_prediction: list[float]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def evaluate(logits: Tensor, labels: Tensor, class_counts: Tensor | None = None, shots: Shots | None = None) -> Evaluation:
    """Judge (n, classes) logits against (n,) labels; `class_counts`, the training examples of each class, make the three groups."""
    n_classes = logits.shape[1]
    if len(logits) != len(labels) or len(labels) == 0:
        raise InputError(f"There are {len(logits)} predictions for {len(labels)} labels: evaluation needs one label a prediction.")
    hit = logits.argmax(1) == labels
    seen = torch.bincount(labels, minlength=n_classes)
    right = torch.bincount(labels[hit], minlength=n_classes)
    per_class = right / seen  # NaN for a class that the test set does not have
    present = seen > 0

    def mean_over(group: Tensor) -> float | None:
        chosen = per_class[group & present].double()
        return float(chosen.mean()) if len(chosen) else None

    balanced = mean_over(torch.ones_like(present))
    assert balanced is not None
    groups = {} if class_counts is None else (shots or Shots()).groups(class_counts.to(labels.device))
    top5 = None
    if n_classes > 5:
        top5 = float((logits.topk(5, dim=1).indices == labels[:, None]).any(1).double().mean())
    return Evaluation(
        accuracy=float(hit.double().mean()),
        top5=top5,
        balanced_accuracy=balanced,
        balanced_error=1 - balanced,
        many=mean_over(groups["many"]) if groups else None,
        medium=mean_over(groups["medium"]) if groups else None,
        few=mean_over(groups["few"]) if groups else None,
        per_class=[float(p) if s else None for p, s in zip(per_class.tolist(), present.tolist(), strict=True)],
        mean_prediction=torch.softmax(logits.double(), dim=1).mean(0).tolist(),
    )


def target_recovery(target_labels: Tensor, labels: Tensor) -> float:
    """The share of training examples whose most believed candidate is the true label."""
    return float((target_labels == labels).double().mean())


def prior_distance(prior: Tensor, true_prior: Tensor) -> float:
    """The L2 distance between two class distributions."""
    return float((prior.double() - true_prior.double()).norm())


class Truth:
    """What only an experiment knows, used to measure a training and never to train: test data, and the true training labels if known.

    `posthoc` holds further rebalancers to judge on the same logits, by the name under which their figures appear in the records.
    """

    def __init__(
        self,
        x_test: npt.ArrayLike | Tensor,
        y_test: npt.ArrayLike | Tensor,
        y_train: npt.ArrayLike | Tensor | None = None,
        *,
        shots: Shots | None = None,
        posthoc: Mapping[str, Rebalancer] | None = None,
    ) -> None:
        self.x_test = as_inputs(x_test, "test")
        self.y_test = y_test
        self.y_train = y_train
        self.shots = shots or Shots()
        self.posthoc = dict(posthoc or {})

    def prepare(self, trainer: PartialLabelTrainer) -> None:
        n_classes = trainer.head.out_features
        self._x = self.x_test.to(trainer.device)
        self._y = as_labels(self.y_test, "test", n_classes).to(trainer.device)
        if len(self._x) != len(self._y):
            raise InputError(f"There are {len(self._x)} test rows but {len(self._y)} test labels: they must be the same rows.")
        for rebalancer in self.posthoc.values():
            rebalancer.to(trainer.device)
        self._y_train: Tensor | None = None
        self._counts: Tensor | None = None
        if self.y_train is not None:
            self._y_train = as_labels(self.y_train, "training", n_classes).to(trainer.device)
            if len(self._y_train) != len(trainer.candidates):
                raise InputError(f"There are {len(self._y_train)} training labels for {len(trainer.candidates)} training rows.")
            self._counts = torch.bincount(self._y_train, minlength=n_classes)

    def __call__(self, trainer: PartialLabelTrainer) -> dict[str, Any]:
        """The record of one epoch: `test` is what the trainer predicts, post-hoc names and the method's variants the same otherwise."""
        outputs = trainer.outputs(self._x)
        mean_target = trainer.targets.mean()
        predicted = trainer.method.predict(outputs)
        record: dict[str, Any] = {"test": self._judge(trainer, trainer.rebalancer, predicted), "mean_target": mean_target.tolist()}
        for name, rebalancer in self.posthoc.items():
            record[name] = self._judge(trainer, rebalancer, predicted)
        for name in trainer.method.variants:
            record[name] = self._judge(trainer, trainer.rebalancer, trainer.method.predict(outputs, name))
        prior = trainer.predictor.estimated_prior()
        if prior is not None:
            record["prior"] = prior.tolist()
        if self._y_train is not None and self._counts is not None:
            true_prior = self._counts / self._counts.sum()
            record["target_recovery"] = target_recovery(trainer.targets.labels(), self._y_train)
            record["mean_target_distance"] = prior_distance(mean_target, true_prior)
            if prior is not None:
                record["prior_distance"] = prior_distance(prior, true_prior)
        if not finite_throughout(record):
            # Weights can be finite and yet so large that no prediction is.
            raise not_finite("The network's predictions of test examples are", trainer.epoch, None, (), trainer.lr)
        return record

    def _judge(self, trainer: PartialLabelTrainer, rebalancer: Rebalancer, outputs: Outputs) -> dict[str, Any]:
        logits = rebalancer.adjust(outputs, "prediction", trainer.head).logits[0]
        return evaluate(logits, self._y, self._counts, self.shots).to_dict()


def best_epoch(history: Sequence[Mapping[str, Any]], row: str = "test") -> Mapping[str, Any]:
    """The record with the highest balanced test accuracy: chosen on the test set, so an optimistic figure, never *the* result."""
    measured = [record for record in history if row in record]
    if not measured:
        raise InputError("No epoch was measured: give `measure` to fit.")
    return max(measured, key=lambda record: record[row]["balanced_accuracy"])
