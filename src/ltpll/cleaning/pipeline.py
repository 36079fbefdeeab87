"""Pipeline: train on the examples of a table, and leave a finished run that can clean, predict and report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.cleaning.cross_validation import ProgressOf, epochs_of_folds, out_of_fold_predictions
from ltpll.cleaning.dataset import Examples, TableSource
from ltpll.cleaning.held_out import HeldOutEvaluation
from ltpll.cleaning.results import CleanedLabels
from ltpll.cleaning.set_predictions import SetPredictions, predict_sets
from ltpll.cleaning.stored_tables import store_pictures, store_tables
from ltpll.errors import InputError, shown
from ltpll.estimator import PartialLabelClassifier, channels_first
from ltpll.runs.recording import CHECKPOINT_SECONDS, locked_for_training, round_floats, train_logged, training_conditions
from ltpll.runs.run import Record, Run
from ltpll.training.callbacks import Progress
from ltpll.training.compatibility import check_data
from ltpll.validation import check_setting

MEASURED = 50  # evaluations during training, at most
CLASSIFIER = "classifier.safetensors"


@dataclass(frozen=True)
class TrainingSettings:
    """How to train on a table: the parameters of `PartialLabelClassifier`, and the number of folds.

    Args:
        folds: The number of folds for out-of-fold predictions; with 0 or 1, rows are judged by the classifier that was trained on them.

    Example:
        >>> TrainingSettings(method="proden", rebalancer="records", folds=10)
    """

    method: str = "corr"
    rebalancer: str = "none"  # recovers more labels than "records" on most tables that we measured (docs/own-data.md)
    extras: tuple[str, ...] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    model: str = "auto"
    views: str = "auto"
    epochs: int | str = "auto"
    batch_size: int | str = "auto"
    lr: float = 0.05
    weight_decay: float = 1e-3
    precision: str = "float32"
    seed: int = 0
    folds: int = 5

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
            if name not in ("epochs", "batch_size"):
                check_setting(name, known[name], value, "The setting")
            elif value != "auto":
                check_setting(name, 1, value, "The setting")
        floats = ("lr", "weight_decay")
        plain: dict[str, Any] = {
            name: int(value) if isinstance(value, float) and name not in floats else value for name, value in values.items()
        }
        return cls(**{**plain, "extras": tuple(values.get("extras") or ()), "options": dict(values.get("options") or {})})

    def classifier(self, device: str, on_nan: str, threads: int | str = "auto") -> PartialLabelClassifier:
        """An untrained classifier with these settings."""
        parameters = {name: value for name, value in asdict(self).items() if name not in ("seed", "folds")}
        return PartialLabelClassifier(**parameters, random_state=self.seed, device=device, on_nan=on_nan, threads=threads)


def table_run(out: str | Path, settings: TrainingSettings, examples: Examples) -> Run:
    """The run of these settings on these examples, in the folder `out`; `Run.check_folder` refuses a folder with another run."""
    data = {"fingerprint": examples.fingerprint(), "rows": len(examples), "classes": examples.candidates.n_classes}
    config = {
        "experiment": "own",
        "data": data,
        **asdict(settings),
        "extras": list(settings.extras),
        "options": {k: dict(v) for k, v in settings.options.items()},
    }
    folder = Path(out).absolute()
    return Run(folder.parent, config, folder.name)


def train_table_run(
    run: Run,
    source: TableSource,
    examples: Examples,
    settings: TrainingSettings,
    *,
    device: str = "auto",
    on_nan: str = "stop",
    threads: int | str = "auto",
    progress_of: ProgressOf = lambda name, epochs, later: Progress(name=name, write=lambda line: None),
    workers: int | None = None,
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
        progress_of: Reports the progress of the trainings, the one on all rows and those of the folds.
        workers: How many folds are trained in parallel on a CPU; None decides by the amount of work and the machine.

    Raises:
        InputError: The examples cannot be trained on.
        BusyError: Another process is training the run.

    Example:
        >>> source, settings = TableSource(Path("birds.csv")), TrainingSettings()
        >>> examples = read_examples(source)
        >>> run = table_run("ltpll-runs/birds", settings, examples)
        >>> train_table_run(run, source, examples, settings)
        >>> cleaned_columns(read_cleaned(run.folder))["label"]
    """
    # Everything is checked before the folder exists.
    chosen = examples.training()
    trained, held_out = np.flatnonzero(chosen), np.flatnonzero(~chosen)
    if len(trained) < 2:
        raise InputError(f"Only {len(trained)} of {len(examples)} rows are for training: training needs at least two.")
    everything = len(held_out) == 0
    x = examples.x if everything else examples.x[trained]
    sets = examples.candidates if everything else examples.candidates.select(trained)
    labels = examples.table.labels
    rest = examples.x[held_out]
    classifier = settings.classifier(device, on_nan, threads)
    trainer, inputs, candidates = classifier.begin(x, sets)
    evaluation = HeldOutEvaluation(
        channels_first(rest) if rest.ndim == 4 else rest,
        None if everything else examples.candidates.select(held_out),
        None if labels is None else labels[held_out],
        None if labels is None else labels[trained],
        every=max(1, trainer.epochs // MEASURED),
    )
    check_data(inputs, candidates, trainer.head)
    later = epochs_of_folds(classifier, x, settings.folds, workers) if settings.folds > 1 else 0.0
    with locked_for_training(run, trainer) as unfinished:
        if not unfinished:
            return
        train_logged(
            run,
            trainer,
            inputs,
            candidates,
            evaluation,
            checkpoint_every=1,
            checkpoint_seconds=CHECKPOINT_SECONDS,
            callbacks=[progress_of("training", trainer.epochs, later)],
        )
        classifier.finish(trainer)
        if trainer.world.first:
            classifier.save(run.folder / CLASSIFIER)
        from_folds = None
        if settings.folds > 1:
            make = partial(settings.classifier, device, on_nan, threads)
            plan: Record = {"folds": settings.folds, "seed": settings.seed, "workers": workers}
            from_folds = out_of_fold_predictions(run.folder, make, x, sets, progress_of=progress_of, **plan)
        if not trainer.world.first:
            return
        predictions = predict_sets(classifier.predict_proba, examples.x, examples.candidates)
        cleaned = _cleaned_labels(predictions, trained, held_out, classifier.transduced_, from_folds)
        store_tables(run.folder, examples.table, cleaned)
        if source.images is not None:
            store_pictures(run.folder, source.images, examples.table, cleaned)
        run.finish(
            {
                **training_conditions(run, trainer),
                "processes": trainer.world.size,
                "classes": [str(name) for name in examples.candidates.classes],
                "class_prior": round_floats(classifier.class_prior_.tolist()),
                "rows": {"all": len(examples), "trained": len(trained), "held_out": len(held_out)},
                "skipped": [list(problem) for problem in examples.problems],
                "source": _described(source, examples),
                "last": round_floats(trainer.history[-1]),
                "curves": _curves(trainer.history),
            }
        )


def _cleaned_labels(
    predictions: SetPredictions,
    trained: npt.NDArray[np.int64],
    held_out: npt.NDArray[np.int64],
    transduced: tuple[npt.NDArray[Any], ...],
    out_of_fold: SetPredictions | None,
) -> CleanedLabels:
    """Trained rows get the label of their final targets, held-out rows the likeliest candidate; out-of-fold predictions judge the sets."""
    total = np.maximum(predictions.of_set, np.finfo(np.float32).tiny)
    label, confidence = predictions.inside.copy(), (predictions.inside_probability / total).astype(np.float32)
    second = predictions.second.copy()
    margin = ((predictions.inside_probability - predictions.second_probability) / total).astype(np.float32)
    label[trained], confidence[trained], second[trained], margin[trained] = transduced
    judged_by = np.full(len(label), "own" if out_of_fold is None else "folds", dtype=object)
    judged_by[held_out] = "held out"
    if out_of_fold is not None:
        predictions.put(trained, out_of_fold)
    judged = (predictions.inside_probability, predictions.outside, predictions.outside_probability)
    return CleanedLabels(label, confidence, second, margin, *judged, judged_by)


def _described(source: TableSource, examples: Examples) -> Record:
    """What `predict` needs to read other tables in the same way."""
    return {
        "table": str(source.table),
        "images": None if source.images is None else str(source.images),
        "features": None if source.features is None else str(source.features),
        "side": source.side,
        "reading": {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(source.reading).items()},
        "feature_names": list(examples.table.feature_names),
        "annotators": 0 if examples.table.votes is None else len(examples.table.votes.names),
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
