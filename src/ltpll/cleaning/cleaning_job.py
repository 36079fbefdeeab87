"""Cleaning job: the training runs behind cleaned labels, and the judgement of the sets."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from ltpll.candidates import Candidates
from ltpll.cleaning.cross_validation import GOAL, fold_stage, out_of_fold_predictions
from ltpll.cleaning.dataset import Examples
from ltpll.cleaning.held_out import HeldOutEvaluation
from ltpll.cleaning.labelling import judgement_record, label_rows
from ltpll.cleaning.results import CleanedLabels
from ltpll.comparison import WAYS, can_compare, comparison_parts
from ltpll.errors import InputError, InputWarning
from ltpll.estimator import PartialLabelClassifier, channels_first
from ltpll.evaluation.set_predictions import SetPredictions, predict_sets
from ltpll.files import parse_json, write_atomically
from ltpll.formatting import are, counted, format_names
from ltpll.interfaces import Goal
from ltpll.missing_share import AUTO, missing_parts, overall_share
from ltpll.pictures.reading import rows_on_disk
from ltpll.priors import PriorEstimate
from ltpll.runs.recording import (
    CHECKPOINT_SECONDS,
    RunLog,
    round_floats,
    training_conditions,
)
from ltpll.runs.run import Record, Run
from ltpll.runs.run_files import RunFile
from ltpll.targets import initial_targets
from ltpll.training.callbacks import Callback, Checkpoint, Progress
from ltpll.training.compatibility import check_data
from ltpll.training.distributed import current_world
from ltpll.training.fold_training import KeptFolds
from ltpll.training.job import Part, Stage
from ltpll.training.trainer import PartialLabelTrainer

MEASURED = 50  # evaluations during training, at most


class Cleaned(NamedTuple):
    """What a cleaning job has found."""

    labels: CleanedLabels
    predictions: SetPredictions
    facts: Record  # entries of the record of a `CleanedTable`


class TrainedRows(NamedTuple):
    """The rows of some examples that are trained on, and the others."""

    rows: npt.NDArray[np.int64]
    held_out: npt.NDArray[np.int64]
    x: npt.NDArray[Any]
    sets: Candidates
    rest: Candidates | None

    @classmethod
    def of(cls, examples: Examples) -> TrainedRows:
        """The rows to train on, by the column of splits if there is one.

        Raises:
            InputError: They are fewer than two.
        """
        chosen, table = examples.training(), examples.table
        rows, held_out = np.flatnonzero(chosen), np.flatnonzero(~chosen)
        n = len(rows)
        if n < 2:
            few = f"Only {n} of {counted(len(examples), 'row')} {are(n)} for training"
            raise InputError(f"{few}: training needs at least two.")
        _warn_of_divided_groups(table.groups, rows, held_out)
        sets = examples.candidates
        if not len(held_out):
            return cls(rows, held_out, examples.x, sets, None)
        x = rows_on_disk(examples.x, rows)
        return cls(rows, held_out, x, sets.select(rows), sets.select(held_out))

    def evaluation(self, examples: Examples, goal: Goal, every: int = 1) -> HeldOutEvaluation:
        """What measures a classifier by the held-out rows and the true labels that are known."""
        x, labels = rows_on_disk(examples.x, self.held_out), examples.table.labels
        return HeldOutEvaluation(
            channels_first(x) if x.ndim == 4 else x,
            self.rest,
            None if labels is None else labels[self.held_out],
            None if labels is None else labels[self.rows],
            goal=goal,
            every=every,
        )


class CleaningJob:
    """All that is computed to clean labels with a single classifier.

    It makes choices by cross-validation, trains on all rows, predicts every row out of fold, and
    judges labels and sets. All is checked when the job is made, before a folder exists.

    Args:
        classifier: An untrained classifier, which `run` fits and calibrates.
        examples: The examples.
        folds: The number of folds for out-of-fold predictions; with 0 or 1, rows are judged by
            the classifier that was trained on them.
        seed: Which rows are in which fold.
        workers: How many folds are trained in parallel on a CPU; None decides by the amount of
            work and the machine.
        progress: Reports the progress of all training runs.

    Raises:
        InputError: The examples cannot be trained on.
    """

    def __init__(
        self,
        classifier: PartialLabelClassifier,
        examples: Examples,
        *,
        folds: int,
        seed: int,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.trained = TrainedRows.of(examples)
        n, self.x, self.sets = len(self.trained.rows), self.trained.x, self.trained.sets
        self.classifier, self.examples, self.folds, self.seed = classifier, examples, folds, seed
        self.fitting = classifier.prepare_training(self.x, self.sets)
        self.trainer, candidates = self.fitting.trainer, self.fitting.candidates
        self.world, trainer = self.trainer.world, self.trainer
        goal: Any = classifier.goal
        every = max(1, trainer.epochs // MEASURED)
        self.evaluation = self.trained.evaluation(examples, goal, every)
        check_data(self.fitting.x, candidates, trainer.head)
        self._progress = progress or Progress(write=lambda line: None)
        asks = classifier.truth_missing == AUTO
        compares = can_compare(trainer.rebalancer, self.x, candidates)
        training = Part.of_rows("training", n, trainer.epochs, trainer.batch_size)
        self._stages = {
            "missing": Stage(missing_parts(classifier, candidates) if asks else []),
            "comparison": Stage(comparison_parts(classifier, candidates) if compares else []),
            "training": Stage([training]),
            "folds": fold_stage(classifier, self.x, self.sets, folds, seed, workers),
        }

    def run(
        self,
        folder: Path,
        *,
        run: Run | None = None,
        callbacks: Sequence[Callback] = (),
        on_choice: Callable[[str], None] = lambda sentence: None,
    ) -> Cleaned | None:
        """Train, predict every row, and judge labels and sets.

        Args:
            folder: Where choices and folds are kept, so that an interrupted job is resumed.
            run: The run of that folder, if it has one, whose log gets a record of each epoch and
                which keeps checkpoints of the training on all rows.
            callbacks: Further callbacks of that training.
            on_choice: Called with each sentence about what was chosen before the training.

        Returns:
            What was found; None in all processes but the first.
        """
        classifier, trainer, examples = self.classifier, self.trainer, self.examples
        trained, progress = self.trained.rows, self._progress
        progress.plan_stages(list(self._stages.values()))
        decide = partial(
            decide_once,
            folder,
            self.fitting.candidates,
            {name: stage.parts for name, stage in self._stages.items()},
            progress,
            on_choice,
        )
        scores = classifier.decide_by_cross_validation(
            trainer, self.x, self.fitting.candidates, decide
        )
        ours: list[Callback] = [
            progress.start_part(self._stages["training"].parts[0]),
            _ReportChoice(on_choice),
        ]
        if examples.start is not None:
            weighted = examples.candidates.with_weights(examples.start)
            ours.append(_StartFromWeights(weighted.select(trained)))
        if run is not None:
            ours = [RunLog(run, self.evaluation, durable=True), *ours]
            checkpoint = Checkpoint(folder / RunFile.CHECKPOINT, min_seconds=CHECKPOINT_SECONDS)
            callbacks = [*callbacks, checkpoint]
        classifier.run_training(self.fitting, [self.evaluation, *ours, *callbacks])
        from_folds = None
        if self.folds > 1:
            unfitted = clone(classifier)
            unfitted.set_params(truth_missing=trainer.truth_missing, on_epoch=None)
            from_folds = out_of_fold_predictions(
                folder,
                partial(clone, unfitted),
                self.x,
                self.sets,
                folds=self.folds,
                seed=self.seed,
                stage=self._stages["folds"],
                progress=progress,
                scores=scores,
            )
        if not trainer.world.first:
            return None
        goal = classifier.goal
        classifier.set_params(goal=GOAL)
        predictions = predict_sets(classifier.predict_proba, examples.x, examples.candidates)
        classifier.set_params(goal=goal)
        own = None
        if from_folds is not None:
            own = predictions.select(trained)
            predictions.store_rows(trained, from_folds)
        prior: PriorEstimate | None = getattr(trainer.rebalancer, "prior_", None)
        history = trainer.history
        facts: Record = {
            "prior": None if prior is None else round_floats(prior.as_record()),
            "choice": trainer.rebalancer.because or None,
            "last": round_floats(history[-1]),
            "curves": _curve_columns(history),
        }
        return cleaned_by(classifier, examples, self.trained, predictions, own, facts)

    def conditions(self, run: Run) -> Record:
        """The hardware, the software and the speed of the training, for the record of the run."""
        return {**training_conditions(run, self.trainer), "processes": self.world.size}


def cleaned_by(
    classifier: Any,
    examples: Examples,
    trained: TrainedRows,
    predictions: SetPredictions,
    own: SetPredictions | None,
    facts: Record,
) -> Cleaned:
    """Judge labels and sets, calibrate the classifier, and collect what the record needs.

    Args:
        classifier: The fitted classifier or committee.
        examples: The examples.
        trained: The rows that were trained on.
        predictions: Predictions for all rows: where there are any, those of classifiers that were
            not trained on them.
        own: Predictions of the fitted classifier for the trained rows, if the others are out of
            fold.
        facts: Entries of the record that depend on how it was trained.
    """
    truth_missing = classifier.truth_missing_ > 0
    labels, judgement = label_rows(
        predictions, examples, trained.rows, own, truth_missing=truth_missing
    )
    if judgement is not None:
        classifier.temperature_ = judgement.temperature
    n, rows = len(examples), trained.rows
    common: Record = {
        "classes": [str(name) for name in examples.candidates.classes],
        "class_prior": round_floats(classifier.class_prior_.tolist()),
        "truth_missing": round_floats(classifier.truth_missing_),
        "rows": {"all": n, "trained": len(rows), "held_out": n - len(rows)},
        "judgement": judgement_record(judgement, labels, examples),
        "recovered": round_floats(_share_recovered(labels, examples, rows)),
    }
    return Cleaned(labels, predictions, {**common, **facts})


def decide_once(
    folder: Path,
    candidates: Candidates,
    parts: Mapping[str, Sequence[Part]],
    progress: Progress,
    on_choice: Callable[[str], None],
    name: str,
    estimate: Callable[..., Any],
) -> Any:
    """What cross-validation decides before training, unless the folder has stored it.

    Args:
        folder: Where the decision and its training runs are kept.
        candidates: The candidate sets.
        parts: The training runs of each decision, as parts of a job.
        progress: Reports their progress.
        on_choice: Called with a sentence about the share of missing labels.
        name: What is decided, "missing" or "comparison".
        estimate: Decides, given the callbacks of each training run and where these are kept.
    """
    file, folds = RunFile[name.upper()], RunFile[f"{name}_folds".upper()]
    world, kept = current_world(), KeptFolds(folder, folds, CHECKPOINT_SECONDS)
    found = world.value_of_first_process(_stored_choice(folder / file, name, candidates.n_classes))
    if not found:
        found = estimate(lambda number: [progress.start_part(parts[name][number])], kept)
    if world.first:
        write_atomically(folder / file, json.dumps(found).encode())
        kept.forget()
    if name == "missing":
        on_choice(_sentence_on_missing_labels(overall_share(found, candidates)))
    return found


def _stored_choice(path: Path, name: str, n_classes: int) -> Any:
    """What an interrupted run has decided; None if it has not, or if the file is damaged."""
    try:
        stored = parse_json(path.read_bytes())
        if name == "comparison":
            return {way: float(stored[way]) for way in WAYS}
        shares = [float(share) for share in stored]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    valid = len(shares) == n_classes + 1 and all(0 <= share < 1 for share in shares)
    return shares if valid else None


def _sentence_on_missing_labels(share: float) -> str:
    """What an estimate of the share of sets without the true label leads to."""
    if not share:
        return "Hardly any set seems to lack the true label, so labels stay inside their sets."
    about = f"About {share:.1%} of the sets seem to lack the true label"
    return f"{about}, so labels may leave their sets."


def _warn_of_divided_groups(
    groups: npt.NDArray[np.object_] | None, trained: npt.NDArray[Any], held_out: npt.NDArray[Any]
) -> None:
    divided = set() if groups is None else set(groups[trained]) & set(groups[held_out])
    if divided:
        warnings.warn(
            f"{counted(len(divided), 'group has', 'groups have')} rows to train on and rows that "
            "are held out, so held-out figures may be too good "
            f"({format_names(sorted(divided), 5)}): give all rows of a group the same split.",
            InputWarning,
            stacklevel=5,
        )


def _share_recovered(
    cleaned: CleanedLabels, examples: Examples, trained: npt.NDArray[Any]
) -> float | None:
    """The share of right labels among the trained rows whose true label is known, if any."""
    true = examples.table.labels
    if true is None or not (true[trained] >= 0).any():
        return None
    known = trained[true[trained] >= 0]
    return float((cleaned.label[known] == true[known]).mean())


class _StartFromWeights(Callback):
    """Starts from targets that are the weights of these candidates, unknown to training itself."""

    def __init__(self, weighted: Candidates) -> None:
        self.weighted = weighted

    def on_train_begin(self, trainer: PartialLabelTrainer) -> None:
        start = initial_targets(self.weighted.to(trainer.device), trainer.method.targets_on)
        for part in self.weighted.row_blocks(self.weighted.n_classes):
            rows = part.to(trainer.device)
            trainer.targets[rows] = start[rows]


class _ReportChoice(Callback):
    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say

    def on_train_begin(self, trainer: PartialLabelTrainer) -> None:
        if trainer.rebalancer.because:
            self.say(trainer.rebalancer.because)


def _curve_columns(history: list[Record]) -> Record:
    def column(name: str, records: list[Record]) -> list[Any]:
        return [record[name] for record in records]

    columns: Record = {name: column(name, history) for name in ("epoch", "loss")}
    measured = [record for record in history if "test" in record or "target_recovery" in record]
    if measured:
        columns["measured"] = column("epoch", measured)
        tests = [record.get("test", {}) for record in measured]
        for name in ("covering_rate", "accuracy", "balanced_accuracy"):
            if all(name in test for test in tests):
                columns[name] = column(name, tests)
        if all("target_recovery" in record for record in measured):
            columns["target_recovery"] = column("target_recovery", measured)
    compact: Record = round_floats(columns)
    return compact
