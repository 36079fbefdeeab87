"""Held-out evaluation: measures a run on a user's table with held-out rows and true labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.candidates import Candidates
from ltpll.evaluation.metrics import evaluate, target_recovery
from ltpll.interfaces import Goal
from ltpll.training.callbacks import Measurement
from ltpll.training.trainer import PartialLabelTrainer

Labels = npt.NDArray[np.int64]


class HeldOutEvaluation(Measurement):
    """Adds figures about held-out rows and known true labels to records; training sees none of it.

    Args:
        x: The held-out rows, images with channels first.
        candidates: Their candidate sets; None if no rows are held out.
        labels: Their true class numbers, −1 where unknown; None if none is known.
        training_labels: The same for the training rows.
        goal: What predictions are for; their figures are in `test`, those for both goals in
            `by_goal` of `test`.
        every: The number of epochs between two evaluations; the last epoch is always evaluated.
    """

    def __init__(
        self,
        x: Any,
        candidates: Candidates | None,
        labels: Labels | None,
        training_labels: Labels | None,
        goal: Goal = "balanced",
        every: int = 1,
    ) -> None:
        super().__init__(every)
        self.x, self.candidates, self.goal = x, candidates, goal
        self.known, self.known_in_training = _known(labels), _known(training_labels)

    def on_train_begin(self, trainer: PartialLabelTrainer) -> None:
        if self.candidates is not None:
            self._x = trainer.predictor.inputs(self.x, "held-out")

    def measure(self, trainer: PartialLabelTrainer) -> dict[str, Any]:
        """Return the figures of the current state."""
        by_goal: dict[str, Tensor] = {}
        if self.candidates is not None:
            outputs = trainer.predictor.outputs(self._x)
            for goal in get_args(Goal):
                by_goal[goal] = trainer.predictor.adjusted(outputs, goal).cpu()
        return self.figures(by_goal, trainer.targets.labels().cpu())

    def figures(self, by_goal: Mapping[str, Tensor], labels: Tensor) -> dict[str, Any]:
        """What a record holds.

        Args:
            by_goal: For each goal, scores of the classes of the held-out rows; empty without rows.
            labels: The labels of the training rows.
        """
        record: dict[str, Any] = {}
        if self.candidates is not None:
            found = {
                goal: self._held_out_figures(scores, self.candidates)
                for goal, scores in by_goal.items()
            }
            record["test"] = {**found[self.goal], "by_goal": found}
            if self.known is not None:
                record["test"]["labelled"] = len(self.known[0])
        if self.known_in_training is not None:
            rows, true = self.known_in_training
            record["target_recovery"] = target_recovery(labels[rows], true)
        return record

    def _held_out_figures(self, logits: Tensor, candidates: Candidates) -> dict[str, float]:
        found = {"covering_rate": float(candidates.contains(logits.argmax(1)).double().mean())}
        if self.known is not None:
            rows, true = self.known
            figures = evaluate(logits[rows], true)
            found |= {"accuracy": figures.accuracy, "balanced_accuracy": figures.balanced_accuracy}
        return found


def _known(labels: Labels | None) -> tuple[Tensor, Tensor] | None:
    """The rows whose true label is known, and these labels, if there are any."""
    if labels is None or not (labels >= 0).any():
        return None
    rows = np.flatnonzero(labels >= 0)
    return torch.from_numpy(rows), torch.from_numpy(labels[rows])
