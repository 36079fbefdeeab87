"""Evaluation: how well logits predict labels, overall and by how often a class was seen, and how well targets and priors are recovered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.errors import InputError
from ltpll.interfaces import Rebalancer
from ltpll.training.distributed import World
from ltpll.training.nonfinite import finite_throughout, not_finite
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.validation import as_inputs, as_labels


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


class Tally:
    """Figures of predictions that come a part at a time: the logits of a whole test set for many classes take gigabytes."""

    def __init__(self, n_classes: int, device: torch.device) -> None:
        self.n_classes = n_classes
        self.seen, self.right = (torch.zeros(n_classes, dtype=torch.int64, device=device) for _ in range(2))
        self.among_five = torch.zeros((), dtype=torch.int64, device=device)
        self.predicted = torch.zeros(n_classes, dtype=torch.float64, device=device)

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Count (n, classes) logits of examples that have these labels, (n,)."""
        hit = logits.argmax(1) == labels
        self.seen += torch.bincount(labels, minlength=self.n_classes)
        self.right += torch.bincount(labels[hit], minlength=self.n_classes)
        if self.n_classes > 5:
            self.among_five += (logits.topk(5, dim=1).indices == labels[:, None]).any(1).sum()
        self.predicted += torch.softmax(logits.double(), dim=1).sum(0)

    def of_all(self, world: World) -> Tally:
        """The figures of all processes together, each of which has counted examples of its own."""
        for name in ("seen", "right", "among_five", "predicted"):
            setattr(self, name, world.total(getattr(self, name)))
        return self

    def evaluation(self, class_counts: Tensor | None = None, shots: Shots | None = None) -> Evaluation:
        """`class_counts`, the training examples of each class, make the three groups."""
        n = int(self.seen.sum())
        per_class = self.right / self.seen  # NaN for a class that the test set does not have
        present = self.seen > 0

        def mean_over(group: Tensor) -> float | None:
            chosen = per_class[group & present].double()
            return float(chosen.mean()) if len(chosen) else None

        balanced = mean_over(torch.ones_like(present))
        assert balanced is not None
        groups = {} if class_counts is None else (shots or Shots()).groups(class_counts.to(present.device))
        return Evaluation(
            accuracy=int(self.right.sum()) / n,
            top5=int(self.among_five) / n if self.n_classes > 5 else None,
            balanced_accuracy=balanced,
            balanced_error=1 - balanced,
            many=mean_over(groups["many"]) if groups else None,
            medium=mean_over(groups["medium"]) if groups else None,
            few=mean_over(groups["few"]) if groups else None,
            per_class=[float(p) if s else None for p, s in zip(per_class.tolist(), present.tolist(), strict=True)],
            mean_prediction=(self.predicted / n).tolist(),
        )


def evaluate(logits: Tensor, labels: Tensor, class_counts: Tensor | None = None, shots: Shots | None = None) -> Evaluation:
    """Judge (n, classes) logits against (n,) labels; `class_counts`, the training examples of each class, make the three groups."""
    if len(logits) != len(labels) or len(labels) == 0:
        raise InputError(f"There are {len(logits)} predictions for {len(labels)} labels: evaluation needs one label a prediction.")
    tally = Tally(logits.shape[1], logits.device)
    tally.add(logits, labels)
    return tally.evaluation(class_counts, shots)


def target_recovery(target_labels: Tensor, labels: Tensor) -> float:
    """The share of training examples whose most believed candidate is the true label."""
    return float((target_labels == labels).double().mean())


def prior_distance(prior: Tensor, true_prior: Tensor) -> float:
    """The L2 distance between two class distributions."""
    return float((prior.double() - true_prior.double()).norm())


class Evaluate:
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
        mean_target = trainer.targets.mean()
        record: dict[str, Any] = {**self._judged(trainer), "mean_target": mean_target.tolist()}
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

    @torch.no_grad()
    def _judged(self, trainer: PartialLabelTrainer) -> dict[str, Any]:
        """The test figures by name."""
        method, own = trainer.method, trainer.rebalancer
        # The method's variant and the rebalancer that make each one's logits.
        ways = {"test": ("", own), **{name: ("", other) for name, other in self.posthoc.items()}}
        ways |= {name: (name, own) for name in method.variants}
        tallies = {name: Tally(trainer.head.out_features, trainer.device) for name in ways}
        share = trainer.world.part(len(self._x))  # of several processes, each judges its own
        x, start = self._x[share], share.start
        for outputs in trainer.predictor.parts(x) if len(x) else ():
            labels = self._y[start : start + len(outputs.logits[0])]
            start += len(labels)
            for name, (variant, rebalancer) in ways.items():
                said = rebalancer.adjust(method.predict(outputs, variant), "prediction", trainer.head)
                tallies[name].add(said.logits[0], labels)
        return {name: tally.of_all(trainer.world).evaluation(self._counts, self.shots).to_dict() for name, tally in tallies.items()}


def best_epoch(history: Sequence[Mapping[str, Any]], row: str = "test") -> Mapping[str, Any]:
    """The record with the highest balanced test accuracy: chosen on the test set, so an optimistic figure, never *the* result."""
    measured = [record for record in history if row in record]
    if not measured:
        raise InputError("No epoch was measured: give `measure` to fit.")
    return max(measured, key=lambda record: record[row]["balanced_accuracy"])
