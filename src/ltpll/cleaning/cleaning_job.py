"""Cleaning job: the training runs behind cleaned labels, and the judgement of the sets."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import clone

from ltpll.before_training import (
    AUTO,
    FoldsOf,
    can_compare,
    comparison_parts,
    missing_parts,
    overall_share,
)
from ltpll.candidates import Candidates
from ltpll.cleaning.dataset import Examples
from ltpll.cleaning.judgement import judgement_record, label_rows
from ltpll.cleaning.results import CleanedLabels
from ltpll.committee import Committee
from ltpll.committee.training import EarlierCommittee
from ltpll.errors import InputError, InputWarning
from ltpll.estimator import SCALED, PartialLabelClassifier, seed_of
from ltpll.evaluation.metrics import evaluate
from ltpll.evaluation.missing_labels import balanced_temperature
from ltpll.evaluation.set_information import set_information_by_class
from ltpll.evaluation.set_predictions import SetPredictions, judged, predict_sets
from ltpll.folds import Rows, check_folds, fold_splits
from ltpll.formatting import are, counted, format_names
from ltpll.interfaces import Goal
from ltpll.pictures.reading import rows_on_disk
from ltpll.priors import PriorEstimate, estimate_prior
from ltpll.runs.environment import environment
from ltpll.runs.recording import CHECKPOINT_SECONDS, RunLog, training_conditions
from ltpll.runs.run import Record, Run
from ltpll.runs.run_files import RunFile
from ltpll.training.callbacks import Callback, Checkpoint, OnEpoch, Progress
from ltpll.training.compatibility import check_data
from ltpll.training.fold_training import (
    FoldRun,
    KeptFolds,
    fold_parts,
    parallel_runs,
    train_folds,
    train_in_processes,
)
from ltpll.training.job import Part, Stage
from ltpll.validation import chosen_device

GOAL = "accuracy"  # rare classes are rare in the table, too, so every row counts the same


class Cleaned(NamedTuple):
    """What a cleaning job has found."""

    labels: CleanedLabels
    predictions: SetPredictions
    facts: Record  # entries of the record of a `CleanedTable`, not rounded yet


def cleaning_job(
    classifier: PartialLabelClassifier | Committee,
    examples: Examples,
    *,
    folds: int,
    workers: int | None = None,
    progress: Progress | None = None,
    earlier: EarlierCommittee | None = None,
) -> CleaningJob:
    """All that is computed to clean labels by an untrained classifier, which `run` then fits.

    Everything is checked before a folder exists. With fewer than two folds, rows are judged by the
    classifier that was trained on them; a committee has its own number. `workers` networks are
    trained in parallel on a CPU; None decides by the amount of work and the machine. A committee
    starts from an `earlier` one.

    Raises:
        InputError: The examples cannot be trained on.
    """
    progress = progress or Progress(write=lambda line: None)
    if examples.encoder is not None and classifier.views == "auto":
        classifier.set_params(views=SCALED)
    if isinstance(classifier, Committee):
        return CommitteeJob(classifier, examples, workers, progress, earlier)
    return NetworkJob(classifier, examples, folds, workers, progress)


class CleaningJob:
    """What both kinds of jobs share: the rows to train on, choices, and the judgement."""

    stages: dict[str, Stage]

    def __init__(self, classifier: Any, examples: Examples, progress: Progress) -> None:
        self.classifier, self.examples, self.progress = classifier, examples, progress
        chosen, sets = examples.training(), examples.candidates
        self.rows, self.held_out = np.flatnonzero(chosen), np.flatnonzero(~chosen)
        n = len(self.rows)
        if n < 2:
            few = f"Only {n} of {counted(len(examples), 'row')} {are(n)} for training"
            raise InputError(f"{few}: training needs at least two.")
        self.x, self.sets = examples.x, sets
        if len(self.held_out):
            groups = examples.table.groups
            divided = set() if groups is None else {*groups[chosen]} & {*groups[~chosen]}
            if divided:
                warnings.warn(
                    f"{counted(len(divided), 'group has', 'groups have')} rows to train on and "
                    "rows that are held out, so held-out figures may be too good "
                    f"({format_names(sorted(divided), 5)}): give all rows of a group the same "
                    "split.",
                    InputWarning,
                    stacklevel=4,
                )
            self.x, self.sets = rows_on_disk(examples.x, self.rows), sets.select(self.rows)

    def run(self, folder: Path, run: Run | None = None) -> Cleaned | None:
        """Train, predict every row, and judge labels and sets; None but in the first process.

        An interrupted job is resumed from the folder. The `run` of that folder, if it has one, gets
        a log and checkpoints.
        """
        raise NotImplementedError

    def kept(self, folder: Path, name: str) -> FoldsOf:
        """The callbacks of the runs of a stage that decides something, and where they are kept."""
        parts, files = self.stages[name].parts, RunFile[f"{name}_folds".upper()]
        kept = KeptFolds(folder, files, CHECKPOINT_SECONDS)
        return lambda number: [self.progress.start_part(parts[number])], kept

    def say_how_many_miss(self, share: float) -> None:
        """Report the share of sets that was found to lack the true label."""
        said = "Hardly any set seems to lack the true label, so labels stay inside their sets."
        if share:
            about = f"About {share:.1%} of the sets seem to lack the true label"
            said = f"{about}, so labels may leave their sets."
        self.progress.write(said)

    def cleaned(self, from_folds: SetPredictions | None, last: Record) -> Cleaned:
        """Judge labels and sets as `label_rows`, calibrate the fitted classifier, collect facts.

        `last` is the record of the last epoch, to which figures about held-out rows are added.
        """
        classifier, examples, rows = self.classifier, self.examples, self.rows
        n, goal = len(examples), classifier.goal
        classifier.set_params(goal=GOAL)
        predictions = predict_sets(classifier.predict_proba, examples.x, examples.candidates)
        classifier.set_params(goal=goal)
        own = None
        if from_folds is not None:
            own = predictions.select(rows)
            predictions.store_rows(rows, from_folds)
        truth_missing = classifier.truth_missing_ > 0
        labels, judgement = label_rows(
            predictions, examples, rows, own, truth_missing=truth_missing
        )
        if judgement is not None:
            classifier.temperature_ = judgement.temperature
            unseen = predictions.select(np.flatnonzero(labels.judged_by != "own"))
            prior = np.maximum(classifier.class_prior_, 0.5 / n)
            classifier.balanced_temperature_ = balanced_temperature(
                unseen, prior, judgement.missing
            )
        true, recovered = examples.table.labels, None
        if true is not None and (true[rows] >= 0).any():
            known = rows[true[rows] >= 0]
            recovered = float((labels.label[known] == true[known]).mean())
        facts: Record = {
            "classes": [str(name) for name in examples.candidates.classes],
            "class_prior": classifier.class_prior_.tolist(),
            "truth_missing": classifier.truth_missing_,
            "rows": {"all": n, "trained": len(rows), "held_out": n - len(rows)},
            "judgement": judgement_record(judgement, labels, examples),
            "recovered": recovered,
            "last": {**last, **held_out_figures(classifier, examples)},
        }
        if cut := getattr(examples.encoder, "n_cut", 0):
            facts["texts_cut"] = cut
        return Cleaned(labels, predictions, facts)


# ---- one network -------------------------------------------------------------------------------


class NetworkJob(CleaningJob):
    """Makes choices by cross-validation, trains one network, and others for each fold."""

    def __init__(
        self,
        classifier: PartialLabelClassifier,
        examples: Examples,
        folds: int,
        workers: int | None,
        progress: Progress,
    ) -> None:
        super().__init__(classifier, examples, progress)
        self.fitting = classifier.prepare_training(self.x, self.sets)
        self.trainer = trainer = self.fitting.trainer
        check_data(self.fitting.x, self.sets, trainer.head)
        self.splits: list[tuple[Rows, Rows]] = []
        if folds > 1:
            self.splits = fold_splits(self.sets, folds, seed_of(classifier.random_state))
            check_folds(self.x, self.sets, self.splits)
        asks = classifier.truth_missing == AUTO
        compares = can_compare(trainer.rebalancer, self.x, self.sets)
        n, schedule = len(self.rows), (trainer.epochs, trainer.batch_size)
        self.stages = {
            "missing": Stage(missing_parts(classifier, self.sets) if asks else []),
            "comparison": Stage(comparison_parts(classifier, self.sets) if compares else []),
            "training": Stage([Part.of_rows("training", n, *schedule)]),
            "folds": fold_stage(classifier, self.x, self.splits, workers),
        }

    def run(self, folder: Path, run: Run | None = None) -> Cleaned | None:
        classifier, trainer, progress = self.classifier, self.trainer, self.progress
        progress.plan_stages(list(self.stages.values()))
        kept = {name: self.kept(folder, name) for name in ("missing", "comparison")}
        scores = classifier.decide_by_cross_validation(trainer, self.x, self.sets, kept)
        if classifier.truth_missing == AUTO:
            shares: Any = trainer.truth_missing
            self.say_how_many_miss(overall_share(shares, self.sets))
        callbacks: list[Callback] = [progress.start_part(self.stages["training"].parts[0])]
        if classifier.on_epoch:
            callbacks.append(OnEpoch(classifier.on_epoch))
        if run is not None:
            checkpoint = Checkpoint(folder / RunFile.CHECKPOINT, min_seconds=CHECKPOINT_SECONDS)
            callbacks += [RunLog(run, durable=True), checkpoint]
        classifier.run_training(self.fitting, callbacks)
        if classifier.choice_:
            progress.write(classifier.choice_)
        from_folds = None
        if self.splits:
            unfitted = clone(classifier).set_params(truth_missing=trainer.truth_missing)
            runs = fold_runs(unfitted, self.x, self.splits, scores)
            from_folds = out_of_fold(runs, self.sets, folder, self.stages["folds"], progress)
        if not trainer.world.first:
            return None
        found = self.cleaned(from_folds, trainer.history[-1])
        prior: PriorEstimate | None = getattr(trainer.rebalancer, "prior_", None)
        found.facts.update(
            prior=None if prior is None else prior.as_record(),
            choice=classifier.choice_ or None,
        )
        if run is not None:
            conditions = training_conditions(run, trainer)
            found.facts.update(conditions, processes=trainer.world.size)
        return found


def fold_stage(
    classifier: PartialLabelClassifier,
    x: npt.NDArray[Any],
    splits: Sequence[tuple[Rows, Rows]],
    workers: int | None = None,
) -> Stage:
    """The training runs of the folds, as a stage of a job."""
    rows = classifier.schedule(len(x)).epochs * len(x) * len(splits)
    workers = parallel_runs(workers, [classifier], x, rows, len(splits))
    return Stage(fold_parts("fold", classifier, splits), workers, "folds")


def fold_runs(
    classifier: PartialLabelClassifier,
    x: npt.NDArray[Any],
    splits: Sequence[tuple[Rows, Rows]],
    scores: Mapping[str, float] | None = None,
) -> list[FoldRun]:
    """The training runs of the folds; `scores` are those of a comparison on the whole table."""
    classifier.set_params(goal=GOAL)
    return [
        FoldRun(k, classifier, x, split, judged, scores, rows_on_disk)
        for k, split in enumerate(splits)
    ]


def out_of_fold(
    runs: Sequence[FoldRun], sets: Candidates, folder: Path, stage: Stage, progress: Progress
) -> SetPredictions:
    """Predict every row by a classifier that was trained neither on it nor on a row of its group.

    Finished folds are stored in the folder. The plan of `progress` contains the `stage`, from
    `fold_stage`. Empty but in the first process.
    """
    kept = KeptFolds(folder, RunFile.FOLDS, CHECKPOINT_SECONDS)
    train_in_processes(runs, sets, kept, stage, progress)
    trained = train_folds(runs, sets, lambda k: [progress.start_part(stage.parts[k])], kept)
    found = SetPredictions.empty(sets)
    for rows, predictions in trained:
        found.store_rows(rows, SetPredictions.from_tensors(predictions))
    return found


# ---- a committee -------------------------------------------------------------------------------


class CommitteeJob(CleaningJob):
    """Trains a committee, whose cross-validation weighs the members and predicts every row."""

    def __init__(
        self,
        committee: Committee,
        examples: Examples,
        workers: int | None,
        progress: Progress,
        earlier: EarlierCommittee | None,
    ) -> None:
        super().__init__(committee, examples, progress)
        self.training = committee.prepare_training(self.x, self.sets, earlier=earlier)
        asks = committee.truth_missing == AUTO
        missing = missing_parts(committee.base_classifier(), self.sets) if asks else []
        self.stages = {"missing": Stage(missing), "members": self.training.stage(workers)}

    def run(self, folder: Path, run: Run | None = None) -> Cleaned:
        committee, stage, began = self.classifier, self.stages["members"], time.monotonic()
        self.progress.plan_stages(list(self.stages.values()))
        committee.decide_missing(self.training, self.kept(folder, "missing"))
        if committee.truth_missing == AUTO:
            self.say_how_many_miss(committee.truth_missing_)
        committee.take_over(self.training.run(folder, stage, self.progress), self.training)
        self.progress.write(committee.choice_)
        seconds = round(time.monotonic() - began, 3)
        unseen = committee.out_of_fold_
        cleaned = self.cleaned(SetPredictions.of(torch.from_numpy(unseen), self.sets), {})
        by_class = set_information_by_class(unseen, self.sets).tolist()
        cleaned.facts.update(
            prior=estimate_prior(self.sets).as_record(),
            choice=committee.choice_,
            committee=committee.weights_,
            inputs=self.examples.fingerprint_of_inputs(),
            information=committee.information_._asdict(),
            information_by_class=[None if np.isnan(one) else one for one in by_class],
        )
        if run is not None:
            about = environment(str(chosen_device(committee.device))) | {"threads": stage.workers}
            cleaned.facts.update(environment=about, seconds=seconds, processes=1)
        return cleaned


# ---- held-out rows -----------------------------------------------------------------------------


def held_out_figures(classifier: Any, examples: Examples) -> Record:
    """How well a classifier predicts rows that it was not trained on; empty if there are none.

    Figures for its goal are in `test`, those for both goals in its `by_goal`.
    """
    rows, found = np.flatnonzero(~examples.training()), {}
    if not len(rows):
        return {}
    x, sets = rows_on_disk(examples.x, rows), examples.candidates.select(rows)
    goal, labels = classifier.goal, examples.table.labels
    true = np.full(len(rows), -1) if labels is None else labels[rows]
    known = np.flatnonzero(true >= 0)
    for one in get_args(Goal):
        scores = torch.from_numpy(classifier.set_params(goal=one).predict_proba(x))
        covered = sets.contains(scores.argmax(1)).double().mean()
        found[one] = {"covering_rate": float(covered)}
        if len(known):
            right = evaluate(scores[known], torch.from_numpy(true[known]))
            found[one]["accuracy"] = right.accuracy
            found[one]["balanced_accuracy"] = right.balanced_accuracy
    classifier.set_params(goal=goal)
    return {"test": {**found[goal], "by_goal": found}}
