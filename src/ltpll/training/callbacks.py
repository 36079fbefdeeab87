"""Callbacks: what users hook into a training, with the two that come with it, `Checkpoint` and `Progress`."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltpll.files import check_writable
from ltpll.formatting import format_duration
from ltpll.training.checkpoint import has_checkpoint
from ltpll.validation import in_range, whole_number

if TYPE_CHECKING:
    from ltpll.training.trainer import PartialLabelTrainer


class Callback:
    """Base class of callbacks; override the hooks that you need.

    All hooks get the trainer. With several processes, every process calls them.

    Example:
        >>> class PrintLoss(Callback):
        ...     def on_epoch_end(self, trainer, record):
        ...         print(record["epoch"], record["loss"])
        >>> trainer.fit(x, candidates, callbacks=[PrintLoss()])
    """

    def on_train_begin(self, trainer: PartialLabelTrainer) -> None:
        """Called once before training, after the data was checked; raise an InputError to refuse to train."""

    def on_resume(self, trainer: PartialLabelTrainer) -> None:
        """Called once if the training resumes from a checkpoint; `trainer.epoch` epochs are done."""

    def on_step_end(self, trainer: PartialLabelTrainer) -> None:
        """Called after every step; must not synchronise with the device."""

    def on_epoch_end(self, trainer: PartialLabelTrainer, record: dict[str, Any]) -> None:
        """Called after every epoch with its record, which is the last of `trainer.history` and may be added to."""

    def on_interrupt(self, trainer: PartialLabelTrainer) -> None:
        """Called when a signal stops the training, possibly in the middle of an epoch."""


class OnEpoch(Callback):
    """Calls a function with the record of every epoch, and another one with the number of finished epochs when training resumes."""

    def __init__(self, function: Callable[[dict[str, Any]], None], on_resume: Callable[[int], None] | None = None) -> None:
        self.function = function
        self._on_resume = on_resume

    def on_resume(self, trainer: PartialLabelTrainer) -> None:
        if self._on_resume:
            self._on_resume(trainer.epoch)

    def on_epoch_end(self, trainer: PartialLabelTrainer, record: dict[str, Any]) -> None:
        self.function(record)


class Measurement(Callback):
    """Adds what `measure` returns to the records of some epochs; a base class.

    Args:
        every: The number of epochs between two measurements; the last epoch is always measured.
    """

    def __init__(self, every: int = 1) -> None:
        self.every = whole_number(every, 1, "every")

    def on_epoch_end(self, trainer: PartialLabelTrainer, record: dict[str, Any]) -> None:
        if trainer.epoch % self.every == 0 or trainer.epoch == trainer.epochs:
            record |= self.measure(trainer)

    def measure(self, trainer: PartialLabelTrainer) -> dict[str, Any]:
        """Return the figures of the current state."""
        raise NotImplementedError


class Checkpoint(Callback):
    """Saves the state of the training, and resumes from it if the file exists.

    The previous checkpoint is kept beside the new one. SIGTERM and interrupts take effect after the current step, whose state is saved
    first. A checkpoint callback runs after all others, so that a log never has fewer epochs than the checkpoint.

    Args:
        path: The file to write.
        every: The number of epochs between two checkpoints; the last epoch is always saved.
        min_seconds: Do not save again before this time has passed, except at the end.

    Example:
        >>> trainer.fit(x, candidates, callbacks=[Checkpoint("training.safetensors")])
    """

    def __init__(self, path: Path | str, every: int = 1, min_seconds: float = 0.0) -> None:
        self.path = Path(path)
        self.every = whole_number(every, 1, "every")
        self.min_seconds = in_range(min_seconds, "min_seconds", 0)
        self._saved_at, self._saved = -math.inf, (-1, -1)

    def exists(self, trainer: PartialLabelTrainer) -> bool:
        """Whether there is a checkpoint to resume from."""
        return bool(trainer.world.agreed(has_checkpoint(self.path)))

    def on_train_begin(self, trainer: PartialLabelTrainer) -> None:
        check_writable(self.path.parent)
        self._saved_at, self._saved = -math.inf, (-1, -1)
        if self.exists(trainer):
            trainer.load(self.path)

    def on_epoch_end(self, trainer: PartialLabelTrainer, record: dict[str, Any]) -> None:
        due = trainer.epoch % self.every == 0 and time.monotonic() - self._saved_at >= self.min_seconds
        if trainer.world.agreed(due or trainer.epoch == trainer.epochs):
            self._save(trainer)

    def on_interrupt(self, trainer: PartialLabelTrainer) -> None:
        if self._saved != (trainer.epoch, trainer.step_of_epoch):
            self._save(trainer)

    def _save(self, trainer: PartialLabelTrainer) -> None:
        trainer.save(self.path)
        self._saved_at, self._saved = time.monotonic(), (trainer.epoch, trainer.step_of_epoch)
        trainer.world.wait()  # here, where the time-out allows for a slow disk, and not in the next step


class Progress(Callback):
    """Reports the progress of a training with the time left, also inside long epochs; by default as lines on standard error.

    Subclasses override `show` to report in another way.

    Args:
        every_seconds: Print at most one line in this time; the end is always printed.
        write: A function that gets each line.
        epochs: The number of epochs, if it is needed before `fit` is called.
        later_epochs: Epochs of about the same cost that follow this training; they count for the time left.
        name: What is trained, if there are several trainings.

    Example:
        >>> trainer.fit(x, candidates, callbacks=[Evaluate(x_test, y_test), Progress()])
        epoch 12/100 · loss 0.412 · accuracy 71.3% · 40 s left
    """

    def __init__(
        self,
        every_seconds: float = 5.0,
        write: Callable[[str], None] | None = None,
        *,
        epochs: int = 0,
        later_epochs: float = 0.0,
        name: str = "",
    ) -> None:
        self.every_seconds = in_range(every_seconds, "every_seconds", 0)
        self.write = write or (lambda line: print(line, file=sys.stderr, flush=True))
        self.epochs, self.later_epochs, self.name = epochs, later_epochs, name
        self.figures = dict.fromkeys(("loss", "accuracy", "recovery", "left", "speed"), "")
        self._updated = self._shown = self._started = time.monotonic()
        self._done_at_start: float | None = None
        self._views_per_epoch = 0

    def on_train_begin(self, trainer: PartialLabelTrainer) -> None:
        self.epochs = trainer.epochs
        self._views_per_epoch = trainer.views_per_epoch

    def on_resume(self, trainer: PartialLabelTrainer) -> None:
        self.update(trainer.epochs_done)

    def on_step_end(self, trainer: PartialLabelTrainer) -> None:
        # The last step of an epoch is reported with the epoch's figures.
        if trainer.step_of_epoch < trainer.steps_per_epoch and time.monotonic() - self._updated >= min(self.every_seconds, 0.5):
            self.update(trainer.epochs_done)

    def on_epoch_end(self, trainer: PartialLabelTrainer, record: dict[str, Any]) -> None:
        self.update(trainer.epoch, record)

    def update(self, done: float, record: Mapping[str, Any] | None = None) -> None:
        """Report that `done` epochs, with the fraction of the current one, are finished."""
        now, figures, record = time.monotonic(), self.figures, record or {}
        self._updated = now
        test = record.get("test", {})
        if "loss" in record:
            figures["loss"] = f"loss {record['loss']:.3f}"
        if "balanced_accuracy" in test:
            figures["accuracy"] = f"accuracy {test['balanced_accuracy']:.1%}"
        elif "covering_rate" in test:
            figures["accuracy"] = f"inside sets {test['covering_rate']:.1%}"
        if "target_recovery" in record:
            figures["recovery"] = f"recovery {record['target_recovery']:.1%}"
        if self._done_at_start is None or (record.get("epoch") == 1 and done == 1):
            self._done_at_start, self._started = done, now  # the first steps, and the first epoch, include compilation
        elif done > self._done_at_start:
            pace = (now - self._started) / (done - self._done_at_start)
            figures["left"] = f"{format_duration((self.epochs - done + self.later_epochs) * pace)} left"
            if self._views_per_epoch:
                figures["speed"] = f"{self._views_per_epoch / max(pace, 1e-9):,.0f} views/s"
        self.show(done)

    @property
    def text(self) -> str:
        """The current figures."""
        return " · ".join(filter(None, self.figures.values()))

    def show(self, done: float) -> None:
        """Print a line, unless the last one was printed a moment ago."""
        if done >= self.epochs or time.monotonic() - self._shown >= self.every_seconds:
            self._shown = time.monotonic()
            epoch = f"{done:.0f}" if done == int(done) else f"{done:.2f}"
            name = f"{self.name}: " if self.name else ""
            self.write(" · ".join(filter(None, [f"{name}epoch {epoch}/{self.epochs}", self.text])))

    def close(self) -> None:
        """Called when nothing follows; closing twice does no harm."""
