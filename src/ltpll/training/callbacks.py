"""Callbacks: hooks into a training run; `Checkpoint` and `Progress` are included."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltpll.files import check_writable
from ltpll.formatting import format_duration
from ltpll.training.checkpoint import has_checkpoint
from ltpll.training.job import Part, Stage
from ltpll.validation import in_range, whole_number

if TYPE_CHECKING:
    from ltpll.training.trainer import PartialLabelTrainer

UPDATE_SECONDS = 0.2  # between two updates of a progress, however it is shown
FIRST_LINE_SECONDS = 1.0
RECENT_SECONDS = 10.0  # older speeds count less and less; with time, more of the past is recent
LEAST_SECONDS = 0.5  # a speed that was measured for less time says nothing
FREQUENT_SECONDS = 60.0  # after this time, lines of progress become rarer
SHOWN_AS = {
    "loss": "loss",
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "covering_rate": "inside sets",
    "target_recovery": "recovery",
}


class Callback:
    """Base class of callbacks; override the hooks that you need.

    All hooks get the trainer. With several processes, every process calls them.

    Examples:
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = uniform_candidates(y, n_classes=4, ambiguity=0.3, seed=0)
        >>> model = build_model("mlp", seed=0, n_inputs=2, n_classes=4)
        >>> trainer = PartialLabelTrainer(model, PRODEN(), epochs=2)
        >>> class PrintEpoch(Callback):
        ...     def on_epoch_end(self, trainer, record):
        ...         print(record["epoch"])
        >>> _ = trainer.fit(X, sets, callbacks=[PrintEpoch()])
        1
        2
    """

    def on_train_begin(self, trainer: PartialLabelTrainer) -> None:
        """Called before training, with checked data; raise an InputError to refuse to train."""

    def on_resume(self, trainer: PartialLabelTrainer) -> None:
        """Called once if the training resumes after `trainer.epoch` epochs."""

    def on_step_end(self, trainer: PartialLabelTrainer) -> None:
        """Called after every step; must not synchronise with the device."""

    def on_epoch_end(self, trainer: PartialLabelTrainer, record: dict[str, Any]) -> None:
        """Called after every epoch with its record in `trainer.history`, which may be added to."""

    def on_interrupt(self, trainer: PartialLabelTrainer) -> None:
        """Called when a signal stops the training, possibly in the middle of an epoch."""


class OnEpoch(Callback):
    """Calls a function with the record of every epoch."""

    def __init__(self, function: Callable[[dict[str, Any]], None]) -> None:
        self.function = function

    def on_epoch_end(self, trainer: PartialLabelTrainer, record: dict[str, Any]) -> None:
        self.function(record)


class Measurement(Callback):
    """Adds what `measure` returns to the records of some epochs; a base class.

    Args:
        every: The number of epochs between two measurements; the last epoch is always measured.

    Attributes:
        seconds: How long the measurement of the last epoch took; 0 if it was not measured.
    """

    def __init__(self, every: int = 1) -> None:
        self.every = whole_number(every, 1, "every")
        self.seconds = 0.0

    def on_epoch_end(self, trainer: PartialLabelTrainer, record: dict[str, Any]) -> None:
        self.seconds = 0.0
        if trainer.epoch % self.every == 0 or trainer.epoch == trainer.epochs:
            began = time.perf_counter()
            record |= self.measure(trainer)
            self.seconds = time.perf_counter() - began

    def measure(self, trainer: PartialLabelTrainer) -> dict[str, Any]:
        """Return the figures of the current state."""
        raise NotImplementedError


class Checkpoint(Callback):
    """Saves the state of the training, and resumes from it if the file exists.

    The previous checkpoint is kept beside the new one. SIGTERM and interrupts take effect after the
    current step, whose state is saved first. A checkpoint callback runs after all others, so that a
    log never has fewer epochs than the checkpoint.

    Args:
        path: The file to write.
        every: The number of epochs between two checkpoints; the last epoch is always saved.
        min_seconds: Do not save again before this time has passed, except at the end.

    Examples:
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = uniform_candidates(y, n_classes=4, ambiguity=0.3, seed=0)
        >>> model = build_model("mlp", seed=0, n_inputs=2, n_classes=4)
        >>> trainer = PartialLabelTrainer(model, PRODEN(), epochs=2)
        >>> _ = trainer.fit(X, sets, callbacks=[Checkpoint("training.safetensors")])
        >>> Path("training.safetensors").exists()
        True
    """

    def __init__(self, path: Path | str, every: int = 1, min_seconds: float = 0.0) -> None:
        self.path = Path(path)
        self.every = whole_number(every, 1, "every")
        self.min_seconds = in_range(min_seconds, "min_seconds", 0)

    def exists(self, trainer: PartialLabelTrainer) -> bool:
        """Whether there is a checkpoint to resume from."""
        return bool(trainer.world.value_of_first_process(has_checkpoint(self.path)))

    def on_train_begin(self, trainer: PartialLabelTrainer) -> None:
        check_writable(self.path.parent)
        self._saved_at, self._saved = -math.inf, (-1, -1)
        if self.exists(trainer):
            trainer.load(self.path)

    def on_epoch_end(self, trainer: PartialLabelTrainer, record: dict[str, Any]) -> None:
        late = time.monotonic() - self._saved_at >= self.min_seconds
        due = trainer.epoch % self.every == 0 and late
        if trainer.world.value_of_first_process(due or trainer.epoch == trainer.epochs):
            self._save(trainer)

    def on_interrupt(self, trainer: PartialLabelTrainer) -> None:
        if self._saved != (trainer.epoch, trainer.step_of_epoch):
            self._save(trainer)

    def _save(self, trainer: PartialLabelTrainer) -> None:
        trainer.save(self.path)
        self._saved_at, self._saved = time.monotonic(), (trainer.epoch, trainer.step_of_epoch)
        # Here, where the time-out allows for a slow disk, and not in the next step.
        trainer.world.wait_for_all()


class Progress(Callback):
    """Reports the progress of a training run or a job of several, with the time left.

    By default, it prints lines on standard error.

    One object reports the whole job: give it to every training run, and call `plan_stages` first if
    there are several. Without a plan, every training run is a job of its own. Subclasses override
    `show_progress` to report in another way.

    The time left is the work left divided by the measured speed. Epochs that were finished before a
    training run was resumed do not count for the speed.

    Args:
        every_seconds: Print at most one line in this time during the first minute, and in six times
            this time after it. The first line comes after a second; the end of a training run with
            other figures than its loss, and the end of the job, are always printed.
        write: A function that gets each line.

    Examples:
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = uniform_candidates(y, n_classes=4, ambiguity=0.3, seed=0)
        >>> model = build_model("mlp", seed=0, n_inputs=2, n_classes=4)
        >>> trainer = PartialLabelTrainer(model, PRODEN(), epochs=2)
        >>> _ = trainer.fit(X, sets, callbacks=[Evaluate(X, y), Progress()])
    """

    def __init__(
        self, every_seconds: float = 5.0, write: Callable[[str], None] | None = None
    ) -> None:
        self.every_seconds = in_range(every_seconds, "every_seconds", 0)
        self.write = write or (lambda line: print(line, file=sys.stderr, flush=True))
        self.part: Part | None = None
        self._planned, self._views_per_epoch = False, 0
        self._figures: dict[str, str] = {}
        self._begin([])

    def _begin(self, stages: Sequence[Stage]) -> None:
        self.stages, self.part, self._ended = stages, None, False
        self._measured: float | None = None
        self._work = self._seconds = self._elapsed = 0.0
        self._began = self._updated = time.monotonic()
        self._next_line = self._began + min(self.every_seconds, FIRST_LINE_SECONDS)

    def plan_stages(self, stages: Sequence[Stage]) -> None:
        """State all stages of a job before the first of its training runs starts."""
        self._planned = True
        self._begin(stages)

    def start_part(self, part: Part, *others: Part) -> Progress:
        """Report the next training run as this part of the plan; parts before it are finished.

        `others` are trained at the same time, in lockstep.
        """
        self.part, self._figures, self._views_per_epoch = part, {}, 0
        self._together = [part, *others]
        self.stage = next(stage for stage in self.stages if part in stage.parts)
        for earlier in self.parts[: self.parts.index(part)]:
            earlier.done = earlier.epochs
        return self

    def on_train_begin(self, trainer: PartialLabelTrainer) -> None:
        if not self._planned:
            part = Part("", trainer.epochs)
            self._begin([Stage([part])])
            self.start_part(part)
        self._views_per_epoch = trainer.views_per_epoch // len(self._together)

    def on_resume(self, trainer: PartialLabelTrainer) -> None:
        if self.part is not None:
            for part in self._together:  # without a report, which would count for the speed
                part.done = trainer.epochs_done

    def on_step_end(self, trainer: PartialLabelTrainer) -> None:
        # The last step of an epoch is reported with the figures of the epoch.
        if self._is_due() and trainer.step_of_epoch < trainer.steps_per_epoch:
            self.report_epochs(trainer.epochs_done)

    def on_epoch_end(self, trainer: PartialLabelTrainer, record: dict[str, Any]) -> None:
        self._figures |= _figures(record)
        ends = trainer.epoch == trainer.epochs
        if ends or self._is_due():
            self.report_epochs(trainer.epoch, important=ends and len(self._figures) > 1)

    def _is_due(self) -> bool:
        return time.monotonic() - self._updated >= min(self.every_seconds, UPDATE_SECONDS)

    def report_epochs(self, done: float | Mapping[Part, float], *, important: bool = False) -> None:
        """Report finished epochs, with the fraction of the current one.

        Args:
            done: The epochs of the current part, or those of several parts that are trained in
                parallel.
            important: Whether this has to be shown, even if something else was shown a moment ago.
        """
        assert self.part is not None
        if not isinstance(done, Mapping):
            done = dict.fromkeys(self._together, done)
        now = self._updated = time.monotonic()
        work = sum(max(0.0, epochs - part.done) * part.cost for part, epochs in done.items())
        for part, epochs in done.items():
            part.done = epochs
        if self._measured is not None:
            seconds = now - self._measured
            self._elapsed += seconds
            fade = 0.5 ** (seconds / max(RECENT_SECONDS, self._elapsed / 4))
            self._work, self._seconds = self._work * fade + work, self._seconds * fade + seconds
        if self._measured is not None or work > 0:  # the first finished work starts the clock
            self._measured = now
        ends = self.share_done >= 1
        if not self._ended:
            self.show_progress(important or ends)
        self._ended = ends

    # ---- what is shown ---------------------------------------------------------------------------

    @property
    def parts(self) -> list[Part]:
        """The parts of all stages."""
        return [part for stage in self.stages for part in stage.parts]

    @property
    def share_done(self) -> float:
        """The share of the work that is done."""
        total = sum(part.epochs * part.cost for part in self.parts)
        return 1 - sum(part.left for part in self.parts) / total if total else 1.0

    @property
    def speed(self) -> float | None:
        """The work per second; None until it is measured."""
        return self._work / self._seconds or None if self._seconds >= LEAST_SECONDS else None

    @property
    def seconds_left(self) -> float | None:
        """The time left, or None as long as no speed was measured."""
        left = sum(part.left for part in self.parts)
        return 0.0 if left == 0 else left / self.speed if self.speed else None

    @property
    def current(self) -> str:
        """What is being trained, with the epoch."""
        assert self.part is not None
        stage, part = self.stage, self.part
        if stage.workers > 1:
            return f"{stage.name}: {len(stage.parts) - stage.unfinished} of {len(stage.parts)} done"
        # Rounded down, so that an epoch looks finished only if it is.
        epoch = int(part.done) if part.done == int(part.done) else int(10 * part.done) / 10
        return f"{part.name}{': ' if part.name else ''}epoch {epoch}/{part.epochs}"

    @property
    def time_left(self) -> str:
        """The time left, or the time that the job took; empty as long as it is unknown."""
        if self.share_done >= 1:
            return f"finished in {format_duration(time.monotonic() - self._began)}"
        left = self.seconds_left
        return "" if left is None else f"{format_duration(left)} left"

    @property
    def figures(self) -> str:
        """The figures of the last epoch, and the speed."""
        assert self.part is not None
        views = (self.speed or 0) / self.part.cost * self._views_per_epoch
        return " · ".join([*self._figures.values(), *([f"{views:,.0f} views/s"] if views else [])])

    def show_progress(self, important: bool) -> None:
        """Print a line, unless it is unimportant and the last one was printed a moment ago."""
        now = time.monotonic()
        if not important and now < self._next_line:
            return
        rarely = 1 if now - self._began < FREQUENT_SECONDS else 6
        self._next_line = now + self.every_seconds * rarely
        share = f"{int(100 * self.share_done)}%"
        self.write(" · ".join(filter(None, [share, self.time_left, self.current, self.figures])))

    def close(self) -> None:
        """Called when nothing follows; closing twice does no harm."""


def _figures(record: Mapping[str, Any]) -> dict[str, str]:
    """The figures of an epoch that are shown, by name."""
    found = {**record, **record.get("test", {})}
    if found.get("accuracy") is not None:
        found["covering_rate"] = None  # with true labels, it says little
    return {
        name: f"{shown} {found[name]:{'.3f' if name == 'loss' else '.1%'}}"
        for name, shown in SHOWN_AS.items()
        if found.get(name) is not None
    }
