"""Recording: a training carried out inside its run's folder, epoch by epoch, so that it can be interrupted and judged later."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from ltpll.evaluation.metrics import Evaluate, best_epoch
from ltpll.runs.environment import environment
from ltpll.runs.run import Record, Run
from ltpll.training.checkpoint import has_checkpoint
from ltpll.training.state import without_long_lists
from ltpll.training.trainer import Measure, PartialLabelTrainer

SNAPSHOTS = 8
CHECKPOINT_SECONDS = 20.0  # at least between two checkpoints: writing one takes about as long as a fast epoch


def record_training(
    run: Run,
    trainer: PartialLabelTrainer,
    x: Any,
    candidates: Any,
    truth: Evaluate,
    *,
    before_done: Callable[[], None] = lambda: None,
    measure_every: int = 1,
    checkpoint_every: int = 0,
    checkpoint_seconds: float = 0.0,
    on_epoch: Callable[[Record], None] | None = None,
    **facts: Any,
) -> None:
    """Train and leave the run's folder finished; `facts` go into its result as they are.

    `before_done` writes whatever else belongs to the run: the marker that makes it count comes last.
    """
    train_logged(
        run,
        trainer,
        x,
        candidates,
        truth,
        measure_every=measure_every,
        checkpoint_every=checkpoint_every,
        checkpoint_seconds=checkpoint_seconds,
        on_epoch=on_epoch,
    )
    if not trainer.world.first:
        return
    others = [*truth.posthoc, *trainer.method.variants]
    rows = ["test", *others]
    before_done()
    run.finish(
        {
            **circumstances(run, trainer),
            "posthoc": others,
            "shots": {"many": truth.shots.many, "few": truth.shots.few},
            "last": rounded(trainer.history[-1]),
            "best": {row: rounded(dict(best_epoch(trainer.history, row))) for row in rows},
            "curves": curves(trainer.history, rows),
            "snapshots": snapshots(trainer.history, rows),
            "skipped": sum(record.get("skipped", 0) for record in trainer.history),
            **facts,
        }
    )


def train_logged(
    run: Run,
    trainer: PartialLabelTrainer,
    x: Any,
    candidates: Any,
    measure: Measure | None,
    *,
    measure_every: int = 1,
    checkpoint_every: int = 0,
    checkpoint_seconds: float = 0.0,
    on_epoch: Callable[[Record], None] | None = None,
) -> None:
    """Train, with every epoch's record in the run's stream.

    With `checkpoint_every`, an unfinished run goes on from its last checkpoint; otherwise it starts anew.
    """
    checkpoint = run.folder / "checkpoint.safetensors" if checkpoint_every else None
    first = trainer.world.first  # of several processes, the one that writes
    if first and (checkpoint is None or not has_checkpoint(checkpoint)):
        run.start()
    trainer.world.wait()
    before = time.perf_counter()

    def log(record: Record) -> None:
        nonlocal before
        now = time.perf_counter()
        seconds = now - before + trainer.seconds_elsewhere
        timed = {**without_long_lists(record), "seconds": round(seconds, 4), "views_per_second": round(trainer.views_per_epoch / seconds)}
        before = now
        if first:
            run.log(timed, durable=checkpoint is not None)
        if on_epoch:
            on_epoch(timed)

    trainer.fit(
        x,
        candidates,
        measure=measure,
        measure_every=measure_every,
        on_epoch=log,
        on_resume=run.keep_log if first else None,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every or 1,
        checkpoint_seconds=checkpoint_seconds,
    )


def circumstances(run: Run, trainer: PartialLabelTrainer) -> Record:
    """Where, with what and how fast a run was trained."""
    seconds = [record["seconds"] for record in run.records()]
    return {
        "environment": environment(str(trainer.device)) | {"threads": trainer.threads.number},
        "seconds": round(sum(seconds), 3),
        # The median epoch: the first one compiles, and some are measured or saved.
        "views_per_second": round(trainer.views_per_epoch / statistics.median(seconds)),
    }


def curves(history: Sequence[Record], rows: Sequence[str]) -> Record:
    """The figures over epochs that a plot needs, as columns."""
    measured = [record for record in history if "test" in record]
    columns: Record = {
        "epoch": [record["epoch"] for record in measured],
        "loss": [record["loss"] for record in measured],
        "accuracy": {row: [record[row]["balanced_accuracy"] for record in measured] for row in rows},
    }
    for name in ("target_recovery", "mean_target_distance", "prior_distance"):
        if all(name in record for record in measured):
            columns[name] = [record[name] for record in measured]
    compact: Record = rounded(columns)
    return compact


def snapshots(history: Sequence[Record], rows: Sequence[str]) -> Record:
    """The mean prediction of the test set at a few epochs, evenly spread up to the last: all of them would make records large."""
    measured = [record for record in history if "mean_prediction" in record.get("test", {})]
    n = min(SNAPSHOTS, len(measured))
    chosen = [measured[(k + 1) * len(measured) // n - 1] for k in range(n)]
    compact: Record = rounded(
        {
            "epoch": [record["epoch"] for record in chosen],
            "mean_prediction": {row: [record[row]["mean_prediction"] for record in chosen] for row in rows},
        }
    )
    return compact


def rounded(value: Any) -> Any:
    """Floats to six decimals, so that committed records stay small and readable."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    return value
