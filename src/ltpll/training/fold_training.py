"""Fold training: train on the other rows of each fold, and predict its own; a folder keeps both."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import getitem
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from joblib.parallel import get_active_backend
from sklearn.base import clone

from ltpll.candidates import Candidates
from ltpll.errors import InputError, InputWarning, VersionError
from ltpll.files import remove_leftovers
from ltpll.folds import Rows
from ltpll.processes import in_processes
from ltpll.training.callbacks import Callback, Checkpoint, Progress
from ltpll.training.checkpoint import (
    Tensors,
    previous_checkpoint,
    read_checkpoint,
    under_prefix,
    write_checkpoint,
)
from ltpll.training.distributed import current_world
from ltpll.training.job import Part, Stage
from ltpll.training.lockstep import LockstepTrainer, lockstep_key
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.validation import chosen_device

WORTHWHILE = 1_000_000  # rows of all epochs of all runs that justify starting processes
MOST_BYTES = 4 << 30  # of the inputs in all processes, of which each briefly holds four copies
BYTES_AT_ONCE = 1 << 28  # of the inputs of networks that are trained in lockstep
FROM_THE_START = "copy the answers to another folder, and train from the start"
CallbacksOf = Callable[[int], Sequence[Callback]]
"""Called with the number of each training run, from 0."""
Predict = Callable[[Any, Any, Candidates], Tensors]
"""Called with a fitted classifier, inputs and their candidate sets, by the first process."""


@dataclass(frozen=True)
class KeptFolds:
    """Where the training runs of a cross-validation are kept, so that they can be resumed.

    `pattern` is the name of a file with the predictions of a finished training, with `*` for its
    number; `seconds` is the minimum time between two checkpoints of a training run.
    """

    folder: Path
    pattern: str
    seconds: float = 0.0

    def predictions(self, number: int) -> Path:
        """The file of a finished training, numbered from 0."""
        return self.folder / self.pattern.replace("*", str(number + 1))

    def checkpoint(self, *numbers: int) -> Path:
        """The checkpoint of a training run that has begun, or of several in lockstep."""
        name = "-".join(str(number + 1) for number in numbers)
        return self.folder / f"checkpoint-{self.pattern.replace('*', name)}"

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

    def tidy(self, *numbers: int) -> None:
        """Delete what a process that was killed has left of a finished training."""
        for path in (self.checkpoint(*numbers), previous_checkpoint(self.checkpoint(*numbers))):
            path.unlink(missing_ok=True)
        for number in numbers:
            remove_leftovers(self.folder, self.predictions(number).name)


@dataclass(frozen=True, eq=False)
class FoldRun:
    """A training run on the other rows of a fold, which then predicts its own.

    A copy of `classifier`, a `PartialLabelClassifier`, is trained on `fold[0]` and predicts
    `fold[1]`. `scores` are those of a comparison that the rebalancer "auto" made on all rows.
    `earlier` is the file of a run on the same rows, which holds the classifier to start from.
    """

    number: int
    classifier: Any
    x: Any
    fold: tuple[Rows, Rows]
    predict: Predict
    scores: Any = None
    rows_of: Callable[[Any, Rows], Any] = getitem
    earlier: Path | None = None

    @property
    def numbers(self) -> tuple[int, ...]:
        return (self.number,)

    def train(
        self, sets: Candidates, kept: KeptFolds | None = None, callbacks: Sequence[Callback] = ()
    ) -> Tensors | None:
        """Return the predictions, or None in all processes but the first."""
        if kept is not None:
            checkpoint = Checkpoint(kept.checkpoint(self.number), min_seconds=kept.seconds)
            callbacks = [*callbacks, checkpoint]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)
            classifier, fitting = self.prepare(sets)
            classifier.run_training(fitting, callbacks)
        return self.finish(classifier, sets, kept) if fitting.trainer.world.first else None

    def prepare(self, sets: Candidates) -> tuple[Any, Any]:
        """A classifier, and the training that it has prepared.

        Warnings about classes that only other folds have are the caller's to ignore.
        """
        classifier = clone(self.classifier).set_params(on_epoch=None)
        others = self.fold[0]
        fitting = classifier.prepare_training(self.rows_of(self.x, others), sets.select(others))
        if self.scores is not None:
            fitting.trainer.rebalancer.scores = self.scores
        if self.earlier is not None:
            tensors, _ = read_checkpoint(self.earlier, advice=FROM_THE_START)
            fitting.trainer.earlier = under_prefix("classifier", tensors)
        return classifier, fitting

    def finish(self, classifier: Any, sets: Candidates, kept: KeptFolds | None) -> Tensors:
        """Predict with a trained classifier, and keep the predictions."""
        rows = self.fold[1]
        found = self.predict(classifier, self.rows_of(self.x, rows), sets.select(rows))
        if kept is not None:
            kept.write(self.number, found)
        return found

    def with_one_thread(self) -> FoldRun:
        """The same run with one CPU thread."""
        classifier = clone(self.classifier).set_params(threads=1, on_epoch=None)
        return replace(self, classifier=classifier)


@dataclass(frozen=True, eq=False)
class LockstepRuns:
    """Training runs whose networks are trained at once (`ltpll.training.lockstep`)."""

    runs: Sequence[FoldRun]

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(run.number for run in self.runs)

    def train(self, sets: Candidates, kept: KeptFolds, callbacks: Sequence[Callback] = ()) -> None:
        """Train the networks, and keep their predictions."""
        checkpoint = Checkpoint(kept.checkpoint(*self.numbers), min_seconds=kept.seconds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)
            prepared = [run.prepare(sets) for run in self.runs]
            trainer = LockstepTrainer([fitting for _, fitting in prepared])
            trainer.fit_all([*callbacks, checkpoint])
        for run, (classifier, fitting) in zip(self.runs, prepared, strict=True):
            run.finish(classifier.take_over(fitting.trainer), sets, kept)
        kept.tidy(*self.numbers)

    def with_one_thread(self) -> LockstepRuns:
        """The same runs with one CPU thread."""
        return LockstepRuns([run.with_one_thread() for run in self.runs])


def in_lockstep(runs: Iterable[FoldRun]) -> list[FoldRun | LockstepRuns]:
    """The runs, of which those that can be trained in lockstep are joined."""
    by_key: dict[Any, list[FoldRun]] = {}
    for run in runs:
        key = lockstep_key(run.classifier, len(run.fold[0]))
        by_key.setdefault((id(run.x), key) if key else run.number, []).append(run)
    found: list[FoldRun | LockstepRuns] = []
    for key, same in by_key.items():
        most = BYTES_AT_ONCE // (same[0].x[:1].nbytes * len(same[0].fold[0]))
        if key == same[0].number or most == 0:
            found += same
        else:
            found += [LockstepRuns(same[k : k + most]) for k in range(0, len(same), most)]
    return found


def fold_parts(name: str, classifier: Any, folds: Sequence[tuple[Rows, Rows]]) -> list[Part]:
    """The training runs of a cross-validation, as parts of a job."""
    return [
        Part.of_rows(f"{name} {k} of {len(folds)}", len(rows), *classifier.schedule(len(rows)))
        for k, (rows, _) in enumerate(folds, 1)
    ]


def train_folds(
    runs: Sequence[FoldRun],
    sets: Candidates,
    callbacks_of: CallbacksOf = lambda number: (),
    kept: KeptFolds | None = None,
) -> Iterator[tuple[Rows, Tensors]]:
    """Train the runs that are not kept yet, one after the other.

    Yields:
        The rows of each fold and their predictions; nothing in all processes but the first.
    """
    world = current_world()
    for run in runs:
        found = None if kept is None or not world.first else kept.read(run.number)
        if not world.value_of_first_process(found is not None):
            found = run.train(sets, kept, callbacks_of(run.number))
        elif kept is not None and world.first:
            kept.tidy(run.number)
        if found is not None:
            yield run.fold[1], found


# ---- in several processes ------------------------------------------------------------------------


def parallel_runs(
    workers: int | None, classifiers: Iterable[Any], x: npt.NDArray[Any], rows: float, runs: int
) -> int:
    """How many of the runs are trained at once: one on a GPU, or with several processes.

    On a CPU, None decides by the rows of all epochs of all runs, their inputs, and the machine.
    """
    on_cpu = all(chosen_device(one.device).type == "cpu" for one in classifiers)
    if not on_cpu or not current_world().alone:
        return 1
    if workers is None:  # however many runs are missing: threads change sums
        room = max(1, MOST_BYTES // (4 * x.nbytes))
        return 1 if rows < WORTHWHILE else min(runs, os.cpu_count() or 1, room)
    return max(1, workers)


def train_in_processes(
    runs: Sequence[FoldRun | LockstepRuns],
    sets: Candidates,
    kept: KeptFolds,
    stage: Stage,
    progress: Progress,
) -> None:
    """Train the runs that are not kept yet at once, each in a process with one thread.

    The numbers of the runs are those of the parts of `stage`, which the plan of `progress`
    contains. A backend of joblib that the caller has chosen with several jobs, such as Ray's, runs
    them elsewhere. Otherwise, if the stage has one worker, nothing is trained.
    """
    missing = [run for run in runs if any(kept.read(k) is None for k in run.numbers)]
    for run in set(runs) - set(missing):
        for k in run.numbers:
            stage.parts[k].done = stage.parts[k].epochs
    elsewhere = get_active_backend()[1] not in (None, 1)
    if not missing or (stage.workers == 1 and not elsewhere):
        return
    progress.start_part(stage.parts[0])
    if elsewhere:
        _train_by_joblib(missing, sets, kept, stage, progress)
        return
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path, shape = Path(folder) / "epochs", (len(missing), 2)
        reports: npt.NDArray[np.float64] = np.memmap(path, np.float64, "w+", shape=shape)

        def report() -> None:
            done = {}
            for run, (start, now) in zip(missing, reports.tolist(), strict=True):
                for part in [stage.parts[k] for k in run.numbers]:
                    part.done = max(part.done, start)
                    done[part] = max(part.done, now)
            if reports.any():
                progress.report_epochs(done)

        # Pickled here, because multiprocessing passes tensors as open files, perhaps too many.
        content = pickle.dumps(sets)
        calls = [(run.with_one_thread(), content, kept, path, k) for k, run in enumerate(missing)]
        in_processes(_train_elsewhere, calls, stage.workers, report)
        report()


def _train_by_joblib(
    runs: Sequence[FoldRun | LockstepRuns],
    sets: Candidates,
    kept: KeptFolds,
    stage: Stage,
    progress: Progress,
) -> None:
    """Train the runs by the backend of joblib that the caller has chosen; only what they found comes
    back, so that other machines need no common folder.
    """
    content = pickle.dumps(sets)
    calls = (delayed(_trained_alone)(run.with_one_thread(), content) for run in runs)
    for found in Parallel()(calls):  # Ray's backend cannot return them one by one
        for number, tensors in found.items():
            kept.write(number, tensors)
        progress.report_epochs({stage.parts[k]: stage.parts[k].epochs for k in found})


def _trained_alone(run: FoldRun | LockstepRuns, content: bytes) -> dict[int, Tensors]:
    """What one run has found, or several in lockstep, by their numbers."""
    with TemporaryDirectory(prefix="ltpll-") as folder:
        own = KeptFolds(Path(folder), "member-*.safetensors")
        run.train(pickle.loads(content), own)
        return {k: tensors for k in run.numbers if (tensors := own.read(k)) is not None}


def _train_elsewhere(
    run: FoldRun | LockstepRuns, content: bytes, kept: KeptFolds, path: Path, place: int
) -> None:
    """Train one run, or several in lockstep, in a separate process."""
    reports = np.memmap(path, np.float64, "r+").reshape(-1, 2)
    run.train(pickle.loads(content), kept, [_ReportEpochs(reports[place])])


class _ReportEpochs(Callback):
    """Writes the epochs that were finished when a run was resumed, and those of now, to a file."""

    def __init__(self, report: npt.NDArray[np.float64]) -> None:
        self.report = report

    def on_resume(self, trainer: PartialLabelTrainer) -> None:
        self.report[:] = trainer.epochs_done

    def on_step_end(self, trainer: PartialLabelTrainer) -> None:
        self.report[1] = trainer.epochs_done
