"""Parallel runs: training runs of a cross-validation in several processes, with their progress."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import getitem
from pathlib import Path
from typing import IO, Any

import torch

from ltpll.candidates import Candidates
from ltpll.folds import Rows
from ltpll.processes import in_processes
from ltpll.training.callbacks import Callback, Progress
from ltpll.training.fold_training import KeptFolds, Predict, train_fold
from ltpll.training.job import Stage
from ltpll.training.trainer import PartialLabelTrainer

WRITE_SECONDS = 0.2  # between two reports of a process
REPORT = struct.Struct("=dd")


@dataclass(frozen=True, eq=False)
class FoldRun:
    """A training run on the other rows of a fold, which then predicts its own.

    Args:
        number: The number of the run, from 0.
        classifier: An untrained classifier.
        x: The examples.
        fold: The rows to train on and the rows to predict.
        predict: Makes the predictions.
        scores: The scores of a comparison that the rebalancer "auto" made on all rows.
        rows_of: Selects rows of the examples.
    """

    number: int
    classifier: Any
    x: Any
    fold: tuple[Rows, Rows]
    predict: Predict
    scores: Any = None
    rows_of: Callable[[Any, Rows], Any] = getitem


def train_in_processes(
    runs: Sequence[FoldRun], sets: Candidates, kept: KeptFolds, stage: Stage, progress: Progress
) -> None:
    """Train several runs at once, each in a process with one thread.

    Args:
        runs: The runs that are not finished; their numbers are those of the parts of the stage.
        sets: The candidate sets of all examples.
        kept: Where finished and interrupted runs are kept.
        stage: All runs, with the number of processes; the plan of `progress` contains it.
        progress: Reports the progress.
    """
    reports = {run.number: kept.progress(run.number) for run in runs}
    for path in reports.values():
        path.unlink(missing_ok=True)  # left by a process that was killed
    progress.start_part(stage.parts[0])
    seen: set[int] = set()

    def report() -> None:
        done = {}
        for number, path in reports.items():
            if (found := _read_report(path)) is None:
                continue
            if number not in seen:
                seen.add(number)
                stage.parts[number].done = found[0]
            done[stage.parts[number]] = found[1]
        if done:
            progress.report_epochs(done)

    flat = _as_arrays(sets)
    try:
        calls = [(run, flat, kept, reports[run.number]) for run in runs]
        in_processes(_train_elsewhere, calls, stage.workers, report)
        report()
    finally:
        for path in reports.values():
            path.unlink(missing_ok=True)


def _train_elsewhere(run: FoldRun, flat: tuple[Any, ...], kept: KeptFolds, report: Path) -> None:
    """Train one run in a separate process."""
    with report.open("wb", buffering=0) as file:
        train_fold(
            run.classifier.set_params(threads=1, on_epoch=None),
            run.x,
            _from_arrays(flat),
            run.fold,
            run.predict,
            run.number,
            callbacks=[_ReportEpochs(file)],
            kept=kept,
            scores=run.scores,
            rows_of=run.rows_of,
        )


def _as_arrays(sets: Candidates) -> tuple[Any, ...]:
    """The candidates as plain arrays: tensors are passed as open files, which may be too many."""
    parts = (sets.offsets, sets.labels, sets.groups, sets.weights)
    arrays = (None if part is None else part.cpu().numpy() for part in parts)
    observed = None if sets.observed is None else _as_arrays(sets.observed)
    return (*arrays, sets.n_classes, sets.classes, observed)


def _from_arrays(flat: tuple[Any, ...]) -> Candidates:
    *arrays, n_classes, classes, observed = flat
    tensors: list[Any] = [None if part is None else torch.from_numpy(part) for part in arrays]
    offsets, labels, groups, weights = tensors
    before = None if observed is None else _from_arrays(observed)
    return Candidates(offsets, labels, n_classes, classes, groups, weights, before)


class _ReportEpochs(Callback):
    """Writes two numbers to a file: the finished epochs when it was resumed, and those of now."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self._start, self._written = file, 0.0, -math.inf

    def on_resume(self, trainer: PartialLabelTrainer) -> None:
        self._start = trainer.epochs_done
        self._write_report(self._start)

    def on_step_end(self, trainer: PartialLabelTrainer) -> None:
        now = time.monotonic()
        if now - self._written >= WRITE_SECONDS:
            self._written = now
            self._write_report(trainer.epochs_done)

    def on_epoch_end(self, trainer: PartialLabelTrainer, record: dict[str, Any]) -> None:
        if trainer.epoch == trainer.epochs:
            self._write_report(trainer.epoch)

    def _write_report(self, done: float) -> None:
        self.file.seek(0)
        self.file.write(REPORT.pack(self._start, done))


def _read_report(path: Path) -> tuple[float, float] | None:
    """The numbers of `_ReportEpochs`; None if they are not there yet."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    return REPORT.unpack(content) if len(content) == REPORT.size else None
