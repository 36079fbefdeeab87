"""Fold training: train on the other rows of a fold, and predict its own; a folder keeps both."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import getitem
from pathlib import Path
from typing import Any

from sklearn.base import clone

from ltpll.candidates import Candidates
from ltpll.errors import InputError, InputWarning, VersionError
from ltpll.files import remove_leftovers
from ltpll.folds import Rows
from ltpll.training.callbacks import Callback, Checkpoint
from ltpll.training.checkpoint import (
    Tensors,
    previous_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from ltpll.training.distributed import current_world
from ltpll.training.job import Part

CallbacksOf = Callable[[int], Sequence[Callback]]
"""Called with the number of each training run, from 0."""
Predict = Callable[[Any, Any, Candidates], Tensors]
"""Called with a fitted classifier, inputs and their candidate sets, by the first process."""


@dataclass(frozen=True)
class KeptFolds:
    """Where the training runs of a cross-validation are kept, so that they can be resumed.

    Args:
        folder: A folder.
        pattern: The name of the file with the predictions of a finished training, with `*` for its
            number.
        seconds: The minimum time between two checkpoints of a training run.
    """

    folder: Path
    pattern: str
    seconds: float = 0.0

    def predictions(self, number: int) -> Path:
        """The file of a finished training, numbered from 0."""
        return self.folder / self.pattern.replace("*", str(number + 1))

    def checkpoint(self, number: int) -> Path:
        """The checkpoint of a training run that has begun."""
        return self.folder / f"checkpoint-{self.predictions(number).name}"

    def progress(self, number: int) -> Path:
        """Where another process says how far a training run is."""
        return self.folder / f".progress-of-{self.predictions(number).stem}"

    def read(self, number: int) -> Tensors | None:
        """What a finished training predicted, or None.

        A damaged file counts as missing, but one of another version is not replaced.
        """
        try:
            tensors, values = read_checkpoint(self.predictions(number))
        except VersionError:
            raise
        except InputError:
            return None
        return tensors if values.get("fold") == number + 1 else None

    def write(self, number: int, tensors: Tensors) -> None:
        """Store what a finished training predicted, instead of its checkpoints."""
        write_checkpoint(self.predictions(number), tensors, {"fold": number + 1})
        self.tidy(number)

    def tidy(self, number: int) -> None:
        """Delete what a process that was killed has left of a finished training."""
        for path in (self.checkpoint(number), previous_checkpoint(self.checkpoint(number))):
            path.unlink(missing_ok=True)
        remove_leftovers(self.folder, self.predictions(number).name)

    def forget(self) -> None:
        """Delete everything, once something else has stored what it was needed for."""
        for pattern in (str(self.pattern), f"checkpoint-{self.pattern}"):
            for path in self.folder.glob(pattern):
                path.unlink()


def fold_parts(name: str, classifier: Any, folds: Sequence[tuple[Rows, Rows]]) -> list[Part]:
    """The training runs of a cross-validation, as parts of a job."""
    return [
        Part.of_rows(f"{name} {k} of {len(folds)}", len(rows), *classifier.schedule(len(rows)))
        for k, (rows, _) in enumerate(folds, 1)
    ]


def train_fold(
    classifier: Any,
    x: Any,
    sets: Candidates,
    fold: tuple[Rows, Rows],
    predict: Predict,
    number: int,
    *,
    callbacks: Sequence[Callback] = (),
    kept: KeptFolds | None = None,
    scores: Any = None,
    rows_of: Callable[[Any, Rows], Any] = getitem,
) -> Tensors | None:
    """Train on the other rows of a fold, and predict its own.

    Args:
        classifier: A `PartialLabelClassifier`, which is fitted.
        x: The examples.
        sets: Their candidate sets.
        fold: The rows to train on and the rows to predict.
        predict: Makes the predictions.
        number: The number of the training run, from 0.
        callbacks: Callbacks of the training run.
        kept: Where the training is kept.
        scores: The scores of a comparison that the rebalancer "auto" made on all rows.
        rows_of: Selects rows of the examples.

    Returns:
        The predictions, or None in all processes but the first.
    """
    others, rows = fold
    if kept is not None:
        checkpoint = Checkpoint(kept.checkpoint(number), min_seconds=kept.seconds)
        callbacks = [*callbacks, checkpoint]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # about classes that only other folds have
        fitting = classifier.prepare_training(rows_of(x, others), sets.select(others))
        if scores is not None:
            fitting.trainer.rebalancer.scores = scores
        classifier.run_training(fitting, callbacks)
    if not fitting.trainer.world.first:
        return None
    found = predict(classifier, rows_of(x, rows), sets.select(rows))
    if kept is not None:
        kept.write(number, found)
    return found


def train_folds(
    classifier: Any,
    x: Any,
    sets: Candidates,
    folds: Sequence[tuple[Rows, Rows]],
    predict: Predict,
    *,
    callbacks_of: CallbacksOf = lambda number: (),
    kept: KeptFolds | None = None,
    first: int = 0,
    scores: Any = None,
    rows_of: Callable[[Any, Rows], Any] = getitem,
) -> Iterator[tuple[Rows, Tensors]]:
    """Train a copy of a classifier for each fold that is not kept yet, numbered from `first`.

    Yields:
        The rows of each fold and their predictions; nothing in all processes but the first.
    """
    world = current_world()
    how: dict[str, Any] = {"kept": kept, "scores": scores, "rows_of": rows_of}
    for number, fold in enumerate(folds, first):
        found = None if kept is None or not world.first else kept.read(number)
        if not world.value_of_first_process(found is not None):
            one, callbacks = clone(classifier).set_params(on_epoch=None), callbacks_of(number)
            found = train_fold(one, x, sets, fold, predict, number, callbacks=callbacks, **how)
        elif kept is not None and world.first:
            kept.tidy(number)
        if found is not None:
            yield fold[1], found
