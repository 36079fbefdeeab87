"""Recording: training in a run folder, with a log of epochs, checkpoints and the final result."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import Any

from ltpll.evaluation.during_training import Evaluate, best_epoch
from ltpll.runs.environment import environment
from ltpll.runs.run import Record, Run
from ltpll.runs.run_files import RunFile
from ltpll.training.callbacks import Callback, Checkpoint, Measurement
from ltpll.training.checkpoint import has_checkpoint
from ltpll.training.state import without_long_lists
from ltpll.training.trainer import PartialLabelTrainer

EVALUATION = "evaluation_seconds"  # in the log: the part of an epoch's seconds that is not training
SNAPSHOTS = 8
CURVE_POINTS = 120
CHECKPOINT_SECONDS = (
    20.0  # minimum between two checkpoints: writing one takes about as long as a fast epoch
)


def record_training(
    run: Run,
    trainer: PartialLabelTrainer,
    x: Any,
    candidates: Any,
    evaluate: Evaluate,
    *,
    before_done: Callable[[], None] = lambda: None,
    checkpoint_every: int = 0,
    checkpoint_seconds: float = 0.0,
    callbacks: Sequence[Callback] = (),
    **facts: Any,
) -> None:
    """Train in a run folder and write the run's result, with the prior of the candidate sets if the rebalancer has estimated it.

    Args:
        run: The run.
        trainer: A new trainer.
        x: The training features or images.
        candidates: Their candidate sets.
        evaluate: Measures the training.
        before_done: Writes other files of the run; it is called before the marker that says that the run is finished.
        checkpoint_every: Epochs between two checkpoints; 0 writes none, and an unfinished run starts again.
        checkpoint_seconds: The minimum time between two checkpoints.
        callbacks: Further callbacks, called after the epoch was logged.
        **facts: Further entries of the result.
    """
    begin_run(run, trainer, resumes=checkpoint_every > 0)
    path = run.folder / RunFile.CHECKPOINT
    checkpoint = (
        [Checkpoint(path, checkpoint_every, checkpoint_seconds)] if checkpoint_every else []
    )
    log = RunLog(run, evaluate, durable=checkpoint_every > 0)
    trainer.fit(x, candidates, [evaluate, log, *callbacks, *checkpoint])
    if not trainer.world.first:
        return
    others = [*evaluate.posthoc, *trainer.method.variants]
    rows = ["test", *others]
    before_done()
    prior = getattr(
        trainer.rebalancer, "prior_", None
    )  # of rebalancers that read it off the candidate sets
    if prior is not None:
        facts["prior"] = round_floats(prior.record())
    run.finish(
        {
            **training_conditions(run, trainer),
            "posthoc": others,
            "shots": {"many": evaluate.shots.many, "few": evaluate.shots.few},
            "last": round_floats(trainer.history[-1]),
            "best": {row: round_floats(dict(best_epoch(trainer.history, row))) for row in rows},
            "curves": record_curves(trainer.history, rows),
            "snapshots": record_snapshots(trainer.history, rows, evaluate.details_every),
            "skipped": sum(record.get("skipped", 0) for record in trainer.history),
            **facts,
        }
    )


def begin_run(run: Run, trainer: PartialLabelTrainer, *, resumes: bool) -> None:
    """Create the folder of a run unless, with `resumes`, its training resumes from a checkpoint in it."""
    if trainer.world.first and not (resumes and has_checkpoint(run.folder / RunFile.CHECKPOINT)):
        run.start()
    trainer.world.wait()


@contextmanager
def locked_for_training(run: Run, trainer: PartialLabelTrainer) -> Iterator[bool]:
    """Lock a run while it is trained, and yield whether it still has to be; of several processes, the first one holds the lock."""
    with run.locked() if trainer.world.first else nullcontext():
        yield not trainer.world.agreed(run.done)


class RunLog(Callback):
    """Appends the record of every epoch, with its time and its speed without evaluation, to the log of a run.

    Args:
        run: The run.
        evaluate: The measurement that is called before.
        durable: Whether each line must reach the disk before training continues.
    """

    def __init__(self, run: Run, evaluate: Measurement, *, durable: bool) -> None:
        self.run, self.evaluate, self.durable = run, evaluate, durable

    def on_train_begin(self, trainer: PartialLabelTrainer) -> None:
        self._epoch_began = time.perf_counter()

    def on_resume(self, trainer: PartialLabelTrainer) -> None:
        if trainer.world.first:
            self.run.keep_log(trainer.epoch)

    def on_epoch_end(self, trainer: PartialLabelTrainer, record: Record) -> None:
        now = time.perf_counter()
        seconds = now - self._epoch_began + trainer.state.seconds_before
        self._epoch_began = now
        if trainer.world.first:
            times = {"seconds": round(seconds, 4)} | (
                {EVALUATION: round(self.evaluate.seconds, 4)} if self.evaluate.seconds else {}
            )
            speed = round(trainer.views_per_epoch / (seconds - self.evaluate.seconds))
            self.run.log(
                {**without_long_lists(record), **times, "views_per_second": speed},
                durable=self.durable,
            )


def training_conditions(run: Run, trainer: PartialLabelTrainer) -> Record:
    """The hardware, the software and the speed of a training run."""
    records = run.records()
    training = [record["seconds"] - record.get(EVALUATION, 0.0) for record in records]
    return {
        "environment": environment(str(trainer.device)) | {"threads": trainer.threads.number},
        "seconds": round(sum(record["seconds"] for record in records), 3),
        # The median epoch, since the first one compiles and some include a checkpoint; without evaluation, however often there is one.
        "views_per_second": round(trainer.views_per_epoch / statistics.median(training)),
    }


def record_curves(history: Sequence[Record], rows: Sequence[str]) -> Record:
    """The figures over epochs that plots need, as columns, for round numbers of epochs; all of them would make records large."""
    measured = _thinned([record for record in history if "test" in record], CURVE_POINTS)
    columns: Record = {
        "epoch": [record["epoch"] for record in measured],
        "loss": [record["loss"] for record in measured],
        "accuracy": {
            row: [record[row]["balanced_accuracy"] for record in measured] for row in rows
        },
    }
    for name in ("target_recovery", "mean_target_distance", "prior_distance"):
        if all(name in record for record in measured):
            columns[name] = [record[name] for record in measured]
    compact: Record = round_floats(columns)
    return compact


def _thinned(measured: Sequence[Record], most: int) -> list[Record]:
    """The last record, and those of every second, fifth, tenth, … epoch: as many as possible, but at most about `most`.

    The epochs depend only on how often a training run was measured, so that the curves of several
    seeds can be averaged.
    """
    steps = (factor * 10**power for power in count() for factor in (1, 2, 5))
    step = next(
        step for step in steps if sum(record["epoch"] % step == 0 for record in measured) <= most
    )
    return [record for record in measured if record["epoch"] % step == 0 or record is measured[-1]]


def record_snapshots(history: Sequence[Record], rows: Sequence[str], every: int = 1) -> Record:
    """The mean prediction on the test set at a few evenly spaced epochs, of those divisible by `every` and the last."""
    regular = [
        record for record in history if record["epoch"] % every == 0 or record is history[-1]
    ]
    measured = [record for record in regular if "mean_prediction" in record.get("test", {})]
    n = min(SNAPSHOTS, len(measured))
    chosen = [measured[(k + 1) * len(measured) // n - 1] for k in range(n)]
    compact: Record = round_floats(
        {
            "epoch": [record["epoch"] for record in chosen],
            "mean_prediction": {
                row: [record[row]["mean_prediction"] for record in chosen] for row in rows
            },
        }
    )
    return compact


def round_floats(value: Any) -> Any:
    """Round floats to six decimals, so that records stay small and readable."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: round_floats(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [round_floats(item) for item in value]
    return value
