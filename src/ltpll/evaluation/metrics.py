"""Metrics: how well logits predict labels, and how well targets and priors are recovered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.errors import InputError
from ltpll.formatting import counted
from ltpll.training.distributed import World


@dataclass(frozen=True)
class Shots:
    """The bounds of the many-, medium- and few-shot classes.

    Args:
        many: Classes with more training examples than this are many-shot.
        few: Classes with fewer training examples than this are few-shot.
    """

    many: int = 100
    few: int = 20

    def __post_init__(self) -> None:
        if not 0 < self.few <= self.many:
            raise InputError(
                f"Few-shot (fewer than {self.few} examples) and many-shot (more than {self.many}) "
                "overlap: choose few ≤ many."
            )

    def groups(self, class_counts: Tensor) -> dict[str, Tensor]:
        """Return a boolean (classes,) mask for each group."""
        many, few = class_counts > self.many, class_counts < self.few
        return {"many": many, "medium": ~many & ~few, "few": few}


@dataclass(frozen=True)
class Evaluation:
    """Figures between 0 and 1; None where there is nothing to average, such as an empty group."""

    accuracy: float
    top5: float | None
    balanced_accuracy: float
    balanced_error: float
    many: float | None
    medium: float | None
    few: float | None
    per_class: list[float | None]
    mean_prediction: list[float]


class RunningEvaluation:
    """Evaluates predictions chunk by chunk: the logits of a whole test set can take gigabytes."""

    def __init__(self, n_classes: int, device: torch.device) -> None:
        self.n_classes = n_classes
        self.total, self.correct = torch.zeros(2, n_classes, dtype=torch.int64, device=device)
        self.among_five = torch.zeros((), dtype=torch.int64, device=device)
        self.predicted = torch.zeros(n_classes, dtype=torch.float64, device=device)

    def count(self, logits: Tensor, labels: Tensor) -> None:
        """Count the (n, classes) logits of examples with these labels, (n,)."""
        hit = logits.argmax(1) == labels
        self.total += torch.bincount(labels, minlength=self.n_classes)
        self.correct += torch.bincount(labels[hit], minlength=self.n_classes)
        if self.n_classes > 5:
            self.among_five += (logits.topk(5, dim=1).indices == labels[:, None]).any(1).sum()
        self.predicted += torch.softmax(logits.double(), dim=1).sum(0)

    def over_processes(self, world: World) -> RunningEvaluation:
        """Combine the counts of all processes, each of which has evaluated its share."""
        for name in ("total", "correct", "among_five", "predicted"):
            setattr(self, name, world.sum_over_all(getattr(self, name)))
        return self

    def evaluation(
        self, class_counts: Tensor | None = None, shots: Shots | None = None
    ) -> Evaluation:
        """Return the figures; the numbers of training examples define the three groups."""
        n = int(self.total.sum())
        per_class = self.correct / self.total  # NaN for classes without test examples
        present = self.total > 0

        def mean_over(group: Tensor) -> float | None:
            chosen = per_class[group & present].double()
            return float(chosen.mean()) if len(chosen) else None

        balanced = mean_over(torch.ones_like(present))
        assert balanced is not None
        by_group: dict[str, float | None] = dict.fromkeys(("many", "medium", "few"))
        if class_counts is not None:
            groups = (shots or Shots()).groups(class_counts.to(present.device))
            by_group = {name: mean_over(group) for name, group in groups.items()}
        seen = zip(per_class.tolist(), present.tolist(), strict=True)
        return Evaluation(
            accuracy=int(self.correct.sum()) / n,
            top5=int(self.among_five) / n if self.n_classes > 5 else None,
            balanced_accuracy=balanced,
            balanced_error=1 - balanced,
            **by_group,
            per_class=[float(recall) if tested else None for recall, tested in seen],
            mean_prediction=(self.predicted / n).tolist(),
        )


def evaluate(
    logits: Tensor, labels: Tensor, class_counts: Tensor | None = None, shots: Shots | None = None
) -> Evaluation:
    """Compare (n, classes) logits with (n,) labels.

    Args:
        logits: The logits used for prediction.
        labels: The true class numbers.
        class_counts: The number of training examples of each class, for the three groups of
            classes.
        shots: The bounds of these groups.

    Raises:
        InputError: If there is not one label per prediction.

    Examples:
        >>> evaluate(torch.eye(3), torch.tensor([0, 1, 1])).accuracy
        0.6666666666666666
    """
    if len(logits) != len(labels) or len(labels) == 0:
        raise InputError(
            f"Evaluation needs one label per prediction, not {counted(len(logits), 'prediction')} "
            f"for {counted(len(labels), 'label')}."
        )
    running = RunningEvaluation(logits.shape[1], logits.device)
    running.count(logits, labels)
    return running.evaluation(class_counts, shots)


def target_recovery(target_labels: Tensor, labels: Tensor) -> float:
    """The share of training examples whose largest target is at the true label."""
    return float((target_labels == labels).double().mean())


def prior_distance(prior: Tensor, true_prior: Tensor) -> float:
    """The L2 distance between two class distributions."""
    return float((prior.double() - true_prior.double()).norm())


def calibration_figures(
    confidence: npt.NDArray[Any], right: npt.NDArray[np.bool_]
) -> dict[str, float | None]:
    """How well confidences tell right labels from wrong ones.

    Args:
        confidence: The stated probability of each label, between 0 and 1.
        right: Whether the label is right.

    Returns:
        `rows`, `accuracy`, `mean_confidence`; `calibration_error`, the mean distance between
        confidence and accuracy in ten equal intervals of confidence, weighted by their rows; and
        `ranking`, the probability that a right label has a higher confidence than a wrong one (the
        area under the ROC curve), or None if all are right or all wrong.

    Examples:
        >>> calibration_figures(np.array([0.9, 0.6]), np.array([True, False]))["ranking"]
        1.0
    """
    from sklearn.metrics import roc_auc_score  # as slow to import as torch

    confidence = np.asarray(confidence, dtype=np.float64)
    interval = np.minimum((confidence * 10).astype(np.int64), 9)
    gaps = np.bincount(interval, weights=confidence - right, minlength=10)
    return {
        "rows": len(right),
        "accuracy": float(right.mean()),
        "mean_confidence": float(confidence.mean()),
        "calibration_error": float(np.abs(gaps).sum() / len(right)),
        "ranking": float(roc_auc_score(right, confidence)) if 0 < right.mean() < 1 else None,
    }
