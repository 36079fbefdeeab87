"""Training on own data: examples and settings turned into a finished run that predicts, cleans and reports by itself."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.cleaning.cross_validation import Watch, opinions_of_folds
from ltpll.cleaning.dataset import Examples, Source
from ltpll.cleaning.held_out import Judge
from ltpll.cleaning.results import Cleaning, keep_pictures, keep_tables, noteworthy
from ltpll.cleaning.set_predictions import Opinions, opinions
from ltpll.errors import InputError, shown
from ltpll.estimator import PartialLabelClassifier, channels_first
from ltpll.runs.recording import CHECKPOINT_SECONDS, circumstances, rounded, train_logged
from ltpll.runs.run import Record, Run
from ltpll.training.compatibility import check_data
from ltpll.training.distributed import World
from ltpll.validation import check_setting

MEASURED = 50  # times at most that a training is judged on its way
CLASSIFIER = "classifier.safetensors"


@dataclass(frozen=True)
class Settings:
    """How to train; what `PartialLabelClassifier` calls the same, and the number of folds for opinions on rows not trained on."""

    method: str = "corr"
    rebalancer: str = "none"  # recovers more labels than "records" on most tables that we tried (docs/own-data.md)
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
    folds: int = 5  # 0 or 1: none, so that a row's set has been trained on by whoever judges it

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Settings:
        """An unknown name, or a value of the wrong kind, is refused."""
        known = {one.name: one.default for one in fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise InputError(f"There is no setting {shown(name)} for own data; known: {', '.join(known)}.")
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
        own = {name: value for name, value in asdict(self).items() if name not in ("seed", "folds")}
        return PartialLabelClassifier(**own, random_state=self.seed, device=device, on_nan=on_nan, threads=threads)


def own_run(out: Path, settings: Settings, examples: Examples) -> Run:
    """The run of a folder; other settings or other data are another run, which the folder then refuses."""
    data = {"fingerprint": examples.fingerprint(), "rows": len(examples), "classes": examples.candidates.n_classes}
    own = asdict(settings)
    config = {
        "experiment": "own",
        "data": data,
        **own,
        "extras": list(settings.extras),
        "options": {k: dict(v) for k, v in settings.options.items()},
    }
    folder = Path(out).absolute()
    return Run(folder.parent, config, folder.name)


def train_own(
    run: Run,
    source: Source,
    examples: Examples,
    settings: Settings,
    *,
    device: str = "auto",
    on_nan: str = "stop",
    threads: int | str = "auto",
    watch: Watch,
    world: World | None = None,
    workers: int | None = None,
) -> None:
    """Train the run to its end, going on from wherever an interrupted one stopped; of several processes, the first one writes."""
    world = world or World()
    if world.agreed(run.done):
        return
    # Everything that can be refused is refused here, before the folder exists.
    chosen = examples.training()
    trained, held_out = np.flatnonzero(chosen), np.flatnonzero(~chosen)
    if len(trained) < 2:
        raise InputError(f"Only {len(trained)} of {len(examples)} rows are to be trained on: training needs at least two.")
    everything = len(held_out) == 0
    x = examples.x if everything else examples.x[trained]
    sets = examples.candidates if everything else examples.candidates.select(trained)
    labels = examples.table.labels
    rest = examples.x[held_out]
    judge = Judge(
        channels_first(rest) if rest.ndim == 4 else rest,
        None if everything else examples.candidates.select(held_out),
        None if labels is None else labels[held_out],
        None if labels is None else labels[trained],
    )
    classifier = settings.classifier(device, on_nan, threads)
    trainer, inputs, candidates = classifier.begin(x, sets, world)
    check_data(inputs, candidates, trainer.head)
    with run.locked() if world.first else nullcontext():
        if world.agreed(run.done):  # by another process, since this one looked
            return
        train_logged(
            run,
            trainer,
            inputs,
            candidates,
            judge,
            measure_every=max(1, trainer.epochs // MEASURED),
            checkpoint_every=1,
            checkpoint_seconds=CHECKPOINT_SECONDS,
            on_epoch=watch("training", trainer.epochs),
        )
        classifier.finish(trainer)
        if world.first:
            classifier.save(run.folder / CLASSIFIER)
        from_folds = None
        if settings.folds > 1:
            make = partial(settings.classifier, device, on_nan, threads)
            plan: Record = {"folds": settings.folds, "seed": settings.seed, "workers": workers}
            from_folds = opinions_of_folds(run.folder, make, x, sets, watch=watch, world=world, **plan)
        if not world.first:
            return
        own_opinion = opinions(classifier.predict_proba, examples.x, examples.candidates)
        seen = Opinions.nothing(len(examples))
        seen.put(np.arange(len(examples)), own_opinion)
        if from_folds:
            seen.put(trained, from_folds)
        cleaning = _cleaned(examples, trained, held_out, classifier.transduced_, own_opinion, seen, settings.folds > 1)
        keep_tables(run.folder, examples.table, cleaning)
        if source.images is not None:
            keep_pictures(run.folder, source.images, examples.table, noteworthy(cleaning))
        run.finish(
            {
                **circumstances(run, trainer),
                "processes": world.size,
                "classes": [str(name) for name in examples.candidates.classes],
                "class_prior": rounded(classifier.class_prior_.tolist()),
                "rows": {"all": len(examples), "trained": len(trained), "held_out": len(held_out)},
                "skipped": [list(problem) for problem in examples.problems],
                "source": _described(source, examples),
                "last": rounded(trainer.history[-1]),
                "curves": _curves(trainer.history),
            }
        )


def _cleaned(
    examples: Examples,
    trained: npt.NDArray[np.int64],
    held_out: npt.NDArray[np.int64],
    beliefs: tuple[npt.NDArray[Any], ...],
    own: Opinions,
    seen: Opinions,
    folds: bool,
) -> Cleaning:
    """Labels of trained rows are what training believes; of held-out rows the classifier's opinion among their candidates."""
    total = np.maximum(own.of_set, np.finfo(np.float32).tiny)
    label, confidence = own.inside.copy(), (own.inside_probability / total).astype(np.float32)
    second, margin = own.second.copy(), ((own.inside_probability - own.second_probability) / total).astype(np.float32)
    label[trained], confidence[trained], second[trained], margin[trained] = beliefs
    judged_by = np.full(len(examples), "folds" if folds else "own", dtype=object)
    judged_by[held_out] = "held out"
    return Cleaning(label, confidence, second, margin, seen.inside_probability, seen.outside, seen.outside_probability, judged_by)


def _described(source: Source, examples: Examples) -> Record:
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
    compact: Record = rounded(columns)
    return compact
