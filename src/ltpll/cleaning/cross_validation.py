"""Cross-validation: out-of-fold predictions for every row, on a CPU with several folds at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.estimator import PartialLabelClassifier
from ltpll.evaluation.set_predictions import SetPredictions, judged
from ltpll.folds import check_folds, fold_splits
from ltpll.pictures.on_disk import rows_on_disk
from ltpll.runs.recording import CHECKPOINT_SECONDS
from ltpll.runs.run_files import RunFile
from ltpll.training.callbacks import Progress
from ltpll.training.distributed import current_world
from ltpll.training.fold_training import (
    FoldRun,
    KeptFolds,
    fold_parts,
    train_folds,
    train_in_processes,
)
from ltpll.training.job import Stage
from ltpll.validation import chosen_device

WORTHWHILE = 1_000_000  # rows × epochs of all folds that justify starting processes
INPUT_BYTES = 4 << 30  # for the inputs in all processes, of which each briefly holds four copies
GOAL = "accuracy"  # rare classes are rare in the table, too, so every row counts the same
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
    classifier, found = make().set_params(goal=GOAL), SetPredictions.empty(sets)
    runs = [
        FoldRun(k, classifier, x, split, judged, scores, rows_on_disk)
        for k, split in enumerate(fold_splits(sets, folds, seed))
    ]
    train_in_processes(runs, sets, kept, stage, progress)
    trained = train_folds(runs, sets, lambda k: [progress.start_part(stage.parts[k])], kept)
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
    check_folds(x, sets, splits)
    parts = fold_parts("fold", classifier, splits)
    alone = current_world().alone
    at_once = _parallel_folds(classifier, x, len(parts), workers) if alone else 1
    return Stage(parts, at_once, "folds")


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
