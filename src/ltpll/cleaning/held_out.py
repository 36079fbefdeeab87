"""Judging a training on own data: by held-out rows with sets or true labels, and by true labels of training rows, where there are any."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ltpll.candidates import Candidates
from ltpll.evaluation.metrics import evaluate, target_recovery
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.validation import as_inputs


class Judge:
    """A `Measure` of a trainer; labels are −1 where nobody knows them, and are never trained on."""

    def __init__(
        self,
        x: Any,  # held-out rows, channels first
        candidates: Candidates | None,
        labels: npt.NDArray[np.int64] | None,
        training_labels: npt.NDArray[np.int64] | None,
    ) -> None:
        self.x = x
        self.candidates = candidates
        self.labels = _known(labels)
        self.training_labels = _known(training_labels)

    def prepare(self, trainer: PartialLabelTrainer) -> None:
        if self.candidates is not None:
            self._x = as_inputs(self.x, "held-out")

    def __call__(self, trainer: PartialLabelTrainer) -> dict[str, Any]:
        record: dict[str, Any] = {}
        if self.candidates is not None:
            logits = trainer.logits(self._x).cpu()
            test: dict[str, Any] = {"covering_rate": float(self.candidates.contains(logits.argmax(1)).double().mean())}
            if self.labels is not None:
                known = torch.from_numpy(np.flatnonzero(self.labels >= 0))
                judged = evaluate(logits[known], torch.from_numpy(self.labels)[known])
                test |= {"accuracy": judged.accuracy, "balanced_accuracy": judged.balanced_accuracy, "labelled": len(known)}
            record["test"] = test
        if self.training_labels is not None:
            known = torch.from_numpy(np.flatnonzero(self.training_labels >= 0))
            record["target_recovery"] = target_recovery(
                trainer.targets.labels().cpu()[known], torch.from_numpy(self.training_labels)[known]
            )
        return record


def _known(labels: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64] | None:
    return labels if labels is not None and bool((labels >= 0).any()) else None
