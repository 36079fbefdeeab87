"""Cross-validation: out-of-fold predictions for every row; on a CPU, several folds are trained in parallel."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch

from ltpll.candidates import Candidates
from ltpll.cleaning.set_predictions import SetPredictions, predict_sets
from ltpll.errors import InputError, InputWarning
from ltpll.estimator import PartialLabelClassifier
from ltpll.files import remove_leftovers
from ltpll.folds import Rows, fold_splits, number_of_folds
from ltpll.processes import in_processes
from ltpll.rebalancers.auto import Auto
from ltpll.runs.recording import CHECKPOINT_SECONDS
from ltpll.training.callbacks import Callback, Checkpoint, OnEpoch, Progress
from ltpll.training.checkpoint import previous_checkpoint, read_checkpoint, write_checkpoint
from ltpll.training.distributed import current_world
from ltpll.validation import chosen_device

WORTHWHILE = 1_000_000  # rows × epochs of all folds that justify starting processes, which takes seconds
INPUT_BYTES = 4 << 30  # for the inputs in all processes together; each process briefly holds about four copies
ProgressOf = Callable[[str, int, float], Progress]
"""Called with the name of each training, its number of epochs and the epochs that follow it; returns what reports its progress."""
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
    progress_of: ProgressOf,
    workers: int | None = None,
    scores: Scores = None,
) -> SetPredictions | None:
    """Predict every row by a classifier that was trained neither on it nor on a row of its group.

    Finished folds are stored in the folder, so that an interrupted call can be resumed. On a CPU, `workers` folds are trained in parallel,
    each in a process with one thread; None decides by the amount of work and the machine. On a GPU, and with several processes,
    folds are trained one after the other. `scores` are those of the comparison that the rebalancer "auto" made on the whole table.

    Returns:
        The predictions, or None in all processes but the first.
    """
    world = current_world()
    splits = fold_splits(sets, folds, seed)
    missing = [k for k in range(len(splits)) if not world.agreed(_is_finished(folder, k))]
    parallel = _parallel_folds(make(), x, len(splits), workers) if world.alone else 1
    if parallel > 1 and missing:
        _train_in_processes(folder, make, x, sets, scores, splits, missing, parallel, progress_of)
    else:
        for k in missing:
            others, rows = splits[k]
            epochs = make().schedule(len(others)).epochs
            later = sum(after > k for after in missing) * epochs
            _train(folder, make(), x, sets, scores, k, others, rows, progress_of(f"fold {k + 1} of {len(splits)}", epochs, later))
    if not world.first:
        return None
    found = SetPredictions.empty(len(x))
    for k, (_, rows) in enumerate(splits):
        found.put(rows, SetPredictions.from_tensors(read_checkpoint(_fold_file(folder, k))[0]))
        _delete_checkpoints(folder, k)  # left by a process that was killed after it had stored its predictions
        remove_leftovers(folder, _fold_file(folder, k).name)  # of a process that was killed while it stored them
    return found


def epochs_of_folds(classifier: PartialLabelClassifier, x: npt.NDArray[Any], sets: Candidates, folds: int, workers: int | None) -> float:
    """The time that all folds take, in epochs of the whole table."""
    folds = number_of_folds(sets, folds)
    parallel = _parallel_folds(classifier, x, folds, workers) if current_world().alone else 1
    return classifier.schedule(len(x) - len(x) // folds).epochs * (folds - 1) / parallel


def _fold_file(folder: Path, k: int) -> Path:
    return folder / f"fold-{k + 1}.safetensors"


def _is_finished(folder: Path, k: int) -> bool:
    """Whether the predictions of a fold are stored; a damaged file counts as missing."""
    try:
        SetPredictions.from_tensors(read_checkpoint(_fold_file(folder, k))[0])
    except (InputError, KeyError):
        return False
    return True


def _parallel_folds(classifier: PartialLabelClassifier, x: npt.NDArray[Any], folds: int, workers: int | None) -> int:
    """How many folds to train in parallel; it does not depend on how many are missing, since one thread sums in another order than many."""
    if chosen_device(classifier.device).type != "cpu":
        return 1
    if workers is not None:
        return workers
    if classifier.schedule(len(x)).epochs * len(x) * folds < WORTHWHILE:
        return 1
    return int(min(folds, os.cpu_count() or 1, max(1, INPUT_BYTES // (4 * x.nbytes))))


def _train(
    folder: Path,
    classifier: PartialLabelClassifier,
    x: npt.NDArray[Any],
    sets: Candidates,
    scores: Scores,
    k: int,
    others: Rows,
    rows: Rows,
    progress: Callback,
) -> None:
    """Train on the other rows, and store the predictions for these rows."""
    # Rows of the table are labelled, in which rare classes are rare, so every row counts the same whatever the goal is.
    classifier.set_params(goal="accuracy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # about classes that only other folds have
        trainer, inputs, candidates = classifier.begin(x[others], sets.select(others))
        if isinstance(trainer.rebalancer, Auto):
            trainer.rebalancer.scores = scores
        trainer.fit(inputs, candidates, [progress, Checkpoint(_checkpoint(folder, k), min_seconds=CHECKPOINT_SECONDS)])
    if trainer.world.first:
        classifier.finish(trainer)
        found = predict_sets(classifier.predict_proba, x[rows], sets.select(rows))
        write_checkpoint(_fold_file(folder, k), found.tensors(), {"fold": k + 1})
        _delete_checkpoints(folder, k)


def _checkpoint(folder: Path, k: int) -> Path:
    return folder / f"checkpoint-fold-{k + 1}.safetensors"


def _delete_checkpoints(folder: Path, k: int) -> None:
    for path in (_checkpoint(folder, k), previous_checkpoint(_checkpoint(folder, k))):
        path.unlink(missing_ok=True)


# ---- in parallel ------------------------------------------------------------------------------------------------------


def _train_in_processes(
    folder: Path,
    make: Make,
    x: npt.NDArray[Any],
    sets: Candidates,
    scores: Scores,
    splits: list[tuple[Rows, Rows]],
    missing: list[int],
    workers: int,
    progress_of: ProgressOf,
) -> None:
    counts = {k: folder / f".epochs-of-fold-{k + 1}" for k in missing}  # files with one byte per finished epoch
    progress = progress_of(f"{len(missing)} folds", sum(make().schedule(len(splits[k][0])).epochs for k in missing), 0)
    for path in counts.values():
        path.unlink(missing_ok=True)  # left by a process that was killed
    shown = 0

    def report() -> None:
        nonlocal shown
        done = sum(path.stat().st_size for path in counts.values() if path.exists())
        if done > shown:
            shown = done
            progress.update(done)

    # As plain arrays: tensors are passed as open files, and there may be too many.
    groups, weights = (None if part is None else part.cpu().numpy() for part in (sets.groups, sets.weights))
    flat = (sets.offsets.cpu().numpy(), sets.labels.cpu().numpy(), sets.n_classes, sets.classes, groups, weights)
    try:
        in_processes(_train_elsewhere, [(folder, make, x, flat, scores, k, *splits[k], counts[k]) for k in missing], workers, report)
        report()
    finally:
        for path in counts.values():
            path.unlink(missing_ok=True)


def _train_elsewhere(
    folder: Path,
    make: Make,
    x: npt.NDArray[Any],
    flat: tuple[Any, ...],
    scores: Scores,
    k: int,
    others: Rows,
    rows: Rows,
    count: Path,
) -> None:
    """Train one fold in a separate process."""
    offsets, labels, n_classes, classes, *known = flat
    groups, weights = (None if part is None else torch.from_numpy(part) for part in known)
    sets = Candidates(torch.from_numpy(offsets), torch.from_numpy(labels), n_classes, classes, groups, weights)
    with count.open("wb", buffering=0) as file:
        _train(
            folder,
            make().set_params(threads=1),
            x,
            sets,
            scores,
            k,
            others,
            rows,
            OnEpoch(lambda record: _count(file, 1), lambda epochs: _count(file, epochs)),
        )


def _count(file: Any, epochs: int) -> None:
    file.write(b"." * epochs)
