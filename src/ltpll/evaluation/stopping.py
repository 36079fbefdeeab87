"""Stopping: ends training with the weights that know most about held-out candidate sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.evaluation.set_information import set_information
from ltpll.training.callbacks import Measurement
from ltpll.training.checkpoint import (
    Tensors,
    read_checkpoint,
    under_prefix,
    with_prefix,
    write_checkpoint,
)
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.validation import as_inputs

INFORMATION = "set_information"


class MeasureInformation(Measurement):
    """Adds the set information of held-out rows to the records of epochs, in nats.

    Their candidate sets show without true labels which epoch knows most (`set_information`).

    Args:
        x: The held-out rows, features or images.
        candidates: Their candidate sets, which training must not see.
        every: The number of epochs between two measurements; the last epoch is always measured.

    Examples:
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = uniform_candidates(y, n_classes=4, ambiguity=0.3, seed=0)
        >>> train, held_out = next(CandidateKFold(5).split(X, sets))
        >>> model = build_model("mlp", seed=0, n_inputs=2, n_classes=4)
        >>> trainer = PartialLabelTrainer(model, PRODEN(), RECORDS(), epochs=5)
        >>> measure = MeasureInformation(X[held_out], sets.select(held_out))
        >>> _ = trainer.fit(X[train], sets.select(train), callbacks=[measure])
        >>> len([record["set_information"] for record in trainer.history])
        5
    """

    def __init__(
        self, x: npt.ArrayLike | Tensor, candidates: Candidates, *, every: int = 1
    ) -> None:
        super().__init__(every)
        self.x, self.candidates = as_inputs(x, "held-out"), candidates
        if len(self.x) != len(candidates):
            raise InputError(
                f"There are {len(self.x)} held-out rows but {len(candidates)} candidate sets: they "
                "must be the same rows."
            )

    def on_train_begin(self, trainer: PartialLabelTrainer) -> None:
        self._x = trainer.predictor.inputs(self.x, "held-out")

    def measure(self, trainer: PartialLabelTrainer) -> dict[str, Any]:
        """Return the set information of the current state."""
        predictor = trainer.predictor
        logits = predictor.adjusted(predictor.outputs(self._x), "accuracy").float()
        probabilities = torch.softmax(logits, 1).cpu().numpy()
        return {INFORMATION: set_information(probabilities, self.candidates).nats}


class KeepBestEpoch(MeasureInformation):
    """Measures set information on held-out rows, and keeps the weights of the best epoch.

    Self-training can unlearn: RECORDS, for one, drifts away from the head classes. After the last
    epoch, the network, the parts and the targets are those of the epoch where `set_information` was
    highest.

    Args:
        x: The held-out rows, features or images.
        candidates: Their candidate sets, which training must not see.
        every: The number of epochs between two measurements; the last epoch is always measured.
        path: A file for the best weights, so that a training run that is interrupted and resumed
            has them. Without one, epochs before the interruption no longer count.

    Attributes:
        epoch: The best epoch so far, counted from 1.
        information: Its set information.

    Examples:
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = uniform_candidates(y, n_classes=4, ambiguity=0.3, seed=0)
        >>> train, held_out = next(CandidateKFold(5).split(X, sets))
        >>> model = build_model("mlp", seed=0, n_inputs=2, n_classes=4)
        >>> trainer = PartialLabelTrainer(model, PRODEN(), RECORDS(), epochs=5)
        >>> keep = KeepBestEpoch(X[held_out], sets.select(held_out))
        >>> _ = trainer.fit(X[train], sets.select(train), callbacks=[keep])
        >>> best = max(trainer.history, key=lambda record: record["set_information"])
        >>> best["epoch"] == keep.epoch
        True
    """

    def __init__(
        self,
        x: npt.ArrayLike | Tensor,
        candidates: Candidates,
        *,
        every: int = 1,
        path: Path | str | None = None,
    ) -> None:
        super().__init__(x, candidates, every=every)
        self.path = None if path is None else Path(path)
        self.epoch, self.information = 0, float("-inf")
        self._best: Tensors = {}

    def on_train_begin(self, trainer: PartialLabelTrainer) -> None:
        super().on_train_begin(trainer)
        self.epoch, self.information, self._best = 0, float("-inf"), {}

    def on_resume(self, trainer: PartialLabelTrainer) -> None:
        if self.path is None or not self.path.exists():
            return
        tensors, values = read_checkpoint(self.path, advice="delete it")
        if values["epoch"] <= trainer.epoch:
            self.epoch, self.information = values["epoch"], values[INFORMATION]
            self._best = {name: one.to(trainer.device) for name, one in tensors.items()}

    def measure(self, trainer: PartialLabelTrainer) -> dict[str, Any]:
        """Return the set information, and keep the state of the training if it is the highest."""
        record = super().measure(trainer)
        if record[INFORMATION] > self.information:
            self.epoch, self.information = trainer.epoch, record[INFORMATION]
            self._best = {"targets": trainer.targets.values.clone()}
            for name, module in trainer.state.modules.items():
                copies = {key: one.clone() for key, one in module.state_dict().items()}
                self._best |= with_prefix(name, copies)
            if self.path is not None and trainer.world.first:
                about = {"epoch": self.epoch, INFORMATION: self.information}
                write_checkpoint(self.path, self._best, about)
        if trainer.epoch == trainer.epochs:
            self._restore(trainer)
        return record

    def _restore(self, trainer: PartialLabelTrainer) -> None:
        trainer.targets.values.copy_(self._best["targets"])
        for name, module in trainer.state.modules.items():
            module.load_state_dict(under_prefix(name, self._best))
