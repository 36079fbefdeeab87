"""Folds: of every row the opinion of a classifier that was not trained on it; on a CPU several of them are trained side by side."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ltpll.candidates import Candidates
from ltpll.cleaning.set_predictions import Opinions, opinions
from ltpll.errors import InputError, InputWarning
from ltpll.estimator import PartialLabelClassifier
from ltpll.processes import in_processes
from ltpll.runs.recording import CHECKPOINT_SECONDS
from ltpll.runs.run import Record
from ltpll.training.callbacks import Checkpoint, OnEpoch
from ltpll.training.checkpoint import previous_checkpoint, read_checkpoint, write_checkpoint
from ltpll.training.distributed import World
from ltpll.validation import chosen_device

BUSY = 1_000_000  # rows times epochs of all folds from which on it pays to start processes, which takes seconds
ROOM = 4 << 30  # bytes that the inputs may take in all of them together; each has about four copies for a while
Watch = Callable[[str, int], Callable[[Record], None]]
"""Called with the name of a training and its epochs; gives what to call with the record of each."""
Rows = npt.NDArray[np.int64]
Make = Callable[[], PartialLabelClassifier]


def opinions_of_folds(
    folder: Path,
    make: Make,
    x: npt.NDArray[Any],
    sets: Candidates,
    *,
    folds: int,
    seed: int,
    watch: Watch,
    world: World,
    workers: int | None = None,
) -> Opinions | None:
    """For the first process of a world, and None for others; folds that an interrupted call has finished are kept in the folder.

    `workers` of them are trained side by side, each in a process with one thread; None lets the work and the machine decide. On a GPU, and
    in a world of several processes, it is one after the other.
    """
    from sklearn.model_selection import KFold

    splits = list(KFold(min(folds, len(x)), shuffle=True, random_state=seed).split(np.empty(len(x))))
    missing = [k for k in range(len(splits)) if not world.agreed(_is_finished(folder, k))]
    side_by_side = _side_by_side(make(), x, len(splits), workers) if world.alone else 1
    if side_by_side > 1 and missing:
        _train_in_processes(folder, make, x, sets, splits, missing, side_by_side, watch)
    else:
        for k in missing:
            others, rows = splits[k]
            on_epoch = watch(f"fold {k + 1} of {len(splits)}", make().schedule(len(others)).epochs)
            _train(folder, make(), x, sets, k, others, rows, world, on_epoch)
    if not world.first:
        return None
    found = Opinions.nothing(len(x))
    for k, (_, rows) in enumerate(splits):
        found.put(rows, Opinions.from_tensors(read_checkpoint(_kept(folder, k))[0]))
    return found


def _kept(folder: Path, k: int) -> Path:
    return folder / f"fold-{k + 1}.safetensors"


def _is_finished(folder: Path, k: int) -> bool:
    """Whether a fold has left what it found; a damaged file is as good as none."""
    try:
        Opinions.from_tensors(read_checkpoint(_kept(folder, k))[0])
    except (InputError, KeyError):
        return False
    return True


def _side_by_side(classifier: PartialLabelClassifier, x: npt.NDArray[Any], folds: int, workers: int | None) -> int:
    """How many at once; the same however many are left, since a process of one thread sums floats in an order of its own."""
    if chosen_device(classifier.device).type != "cpu":
        return 1
    if workers is not None:
        return workers
    if classifier.schedule(len(x)).epochs * len(x) * folds < BUSY:
        return 1
    return int(min(folds, os.cpu_count() or 1, max(1, ROOM // (4 * x.nbytes))))


def _train(
    folder: Path,
    classifier: PartialLabelClassifier,
    x: npt.NDArray[Any],
    sets: Candidates,
    k: int,
    others: Rows,
    rows: Rows,
    world: World,
    on_epoch: Callable[[Record], None],
    on_resume: Callable[[int], None] | None = None,
) -> None:
    """Train on the others, and keep what comes of it about the rows."""
    checkpoint = folder / f"checkpoint-fold-{k + 1}.safetensors"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # of classes that only other folds have
        trainer, inputs, candidates = classifier.begin(x[others], sets.select(others), world)
        trainer.fit(inputs, candidates, [OnEpoch(on_epoch, on_resume), Checkpoint(checkpoint, min_seconds=CHECKPOINT_SECONDS)])
    if world.first:
        classifier.finish(trainer)
        found = opinions(classifier.predict_proba, x[rows], sets.select(rows))
        write_checkpoint(_kept(folder, k), found.tensors(), {"fold": k + 1})
        for path in (checkpoint, previous_checkpoint(checkpoint)):
            path.unlink(missing_ok=True)


# ---- side by side -----------------------------------------------------------------------------------------------------


def _train_in_processes(
    folder: Path,
    make: Make,
    x: npt.NDArray[Any],
    sets: Candidates,
    splits: list[tuple[Rows, Rows]],
    missing: list[int],
    workers: int,
    watch: Watch,
) -> None:
    counts = {k: folder / f".epochs-of-fold-{k + 1}" for k in missing}  # files of as many bytes as epochs are done
    on_epoch = watch(f"{len(missing)} folds", sum(make().schedule(len(splits[k][0])).epochs for k in missing))
    for path in counts.values():
        path.unlink(missing_ok=True)  # of a process that was killed
    shown = 0

    def look() -> None:
        nonlocal shown
        done = sum(path.stat().st_size for path in counts.values() if path.exists())
        if done > shown:
            shown = done
            on_epoch({"epoch": done})

    # As plain arrays: tensors would travel as open files, of which there may be too many.
    flat = (sets.offsets.cpu().numpy(), sets.labels.cpu().numpy(), sets.n_classes, sets.classes)
    try:
        in_processes(_train_elsewhere, [(folder, make, x, flat, k, *splits[k], counts[k]) for k in missing], workers, look)
        look()
    finally:
        for path in counts.values():
            path.unlink(missing_ok=True)


def _train_elsewhere(
    folder: Path, make: Make, x: npt.NDArray[Any], flat: tuple[Any, ...], k: int, others: Rows, rows: Rows, count: Path
) -> None:
    """What a process of its own does."""
    offsets, labels, n_classes, classes = flat
    sets = Candidates(torch.from_numpy(offsets), torch.from_numpy(labels), n_classes, classes)
    with count.open("wb", buffering=0) as file:
        _train(
            folder,
            make().set_params(threads=1),
            x,
            sets,
            k,
            others,
            rows,
            World(),
            on_epoch=lambda record: _add(file, 1),
            on_resume=lambda epochs: _add(file, epochs),
        )


def _add(file: Any, epochs: int) -> None:
    file.write(b"." * epochs)
