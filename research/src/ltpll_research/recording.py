"""Recording: the runs of benchmarks and studies, and what their records hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from ltpll.errors import required_by
from ltpll.evaluation.during_training import Evaluate, best_epoch
from ltpll.evaluation.stopping import INFORMATION, MeasureInformation
from ltpll.runs.environment import PACKAGE
from ltpll.runs.recording import RunLog, begin_run, round_floats, training_conditions
from ltpll.runs.run import Record, Run
from ltpll.runs.run_files import RunFile
from ltpll.training.callbacks import Callback, Checkpoint
from ltpll.training.trainer import PartialLabelTrainer

SNAPSHOTS = 8
CURVE_POINTS = 120


def seed_streams(seed: int) -> dict[str, int]:
    """Independent seeds for the subset, the candidates and the training of one experiment."""
    streams = np.random.SeedSequence(seed).generate_state(3).tolist()
    return dict(zip(("subset", "candidates", "training"), streams, strict=True))


@cache
def code_fingerprint() -> str:
    """A hash of the source of ltpll and of this package, which tells versions apart."""
    digest = hashlib.sha256()
    for folder in (PACKAGE, Path(__file__).resolve().parent):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def record_training(
    run: Run,
    trainer: PartialLabelTrainer,
    x: Any,
    candidates: Any,
    evaluate: Evaluate,
    *,
    information: MeasureInformation | None = None,
    before_done: Callable[[], None] = lambda: None,
    checkpoint_every: int = 0,
    checkpoint_seconds: float = 0.0,
    callbacks: Sequence[Callback] = (),
    **facts: Any,
) -> None:
    """Train in a run folder and write the run's result, with the prior that was estimated, if any.

    Args:
        run: The run.
        trainer: A new trainer.
        x: The training features or images.
        candidates: Their candidate sets.
        evaluate: Measures the training.
        information: Measures what the network says about held-out sets; the record then has the
            epoch where it is highest, which is chosen without true labels.
        before_done: Writes other files of the run, before the marker says that it is finished.
        checkpoint_every: Epochs between two checkpoints; 0 writes none, and an unfinished run
            starts again.
        checkpoint_seconds: The minimum time between two checkpoints.
        callbacks: Further callbacks, called after the epoch was logged.
        **facts: Further entries of the result.
    """
    begin_run(run, resumes=checkpoint_every > 0)
    path = run.folder / RunFile.CHECKPOINT
    log = RunLog(run, evaluate, durable=checkpoint_every > 0)
    last = [Checkpoint(path, checkpoint_every, checkpoint_seconds)] if checkpoint_every else []
    measures = [evaluate] if information is None else [evaluate, information]
    trainer.fit(x, candidates, [*measures, log, *callbacks, *last])
    if not trainer.world.first:
        return
    others = [*evaluate.posthoc, *trainer.method.variants]
    rows = ["test", *others]
    before_done()
    prior = getattr(trainer.rebalancer, "prior_", None)  # if it was read off the candidate sets
    if prior is not None:
        facts["prior"] = round_floats(prior.as_record())
    if information is not None:
        measured = [record for record in trainer.history if "test" in record]
        facts["chosen"] = round_floats(dict(max(measured, key=itemgetter(INFORMATION))))
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


def record_curves(history: Sequence[Record], rows: Sequence[str]) -> Record:
    """The figures that plots need, as columns, for round numbers of epochs: records stay small."""
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
    return dict(round_floats(columns))


def _thinned(measured: Sequence[Record], most: int) -> list[Record]:
    """The last record, and those of every second, fifth, tenth, … epoch, at most about `most`.

    The epochs depend only on how often a training run was measured, so that the curves of several
    seeds can be averaged.
    """
    steps = (factor * 10**power for power in count() for factor in (1, 2, 5))
    step = next(
        step for step in steps if sum(record["epoch"] % step == 0 for record in measured) <= most
    )
    return [record for record in measured if record["epoch"] % step == 0 or record is measured[-1]]


def record_snapshots(history: Sequence[Record], rows: Sequence[str], every: int = 1) -> Record:
    """The mean prediction on the test set at a few evenly spaced epochs and the last.

    Only epochs that are divisible by `every` count.
    """
    measured = [
        record
        for record in history
        if "mean_prediction" in record.get("test", {})
        and (record["epoch"] % every == 0 or record is history[-1])
    ]
    n = min(SNAPSHOTS, len(measured))
    chosen = [measured[(k + 1) * len(measured) // n - 1] for k in range(n)]
    rounded: Record = round_floats(
        {
            "epoch": [record["epoch"] for record in chosen],
            "mean_prediction": {
                row: [record[row]["mean_prediction"] for record in chosen] for row in rows
            },
        }
    )
    return rounded


class TensorBoardEvents(Callback):
    """Writes the record of every epoch to TensorBoard, in the folder of the run."""

    def __init__(self, run: Run) -> None:
        with required_by(
            "The option --tensorboard", install="tensorboard", otherwise=", or leave it out"
        ):
            from torch.utils.tensorboard import SummaryWriter
        self.run, self._new_writer = run, SummaryWriter
        self._writer: Any = None

    def on_epoch_end(self, trainer: Any, record: Record) -> None:
        epoch = record["epoch"]
        if self._writer is None:  # not before, because starting a run clears its folder
            # purge_step hides what a killed process wrote about epochs that are trained again.
            folder = str(self.run.folder / RunFile.TENSORBOARD)
            self._writer = self._new_writer(folder, purge_step=epoch)
        figures = {name: record.get(name) for name in ("loss", "lr", "target_recovery")}
        figures |= {f"test/{name}": value for name, value in record.get("test", {}).items()}
        for name, value in figures.items():
            if isinstance(value, float):
                self._writer.add_scalar(name, value, epoch)
        self._writer.flush()
