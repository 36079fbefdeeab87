"""Cross-validation: out-of-fold predictions for every row, on a CPU with several folds at once."""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy.typing as npt
import torch

from ltpll.candidates import Candidates
from ltpll.errors import InputError, option
from ltpll.estimator import PartialLabelClassifier
from ltpll.evaluation.set_predictions import SetPredictions, judged
from ltpll.folds import Rows, fold_splits
from ltpll.formatting import counted
from ltpll.pictures.on_disk import rows_on_disk
from ltpll.processes import in_processes
from ltpll.runs.recording import CHECKPOINT_SECONDS
from ltpll.runs.run_files import RunFile
from ltpll.training.callbacks import Callback, Progress
from ltpll.training.distributed import current_world
from ltpll.training.fold_training import KeptFolds, fold_parts, train_fold, train_folds
from ltpll.training.job import Stage
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.validation import chosen_device

WORTHWHILE = 1_000_000  # rows × epochs of all folds that justify starting processes
INPUT_BYTES = 4 << 30  # for the inputs in all processes, of which each briefly holds four copies
WRITE_SECONDS = 0.2  # between two reports of a process
GOAL = "accuracy"  # rare classes are rare in the table, too, so every row counts the same
REPORT = struct.Struct("=dd")
Scores = Mapping[str, float] | None
Make = Callable[[], PartialLabelClassifier]


def out_of_fold_predictions(
    folder: Path,
    make: Make,
    x: npt.NDArray[Any],
    sets: Candidates,
    *,
    folds: int,
    seed: int,
    stage: Stage,
    progress: Progress,
    scores: Scores = None,
) -> SetPredictions | None:
    """Predict every row by a classifier that was trained neither on it nor on a row of its group.

    Finished folds are stored in the folder, so that an interrupted call can be resumed. If the
    `stage`, which `fold_stage` returns, has several workers, that many folds are trained in
    parallel, each in a process with one thread. The plan of `progress` contains the stage. `scores`
    are those of the comparison that the rebalancer "auto" made on the whole table.

    Returns:
        The predictions, or None in all processes but the first.
    """
    world, kept = current_world(), KeptFolds(folder, RunFile.FOLDS, CHECKPOINT_SECONDS)
    splits = fold_splits(sets, folds, seed)
    missing = [
        k for k in range(len(splits)) if not world.value_of_first_process(kept.read(k) is not None)
    ]
    for k in set(range(len(splits))) - set(missing):
        stage.parts[k].done = stage.parts[k].epochs
    if stage.workers > 1 and missing:
        _train_in_processes(kept, make, x, sets, scores, splits, missing, stage, progress)
    classifier, found = make().set_params(goal=GOAL), SetPredictions.empty(sets)
    trained = train_folds(
        classifier,
        x,
        sets,
        splits,
        judged,
        callbacks_of=lambda k: [progress.start_part(stage.parts[k])],
        kept=kept,
        scores=scores,
        rows_of=rows_on_disk,
    )
    for rows, predictions in trained:
        found.store_rows(rows, SetPredictions.from_tensors(predictions))
    return found if world.first else None


def fold_stage(
    classifier: PartialLabelClassifier,
    x: npt.NDArray[Any],
    sets: Candidates,
    folds: int,
    seed: int,
    workers: int | None = None,
) -> Stage:
    """The training runs of the folds, as a stage of a job.

    On a CPU, `workers` folds are trained in parallel; None decides by the amount of work and the
    machine. On a GPU, and with several processes, folds are trained one after the other. Fewer than
    two folds are none.

    Raises:
        InputError: A fold leaves too little to train on.
    """
    if folds < 2:
        return Stage([])
    splits = fold_splits(sets, folds, seed)
    _check_learnable(x, sets, [others for others, _ in splits])
    parts = fold_parts("fold", classifier, splits)
    alone = current_world().alone
    at_once = _parallel_folds(classifier, x, len(parts), workers) if alone else 1
    return Stage(parts, at_once, "folds")


def _check_learnable(x: npt.NDArray[Any], sets: Candidates, folds: Sequence[Rows]) -> None:
    """Refuse folds that cannot be trained on, before the training on all rows."""
    groups = "" if sets.groups is None else f" in {counted(len(sets.groups.unique()), 'group')}"
    for others in folds:
        first = int(others[0])
        if len(others) < 2:
            needed = "at least two rows"
        elif all(sets.row(row) == sets.row(first) for row in others):
            needed = "rows with different candidates"
        elif bool((x[others[1]] == x[first]).all()) and bool((x[others] == x[first]).all()):
            needed = "rows with different features"
        else:
            continue
        raise InputError(
            f"{counted(len(sets), 'row')}{groups} cannot be divided into {len(folds)} folds, since "
            f"each fold must leave {needed} to train on: add rows, or use {option('folds', 0)}."
        )


def _parallel_folds(
    classifier: PartialLabelClassifier, x: npt.NDArray[Any], folds: int, workers: int | None
) -> int:
    """How many folds to train in parallel, however many are missing: threads change sums."""
    if chosen_device(classifier.device).type != "cpu":
        return 1
    if workers is not None:
        return workers
    if classifier.schedule(len(x)).epochs * len(x) * folds < WORTHWHILE:
        return 1
    return int(min(folds, os.cpu_count() or 1, max(1, INPUT_BYTES // (4 * x.nbytes))))


# ---- in parallel -------------------------------------------------------------------------------


def _train_in_processes(
    kept: KeptFolds,
    make: Make,
    x: npt.NDArray[Any],
    sets: Candidates,
    scores: Scores,
    splits: list[tuple[Rows, Rows]],
    missing: list[int],
    stage: Stage,
    progress: Progress,
) -> None:
    reports = {k: kept.folder / RunFile.FOLD_PROGRESS.replace("*", str(k + 1)) for k in missing}
    for path in reports.values():
        path.unlink(missing_ok=True)  # left by a process that was killed
    progress.start_part(stage.parts[0])
    seen: set[int] = set()

    def report() -> None:
        done = {}
        for k, path in reports.items():
            if (found := _read_report(path)) is None:
                continue
            if k not in seen:
                seen.add(k)
                stage.parts[k].done = found[0]
            done[stage.parts[k]] = found[1]
        if done:
            progress.report_epochs(done)

    flat = _as_arrays(sets)
    try:
        calls = [(kept, make, x, flat, scores, k, splits[k], reports[k]) for k in missing]
        in_processes(_train_elsewhere, calls, stage.workers, report)
        report()
    finally:
        for path in reports.values():
            path.unlink(missing_ok=True)


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


def _train_elsewhere(
    kept: KeptFolds,
    make: Make,
    x: npt.NDArray[Any],
    flat: tuple[Any, ...],
    scores: Scores,
    k: int,
    fold: tuple[Rows, Rows],
    report: Path,
) -> None:
    """Train one fold in a separate process."""
    with report.open("wb", buffering=0) as file:
        train_fold(
            make().set_params(goal=GOAL, threads=1),
            x,
            _from_arrays(flat),
            fold,
            judged,
            k,
            callbacks=[_ReportEpochs(file)],
            kept=kept,
            scores=scores,
            rows_of=rows_on_disk,
        )


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
