"""Pipeline: train on the examples of a table, and leave a finished run that can clean, predict and report."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt

from ltpll.backbones import Backbone
from ltpll.backbones.stored import save_backbone
from ltpll.candidates import Candidates
from ltpll.cleaning.cross_validation import fold_stage, out_of_fold_predictions
from ltpll.cleaning.dataset import Examples, TableSource, texts_of_rows
from ltpll.cleaning.held_out import HeldOutEvaluation
from ltpll.cleaning.labelling import judgement_record, label_rows
from ltpll.cleaning.results import CleanedLabels
from ltpll.cleaning.stored_tables import read_cleaned, store_pictures, store_probabilities, store_tables
from ltpll.comparison import WAYS, can_compare, comparison_parts, held_out_scores
from ltpll.data.readers.prior_files import check_prior
from ltpll.errors import InputError, InputWarning, shown
from ltpll.estimator import PartialLabelClassifier, channels_first
from ltpll.evaluation.set_predictions import predict_sets
from ltpll.files import parse_json, write_atomically
from ltpll.formatting import are, counted, format_names
from ltpll.interfaces import Goal
from ltpll.methods import METHODS
from ltpll.missing_share import AUTO, NEVER, check_truth_missing, estimate_missing, missing_parts, overall_share
from ltpll.models.finetune import FineTune, Layers
from ltpll.photos.on_disk import rows_on_disk
from ltpll.priors import PriorEstimate
from ltpll.pruning.votes import NEIGHBOURS, THRESHOLD
from ltpll.rebalancers import REBALANCERS
from ltpll.rebalancers.auto import Auto
from ltpll.registry import named_parameters
from ltpll.runs.checksums import damaged_files
from ltpll.runs.recording import (
    CHECKPOINT_SECONDS,
    begin_run,
    locked_for_training,
    round_floats,
    train_logged,
    training_conditions,
)
from ltpll.runs.run import Record, Run
from ltpll.runs.run_files import RunFile
from ltpll.targets import initial_targets
from ltpll.training.callbacks import Callback, Progress
from ltpll.training.compatibility import check_data
from ltpll.training.fold_training import KeptFolds
from ltpll.training.job import Part, Stage
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.validation import check_setting

MEASURED = 50  # evaluations during training, at most
FROZEN = "none"
FINETUNE = (FROZEN, "last", "all")
DEFAULT_PRIOR = "auto"
PRIORS = (DEFAULT_PRIOR, "average", "sets")
NOT_OF_CLASSIFIER = ("prior", "backbone", "finetune", "seed", "folds", "prune")
DEFAULTS: dict[str, Any] = {name: parameter.default for name, parameter in named_parameters(PartialLabelClassifier).items()}


@dataclass(frozen=True)
class TrainingSettings:
    """How to train on a table: the parameters of `PartialLabelClassifier` with its defaults, the prior, and the number of folds.

    Args:
        prior: What the rebalancers "auto" and "anchor" take for the class prior: "auto", "average" or "sets" (see
            `ltpll.rebalancers.Anchor`), or for each class its share, or a list of a lower and an upper bound.
        backbone: The pretrained network for pictures, a name or a folder; None for none.
        finetune: Which of its layers are trained as well: "none" (examples are its features), "last" or "all".
        folds: The number of folds for out-of-fold predictions; with 0 or 1, rows are judged by the classifier that was trained on them.
        prune: Whether the candidate sets were pruned by neighbours before (`prune_examples`), which is recorded in the run's config.

    Examples:
        >>> settings = TrainingSettings(method="proden", rebalancer="records", folds=10)
    """

    method: str = DEFAULTS["method"]
    rebalancer: str = DEFAULTS["rebalancer"]
    prior: str | Mapping[str, Any] = DEFAULT_PRIOR
    extras: tuple[str, ...] = DEFAULTS["extras"]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    model: str = DEFAULTS["model"]
    backbone: str | None = None
    finetune: str = FROZEN
    views: str = DEFAULTS["views"]
    epochs: int | str = DEFAULTS["epochs"]
    batch_size: int | str = DEFAULTS["batch_size"]
    lr: float | str = DEFAULTS["lr"]
    weight_decay: float | str = DEFAULTS["weight_decay"]
    truth_missing: float | str = DEFAULTS["truth_missing"]
    goal: str = DEFAULTS["goal"]
    precision: str = DEFAULTS["precision"]
    seed: int = DEFAULTS["random_state"]
    folds: int = 5
    prune: bool = False

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> TrainingSettings:
        """From plain values, as a config file or the command line gives them.

        Raises:
            InputError: A name is unknown, or a value has the wrong type.
        """
        known = {one.name: one.default for one in fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise InputError(f"There is no setting {shown(name)} for tables; known: {', '.join(known)}.")
            if name == "prior" and isinstance(value, Mapping):
                continue  # checked together with the classes of the table
            numbers = {"epochs": 1, "batch_size": 1, "lr": 0.05, "weight_decay": 2e-3}  # "auto", or a number like this one
            if name == "truth_missing":
                check_truth_missing(value)
            elif name not in numbers:
                check_setting(name, known[name], value, "The setting")
            elif value != "auto":
                check_setting(name, numbers[name], value, "The setting")
        floats = ("lr", "weight_decay", "truth_missing")
        plain: dict[str, Any] = {
            name: int(value) if isinstance(value, float) and name not in floats else value for name, value in values.items()
        }
        if isinstance(prior := plain.get("prior"), Mapping):
            plain["prior"] = {str(name): share for name, share in prior.items()}  # YAML reads the name of a class as a number if it can
        if "extras" in values:
            plain["extras"] = tuple(values["extras"] or ())
        return cls(**{**plain, "options": dict(values.get("options") or {})})

    def check(self, classes: Iterable[Hashable]) -> None:
        """Refuse a goal or a prior that is unknown or does not fit the classes or the other settings.

        Raises:
            InputError: Something does not fit.
        """
        check_truth_missing(self.truth_missing)
        if self.goal not in get_args(Goal):
            raise InputError(f"The goal is {shown(self.goal)}: choose balanced (every class counts the same) or accuracy (every example).")
        if self.finetune not in FINETUNE:
            raise InputError(f"Fine-tuning is {shown(self.finetune)}: choose {', '.join(FINETUNE)}.")
        if self.finetune != FROZEN and self.backbone is None:
            raise InputError("There is no pretrained network to fine-tune: give one with --backbone, or leave --finetune out.")
        if self.finetune != FROZEN and self.model != DEFAULTS["model"]:
            raise InputError(f"The network is either {self.model} or the fine-tuned backbone: leave one of --model and --finetune out.")
        if self.prior == DEFAULT_PRIOR:
            return
        if isinstance(self.prior, str) and self.prior not in PRIORS:
            raise InputError(f"The prior is {shown(self.prior)}: choose {', '.join(PRIORS)}, or give the share of each class.")
        if "prior" not in named_parameters(REBALANCERS[self.rebalancer]):
            raise InputError(f"The rebalancer {self.rebalancer!r} takes no prior: choose auto or anchor, or leave --prior out.")
        if METHODS[self.method].why_no_rebalancer:
            raise InputError(f"The method {self.method!r} cannot be rebalanced, so it takes no prior: leave --prior out.")
        if not isinstance(self.prior, str):
            check_prior(self.prior, classes)

    def classifier(self, device: str, on_nan: str, threads: int | str = "auto", truth_missing: Any = None) -> PartialLabelClassifier:
        """An untrained classifier with these settings; `truth_missing` replaces the setting by shares that were estimated."""
        parameters = {name: value for name, value in asdict(self).items() if name not in NOT_OF_CLASSIFIER}
        if self.finetune != FROZEN:
            assert self.backbone is not None
            parameters["model"] = FineTune(Backbone.from_pretrained(self.backbone), cast(Layers, self.finetune))
        if truth_missing is not None:
            parameters["truth_missing"] = truth_missing
        if self.prior != DEFAULT_PRIOR:
            parameters["options"] = {**self.options, self.rebalancer: {**self.options.get(self.rebalancer, {}), "prior": self.prior}}
        return PartialLabelClassifier(**parameters, random_state=self.seed, device=device, on_nan=on_nan, threads=threads)


def table_run(out: str | Path, settings: TrainingSettings, examples: Examples) -> Run:
    """The run of these settings on these examples, in the folder `out`; `Run.check_folder` refuses a folder with another run.

    Raises:
        InputError: The settings do not fit each other or the examples.
    """
    settings.check(examples.candidates.classes)
    data: Record = {"fingerprint": examples.fingerprint(), "texts": examples.fingerprint_of_texts()}
    data |= {"rows": len(examples), "classes": examples.candidates.n_classes}
    # As in the runs of versions that had no such settings.
    without: tuple[str, ...] = () if settings.backbone else ("backbone", "finetune")
    without += () if settings.prune else ("prune",)
    without += ("truth_missing",) if settings.truth_missing == NEVER else ()
    config = {
        "experiment": "own",
        "data": data,
        **{name: value for name, value in asdict(settings).items() if name not in without},
        "extras": list(settings.extras),
        "options": {k: dict(v) for k, v in settings.options.items()},
        **({"prune": {"neighbours": NEIGHBOURS, "threshold": THRESHOLD}} if settings.prune else {}),
    }
    folder = Path(out).absolute()
    run = Run(folder.parent, config, folder.name)
    return _as_of_version_0_2(run, examples) or run


def _as_of_version_0_2(run: Run, examples: Examples) -> Run | None:
    """The run in the folder, if it is the same one as version 0.2 began it, whose configs did not hold the texts of a table."""
    try:
        before = run.stored_config()
    except (OSError, ValueError):
        return None
    if before != {**run.config, "data": {name: value for name, value in run.config["data"].items() if name != "texts"}}:
        return None
    earlier = replace(run, config=before)
    if not earlier.done or damaged_files(run.folder):
        return earlier  # the texts are stored at the end of training
    return earlier if texts_of_rows(read_cleaned(run.folder)) == texts_of_rows(examples.table) else None


def train_table_run(
    run: Run,
    source: TableSource,
    examples: Examples,
    settings: TrainingSettings,
    *,
    device: str = "auto",
    on_nan: str = "stop",
    threads: int | str = "auto",
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
    workers: int | None = None,
    on_choice: Callable[[str], None] = lambda sentence: None,
) -> None:
    """Train a run to its end and store everything that cleaning, prediction and reports need; an interrupted run is resumed.

    Args:
        run: The run, from `table_run`.
        source: Where the examples were read from.
        examples: The examples, from `read_examples`.
        settings: How to train.
        device: "cpu", "cuda" or "auto".
        on_nan: "stop", or "skip" to drop batches whose numbers are not finite.
        threads: The number of threads on a CPU, or "auto".
        progress: Reports the progress of all trainings: those of a comparison, the one on all rows and those of the folds.
        callbacks: Further callbacks of the training on all rows.
        workers: How many folds are trained in parallel on a CPU; None decides by the amount of work and the machine.
        on_choice: Called before training with the sentence in which the rebalancer says what it chose, if it chose something.

    Raises:
        InputError: The examples cannot be trained on.
        BusyError: Another process is training the run.

    Examples:
        >>> from ltpll.cleaning.dataset import TableSource, read_examples
        >>> from ltpll.cleaning.stored_tables import read_cleaned
        >>> source, settings = TableSource(Path("birds.csv")), TrainingSettings(epochs=1, folds=2)
        >>> examples = read_examples(source)
        >>> run = table_run("my-run", settings, examples)
        >>> train_table_run(run, source, examples, settings)
        >>> len(read_cleaned("my-run").labels.label)
        60
    """
    # Everything is checked before the folder exists.
    chosen = examples.training()
    trained, held_out = np.flatnonzero(chosen), np.flatnonzero(~chosen)
    if len(trained) < 2:
        raise InputError(
            f"Only {len(trained)} of {counted(len(examples), 'row')} {are(len(trained))} for training: training needs at least two."
        )
    everything = len(held_out) == 0
    _warn_of_divided_groups(examples.table.groups, trained, held_out)
    x = examples.x if everything else rows_on_disk(examples.x, trained)
    sets = examples.candidates if everything else examples.candidates.select(trained)
    labels = examples.table.labels
    rest = rows_on_disk(examples.x, held_out)
    classifier = settings.classifier(device, on_nan, threads)
    trainer, inputs, candidates = classifier.begin(x, sets)
    evaluation = HeldOutEvaluation(
        channels_first(rest) if rest.ndim == 4 else rest,
        None if everything else examples.candidates.select(held_out),
        None if labels is None else labels[held_out],
        None if labels is None else labels[trained],
        goal=cast(Goal, settings.goal),
        every=max(1, trainer.epochs // MEASURED),
    )
    check_data(inputs, candidates, trainer.head)
    progress = progress or Progress(write=lambda line: None)
    estimate = Stage(missing_parts(classifier, candidates) if settings.truth_missing == AUTO else [])
    comparison = Stage(comparison_parts(classifier, candidates) if can_compare(trainer.rebalancer, x, candidates) else [])
    training = Part.of_rows("training", len(trained), trainer.epochs, trainer.batch_size)
    folds = fold_stage(classifier, x, sets, settings.folds, settings.seed, workers)
    with locked_for_training(run, trainer) as unfinished:
        if not unfinished:
            return
        begin_run(run, trainer, resumes=True)
        progress.plan([estimate, comparison, Stage([training]), folds])

        def decided(file: RunFile, folds: RunFile, stage: Stage, valid: Callable[[Any], Any], decide: Callable[..., Any]) -> Any:
            """What is decided by a cross-validation before the training, unless the run has stored it."""
            kept = KeptFolds(run.folder, folds, CHECKPOINT_SECONDS)
            stored = trainer.world.agreed(_stored(run.folder / file, valid))
            found = stored or decide(x, candidates, lambda number: [progress.start(stage.parts[number])], kept)
            if trainer.world.first:
                write_atomically(run.folder / file, json.dumps(found).encode())
                kept.forget()
            return found

        if settings.truth_missing == AUTO:
            valid = partial(_valid_shares, n_classes=candidates.n_classes)
            files = RunFile.MISSING, RunFile.MISSING_FOLDS
            trainer.truth_missing = shares = decided(*files, estimate, valid, partial(estimate_missing, classifier))
            on_choice(_said_of_missing(overall_share(shares, candidates)))
        opened, scores = bool(np.any(trainer.truth_missing)), None
        # The comparison assumes that sets hold the true label.
        if comparison.parts and not opened and isinstance(trainer.rebalancer, Auto):
            files = RunFile.COMPARISON, RunFile.COMPARISON_FOLDS
            scores = decided(*files, comparison, _valid_scores, partial(held_out_scores, classifier, trainer.rebalancer))
            trainer.rebalancer.scores = scores
        train_logged(
            run,
            trainer,
            inputs,
            candidates,
            evaluation,
            checkpoint_every=1,
            checkpoint_seconds=CHECKPOINT_SECONDS,
            callbacks=[
                progress.start(training),
                _SayChoice(on_choice),
                *([] if examples.start is None else [_StartFrom(examples.candidates.with_weights(examples.start).select(trained))]),
                *callbacks,
            ],
        )
        classifier.finish(trainer)
        if trainer.world.first:
            classifier.save(run.folder / RunFile.CLASSIFIER)
        from_folds = None
        if settings.folds > 1:
            make = partial(settings.classifier, device, on_nan, threads, truth_missing=trainer.truth_missing)
            from_folds = out_of_fold_predictions(
                run.folder, make, x, sets, folds=settings.folds, seed=settings.seed, stage=folds, progress=progress, scores=scores
            )
        if not trainer.world.first:
            return
        # As in the folds, every row counts the same. The classifier was saved with its own goal above.
        classifier.set_params(goal="accuracy")
        predictions, own = predict_sets(classifier.predict_proba, examples.x, examples.candidates), None
        if from_folds is not None:
            own = predictions.select(trained)
            predictions.put(trained, from_folds)
        cleaned, judgement = label_rows(predictions, examples, trained, own, truth_missing=opened)
        if judgement is not None:
            classifier.set_params(goal=settings.goal)
            classifier.temperature_ = judgement.temperature
            classifier.save(run.folder / RunFile.CLASSIFIER)
        store_tables(run.folder, examples.table, cleaned)
        if judgement is not None and (cleaned.judged_by != "own").all():
            store_probabilities(run.folder, predictions.probabilities(judgement.temperature))
        if source.images is not None:
            store_pictures(run.folder, source.images, examples.table, cleaned)
        if source.backbone is not None:
            save_backbone(source.backbone, run.folder / RunFile.BACKBONE)  # so that prediction and export need nothing but the run
        run.finish(
            {
                **training_conditions(run, trainer),
                "processes": trainer.world.size,
                "classes": [str(name) for name in examples.candidates.classes],
                "class_prior": round_floats(classifier.class_prior_.tolist()),
                "prior": _prior_record(trainer),
                "choice": trainer.rebalancer.because or None,
                "truth_missing": round_floats(classifier.truth_missing_),
                "rows": {"all": len(examples), "trained": len(trained), "held_out": len(held_out)},
                "skipped": [list(problem) for problem in examples.problems],
                "source": _described(source, examples),
                "judgement": judgement_record(judgement, cleaned, examples),
                "recovered": round_floats(_recovered(cleaned, examples, trained)),
                "last": round_floats(trainer.history[-1]),
                "curves": _curves(trainer.history),
            }
        )


def _warn_of_divided_groups(groups: npt.NDArray[np.object_] | None, trained: npt.NDArray[Any], held_out: npt.NDArray[Any]) -> None:
    divided = set() if groups is None else set(groups[trained]) & set(groups[held_out])
    if divided:
        warnings.warn(
            f"{counted(len(divided), 'group has', 'groups have')} rows to train on and rows that are held out, so held-out figures may "
            f"be too good ({format_names(sorted(divided), 5)}): give all rows of a group the same split.",
            InputWarning,
            stacklevel=3,
        )


def _recovered(cleaned: CleanedLabels, examples: Examples, trained: npt.NDArray[Any]) -> float | None:
    """The share of right labels among the trained rows whose true label is known; None if there are none."""
    true = examples.table.labels
    known = np.empty(0, dtype=np.int64) if true is None else trained[true[trained] >= 0]
    return None if true is None or not len(known) else float((cleaned.label[known] == true[known]).mean())


def _stored(path: Path, valid: Callable[[Any], Any]) -> Any:
    """What a run that is resumed has stored; None if it has not, or if the file is damaged."""
    try:
        return valid(parse_json(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _valid_scores(stored: Any) -> dict[str, float]:
    return {name: float(stored[name]) for name in WAYS}


def _valid_shares(stored: Any, n_classes: int) -> list[float] | None:
    shares = [float(share) for share in stored]
    return shares if len(shares) == n_classes + 1 and all(0 <= share < 1 for share in shares) else None


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


def _described(source: TableSource, examples: Examples) -> Record:
    """What `predict` needs to read other tables in the same way."""
    reading = {**asdict(source.reading), **examples.table.columns}
    return {
        "table": str(source.table),
        "images": None if source.images is None else str(source.images),
        "features": None if source.features is None else str(source.features),
        "side": examples.x.shape[1] if examples.x.ndim == 4 else 0,
        "preprocessing": None if source.preprocessing is None else source.preprocessing.record(),
        "backbone": None if source.backbone is None else {"name": source.backbone.name, "fingerprint": source.backbone.fingerprint()},
        "reading": {name: list(value) if isinstance(value, tuple) else value for name, value in reading.items()},
        "feature_names": list(examples.table.feature_names),
        "annotators": 0 if examples.table.votes is None else len(examples.table.votes.names),
        **({"exact": True} if examples.x.dtype == np.float64 else {}),
    }


def _curves(history: list[Record]) -> Record:
    measured = [record for record in history if "test" in record or "target_recovery" in record]
    columns: Record = {"epoch": [record["epoch"] for record in history], "loss": [record["loss"] for record in history]}
    if measured:
        columns["measured"] = [record["epoch"] for record in measured]
        for name in ("covering_rate", "accuracy", "balanced_accuracy"):
            if all(name in record.get("test", {}) for record in measured):
                columns[name] = [record["test"][name] for record in measured]
        if all("target_recovery" in record for record in measured):
            columns["target_recovery"] = [record["target_recovery"] for record in measured]
    compact: Record = round_floats(columns)
    return compact
