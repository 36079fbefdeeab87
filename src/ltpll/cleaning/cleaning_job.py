"""Cleaning job: the training runs behind cleaned labels, from the choice of `auto` to the judgement."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
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
from ltpll.missing_share import AUTO, missing_parts, overall_share
from ltpll.pictures.on_disk import rows_on_disk
from ltpll.priors import PriorEstimate
from ltpll.runs.recording import CHECKPOINT_SECONDS, round_floats
from ltpll.runs.run import Record
from ltpll.runs.run_files import RunFile
from ltpll.targets import initial_targets
from ltpll.training.callbacks import Callback, Progress
from ltpll.training.compatibility import check_data
from ltpll.training.fold_training import KeptFolds
from ltpll.training.job import Part, Stage
from ltpll.training.trainer import PartialLabelTrainer

MEASURED = 50  # evaluations during training, at most


class Cleaned(NamedTuple):
    """What a cleaning job has found."""

    labels: CleanedLabels
    predictions: SetPredictions
    facts: Record  # entries of the record of a `CleanedTable`


class CleaningJob:
    """All that is computed to clean labels, for `ltpll train` and for `LabelCleaner`.

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
        chosen = examples.training()
        self.trained, held_out = np.flatnonzero(chosen), np.flatnonzero(~chosen)
        if len(self.trained) < 2:
            few = f"Only {len(self.trained)} of {counted(len(examples), 'row')} {are(len(self.trained))} for training"
            raise InputError(f"{few}: training needs at least two.")
        everything = len(held_out) == 0
        _warn_of_divided_groups(examples.table.groups, self.trained, held_out)
        self.x = examples.x if everything else rows_on_disk(examples.x, self.trained)
        self.sets = examples.candidates if everything else examples.candidates.select(self.trained)
        self.classifier, self.examples, self.folds, self.seed = classifier, examples, folds, seed
        self.fitting = classifier.begin(self.x, self.sets)
        self.trainer = trainer = self.fitting.trainer
        labels, rest = examples.table.labels, rows_on_disk(examples.x, held_out)
        self.evaluation = HeldOutEvaluation(
            channels_first(rest) if rest.ndim == 4 else rest,
            None if everything else examples.candidates.select(held_out),
            None if labels is None else labels[held_out],
            None if labels is None else labels[self.trained],
            goal=classifier.goal,  # type: ignore[arg-type]
            every=max(1, trainer.epochs // MEASURED),
        )
        candidates = self.fitting.candidates
        check_data(self.fitting.x, candidates, trainer.head)
        self._progress = progress or Progress(write=lambda line: None)
        compares = can_compare(trainer.rebalancer, self.x, candidates)
        self._stages = {
            "missing": Stage(
                missing_parts(classifier, candidates) if classifier.truth_missing == AUTO else []
            ),
            "comparison": Stage(comparison_parts(classifier, candidates) if compares else []),
            "training": Stage(
                [Part.of_rows("training", len(self.trained), trainer.epochs, trainer.batch_size)]
            ),
            "folds": fold_stage(classifier, self.x, self.sets, folds, seed, workers),
        }

    def run(
        self,
        folder: Path,
        *,
        log: Sequence[Callback] = (),
        callbacks: Sequence[Callback] = (),
        on_choice: Callable[[str], None] = lambda sentence: None,
    ) -> Cleaned | None:
        """Train, predict every row, and judge labels and sets.

        Args:
            folder: Where choices and folds are kept, so that an interrupted job is resumed.
            log: Callbacks of the training on all rows that see each epoch first.
            callbacks: Its further callbacks.
            on_choice: Called with each sentence about what was chosen before the training.

        Returns:
            What was found; None in all processes but the first.
        """
        classifier, trainer, examples, trained, progress = (
            self.classifier,
            self.trainer,
            self.examples,
            self.trained,
            self._progress,
        )
        progress.plan(list(self._stages.values()))
        scores = classifier.decide(
            trainer, self.x, self.fitting.candidates, partial(self._found, folder, on_choice)
        )
        start = examples.start
        ours: list[Callback] = [
            progress.start(self._stages["training"].parts[0]),
            _SayChoice(on_choice),
        ]
        if start is not None:
            ours.append(_StartFrom(examples.candidates.with_weights(start).select(trained)))
        classifier.train(self.fitting, [self.evaluation, *log, *ours, *callbacks])
        from_folds = None
        if self.folds > 1:
            unfitted = clone(classifier).set_params(
                truth_missing=trainer.truth_missing, on_epoch=None
            )
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
            predictions.put(trained, from_folds)
        labels, judgement = label_rows(
            predictions, examples, trained, own, truth_missing=bool(np.any(trainer.truth_missing))
        )
        if judgement is not None:
            classifier.temperature_ = judgement.temperature
        facts: Record = {
            "classes": [str(name) for name in examples.candidates.classes],
            "class_prior": round_floats(classifier.class_prior_.tolist()),
            "prior": _prior_record(trainer),
            "choice": trainer.rebalancer.because or None,
            "truth_missing": round_floats(classifier.truth_missing_),
            "rows": {
                "all": len(examples),
                "trained": len(trained),
                "held_out": len(examples) - len(trained),
            },
            "judgement": judgement_record(judgement, labels, examples),
            "recovered": round_floats(_recovered(labels, examples, trained)),
            "last": round_floats(trainer.history[-1]),
            "curves": _curves(trainer.history),
        }
        return Cleaned(labels, predictions, facts)

    def _found(
        self,
        folder: Path,
        on_choice: Callable[[str], None],
        name: str,
        estimate: Callable[..., Any],
    ) -> Any:
        """What cross-validation decides before the training, unless the folder has stored it."""
        file, folds = CHOICES[name]
        candidates, world = self.fitting.candidates, self.trainer.world
        kept = KeptFolds(folder, folds, CHECKPOINT_SECONDS)
        stored = world.agreed(
            _stored(
                folder / file,
                _valid_scores if name == "comparison" else partial(_valid_shares, candidates),
            )
        )
        found = stored or estimate(
            lambda number: [self._progress.start(self._stages[name].parts[number])], kept
        )
        if world.first:
            write_atomically(folder / file, json.dumps(found).encode())
            kept.forget()
        if name == "missing":
            on_choice(_said_of_missing(overall_share(found, candidates)))
        return found


CHOICES = {
    "missing": (RunFile.MISSING, RunFile.MISSING_FOLDS),
    "comparison": (RunFile.COMPARISON, RunFile.COMPARISON_FOLDS),
}


def _warn_of_divided_groups(
    groups: npt.NDArray[np.object_] | None, trained: npt.NDArray[Any], held_out: npt.NDArray[Any]
) -> None:
    divided = set() if groups is None else set(groups[trained]) & set(groups[held_out])
    if divided:
        warnings.warn(
            f"{counted(len(divided), 'group has', 'groups have')} rows to train on and rows that are held out, so held-out figures may "
            f"be too good ({format_names(sorted(divided), 5)}): give all rows of a group the same split.",
            InputWarning,
            stacklevel=4,
        )


def _recovered(
    cleaned: CleanedLabels, examples: Examples, trained: npt.NDArray[Any]
) -> float | None:
    """The share of right labels among the trained rows whose true label is known; None if there are none."""
    true = examples.table.labels
    known = np.empty(0, dtype=np.int64) if true is None else trained[true[trained] >= 0]
    return (
        None
        if true is None or not len(known)
        else float((cleaned.label[known] == true[known]).mean())
    )


def _stored(path: Path, valid: Callable[[Any], Any]) -> Any:
    """What a run that is resumed has stored; None if it has not, or if the file is damaged."""
    try:
        return valid(parse_json(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _valid_scores(stored: Any) -> dict[str, float]:
    return {name: float(stored[name]) for name in WAYS}


def _valid_shares(candidates: Candidates, stored: Any) -> list[float] | None:
    shares = [float(share) for share in stored]
    return (
        shares
        if len(shares) == candidates.n_classes + 1 and all(0 <= share < 1 for share in shares)
        else None
    )


def _said_of_missing(share: float) -> str:
    if not share:
        return "Hardly any set seems to lack the true label, so labels stay inside their sets."
    return f"About {share:.1%} of the sets seem to lack the true label, so labels may leave their sets."


class _StartFrom(Callback):
    """Starts from targets that are the weights of these candidates, which training itself does not know; a checkpoint is loaded later."""

    def __init__(self, weighted: Candidates) -> None:
        self.weighted = weighted

    def on_train_begin(self, trainer: PartialLabelTrainer) -> None:
        start = initial_targets(self.weighted.to(trainer.device), trainer.method.targets_on)
        for index in self.weighted.parts(self.weighted.n_classes):
            trainer.targets[index.to(trainer.device)] = start[index.to(trainer.device)]


class _SayChoice(Callback):
    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say

    def on_train_begin(self, trainer: PartialLabelTrainer) -> None:
        if trainer.rebalancer.because:
            self.say(trainer.rebalancer.because)


def _prior_record(trainer: PartialLabelTrainer) -> Record | None:
    """The class prior that the rebalancer has read off the sets; None if it has not."""
    prior: PriorEstimate | None = getattr(trainer.rebalancer, "prior_", None)
    return None if prior is None else round_floats(prior.record())


def _curves(history: list[Record]) -> Record:
    measured = [record for record in history if "test" in record or "target_recovery" in record]
    columns: Record = {
        "epoch": [record["epoch"] for record in history],
        "loss": [record["loss"] for record in history],
    }
    if measured:
        columns["measured"] = [record["epoch"] for record in measured]
        for name in ("covering_rate", "accuracy", "balanced_accuracy"):
            if all(name in record.get("test", {}) for record in measured):
                columns[name] = [record["test"][name] for record in measured]
        if all("target_recovery" in record for record in measured):
            columns["target_recovery"] = [record["target_recovery"] for record in measured]
    compact: Record = round_floats(columns)
    return compact
