"""Recording: training in a locked run folder, with a log of epochs and its conditions."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from ltpll.runs.environment import environment
from ltpll.runs.run import Record, Run
from ltpll.runs.run_files import RunFile
from ltpll.training.callbacks import Callback, Measurement
from ltpll.training.checkpoint import has_checkpoint
from ltpll.training.distributed import current_world
from ltpll.training.state import without_long_lists
from ltpll.training.trainer import PartialLabelTrainer

EVALUATION = "evaluation_seconds"  # in the log: the part of an epoch's seconds that is not training
CHECKPOINT_SECONDS = 20.0  # between two checkpoints: writing one takes as long as a fast epoch


def begin_run(run: Run, *, resumes: bool) -> None:
    """Create the folder of a run unless, with `resumes`, it has a checkpoint to resume from."""
    world = current_world()
    if world.first and not (resumes and has_checkpoint(run.folder / RunFile.CHECKPOINT)):
        run.start()
    world.wait_for_all()


@contextmanager
def locked_for_training(run: Run) -> Iterator[bool]:
    """Lock a run in the first of several processes, and yield whether it has to be trained."""
    world = current_world()
    with run.locked() if world.first else nullcontext():
        yield not world.value_of_first_process(run.done)


class RunLog(Callback):
    """Logs the record of every epoch, with its time and its speed without that of `evaluate`.

    If it is durable, each line must reach the disk before training continues.
    """

    def __init__(self, run: Run, evaluate: Measurement | None = None, *, durable: bool) -> None:
        self.run, self.evaluate, self.durable = run, evaluate, durable

    def on_train_begin(self, trainer: PartialLabelTrainer) -> None:
        self._epoch_began = time.perf_counter()

    def on_resume(self, trainer: PartialLabelTrainer) -> None:
        if trainer.world.first:
            self.run.cut_log(trainer.epoch)

    def on_epoch_end(self, trainer: PartialLabelTrainer, record: Record) -> None:
        now = time.perf_counter()
        seconds = now - self._epoch_began + trainer.state.seconds_before
        self._epoch_began = now
        if trainer.world.first:
            logged = {**without_long_lists(record), "seconds": round(seconds, 4)}
            measuring = 0.0 if self.evaluate is None else self.evaluate.seconds
            if measuring:
                logged[EVALUATION] = round(measuring, 4)
            speed = round(trainer.views_per_epoch / (seconds - measuring))
            self.run.log({**logged, "views_per_second": speed}, durable=self.durable)


def training_conditions(run: Run, trainer: PartialLabelTrainer) -> Record:
    """The hardware, the software and the speed of a training run."""
    records = run.records()
    training = [record["seconds"] - record.get(EVALUATION, 0.0) for record in records]
    return {
        "environment": environment(str(trainer.device)) | {"threads": trainer.threads.number},
        "seconds": round(sum(record["seconds"] for record in records), 3),
        # The median epoch, since the first one compiles and some include a checkpoint.
        "views_per_second": round(trainer.views_per_epoch / statistics.median(training)),
    }


def round_floats(value: Any) -> Any:
    """Round floats to six decimals, so that records stay small and readable."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: round_floats(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [round_floats(item) for item in value]
    return value
