"""Pipeline: train on the examples of a table, and leave a finished run in a folder."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ltpll.backbones.backbone import save_backbone
from ltpll.before_training import NEVER
from ltpll.cleaning.cleaning_job import cleaning_job
from ltpll.cleaning.dataset import Examples, TableSource, texts_of_rows
from ltpll.cleaning.settings import KINDS, Execution, TrainingSettings
from ltpll.cleaning.stored_tables import read_cleaned, store_pictures, store_tables
from ltpll.committee.training import EarlierCommittee
from ltpll.files import write_when_complete
from ltpll.runs.recording import begin_run, locked_for_training, round_floats
from ltpll.runs.run import Record, Run, damaged_files
from ltpll.runs.run_files import RunFile
from ltpll.training.callbacks import Progress
from ltpll.training.checkpoint import write_checkpoint


def table_run(
    out: str | Path,
    settings: TrainingSettings,
    examples: Examples,
    earlier: Run | None = None,
) -> Run:
    """The run of these settings on these examples, in the folder `out`; both are checked.

    It starts from the networks of an `earlier` one, if there is one that `can_start` allows.
    """
    settings.check(examples.candidates.classes)
    config: Record = asdict(settings)
    config["extras"] = list(settings.extras)
    # Settings that earlier versions did not have are left out where they change nothing.
    config["learner"] = "committee" if settings.uses_committee(examples) else "network"
    unused = {
        "learner": config["learner"] == "network",
        "backbone": settings.backbone is None,
        "finetune": settings.backbone is None,
        "truth_missing": settings.truth_missing == NEVER,
    }
    config = {name: value for name, value in config.items() if not unused.get(name)}
    data: Record = {"fingerprint": examples.fingerprint(), "texts": examples.fingerprint_of_texts()}
    data |= {"rows": len(examples), "classes": examples.candidates.n_classes}
    folder = Path(out).absolute()
    run = Run(folder.parent, {"experiment": "own", "data": data, **config}, folder.name)
    if earlier is not None:
        return replace(run, config={**run.config, "start": earlier.key})
    if settings.learner == "committee":
        return run
    return _as_of_version_0_2(run, examples) or run


def can_start(run: Run, earlier: Run, examples: Examples) -> bool:
    """Whether a run can start from a finished one: with the same settings, features and classes."""
    own, before = (
        {name: one for name, one in each.config.items() if name not in ("data", "start")}
        for each in (run, earlier)
    )
    if own != before or own.get("learner") != "committee" or not earlier.done:
        return False
    record, classes = earlier.result(), [str(name) for name in examples.candidates.classes]
    kept = bool(RunFile.MEMBERS.found_in(earlier.folder)) and record["classes"] == classes
    return kept and record.get("inputs") == examples.fingerprint_of_inputs()


def _as_of_version_0_2(run: Run, examples: Examples) -> Run | None:
    """The run in the folder, if it is this one as version 0.2 began it.

    The configs of that version did not hold the texts of a table, and there was no committee.
    """
    try:
        before = run.stored_config()
    except (OSError, ValueError):
        return None
    data = {name: value for name, value in run.config["data"].items() if name != "texts"}
    config = {name: value for name, value in run.config.items() if name != "learner"}
    if before != {**config, "data": data}:
        return None
    earlier = replace(run, config=before)
    if not earlier.done or damaged_files(run.folder):
        return earlier  # the texts are stored at the end of training
    same = texts_of_rows(read_cleaned(run.folder)) == texts_of_rows(examples.table)
    return earlier if same else None


def train_table_run(
    run: Run,
    source: TableSource,
    examples: Examples,
    settings: TrainingSettings,
    *,
    execution: Execution = Execution(),  # noqa: B008 (it is frozen)
    progress: Progress | None = None,
    earlier: Run | None = None,
) -> None:
    """Train a run to its end, and store what cleaning, prediction and reports need.

    An interrupted run is resumed. `progress` reports all training runs, and what was chosen. The
    run starts from the networks of an `earlier` one, if it was made so by `table_run`.

    Raises:
        InputError: The examples cannot be trained on, or another process is training the run.

    Examples:
        >>> from ltpll.cleaning.dataset import TableSource, read_examples
        >>> from ltpll.cleaning.settings import TrainingSettings
        >>> from ltpll.cleaning.stored_tables import read_cleaned
        >>> source, settings = TableSource(Path("birds.csv")), TrainingSettings(epochs=1, folds=2)
        >>> examples = read_examples(source)
        >>> run = table_run("my-run", settings, examples)
        >>> train_table_run(run, source, examples, settings)
        >>> len(read_cleaned("my-run").labels.label)
        60
    """
    # Everything is checked before the folder exists.
    is_committee = run.config.get("learner") == "committee"
    classifier = settings.classifier(execution, committee=is_committee)
    folds, workers = settings.folds, execution.workers
    how: dict[str, Any] = {"folds": folds, "workers": workers, "progress": progress}
    if earlier is not None:
        how["earlier"] = EarlierCommittee(earlier.folder, earlier.result()["committee"])
    job = cleaning_job(classifier, examples, **how)
    folder = run.folder
    with locked_for_training(run) as unfinished:
        if not unfinished:
            return
        begin_run(run, resumes=True)
        found = job.run(folder, run)
        if found is None:
            return
        classifier.save(folder / RunFile.CLASSIFIER)
        store_tables(folder, examples.table, found.labels)
        if (found.labels.judged_by != "own").all():
            shares = found.predictions.probabilities(classifier.temperature_)
            if shares is not None:  # they are not too many
                write = partial(np.save, arr=shares, allow_pickle=False)
                write_when_complete(folder / RunFile.PROBABILITIES, write)
        if source.images is not None:
            store_pictures(folder, source.images, examples.table, found.labels)
        if source.backbone is not None:
            # Prediction and export then need nothing but the run.
            save_backbone(source.backbone, folder / RunFile.BACKBONE)
        if examples.encoder is not None:
            values, arrays = examples.encoder.record()
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            write_checkpoint(folder / RunFile.COLUMNS, tensors, values)
        run.finish(
            {
                **round_floats(found.facts),
                "skipped": [list(problem) for problem in examples.problems],
                "source": _described(source, examples),
            }
        )
        for file in (RunFile.MISSING_FOLDS, RunFile.COMPARISON_FOLDS):
            for path in file.found_in(folder):
                path.unlink()


def _described(source: TableSource, examples: Examples) -> Record:
    """What `predict` needs to read other tables in the same way."""
    reading = {**asdict(source.reading), **examples.table.columns}
    images, features, backbone = source.images, source.features, source.backbone
    record: Record = {
        "table": str(source.table),
        "images": None if images is None else str(images),
        "features": None if features is None else str(features),
        "side": examples.x.shape[1] if examples.x.ndim == 4 else 0,
        "preprocessing": None if source.preprocessing is None else source.preprocessing.record(),
        "backbone": None,
        "reading": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in reading.items()
        },
        "feature_names": list(examples.table.feature_names),
    }
    if backbone is not None:
        record["backbone"] = {"name": backbone.name, "fingerprint": backbone.fingerprint()}
    if examples.x.dtype == np.float64:
        record["exact"] = True
    if examples.encoder is not None:
        kinds = examples.encoder.kinds or {}
        named = {kind: [name for name, own in kinds.items() if own == kind] for kind in KINDS}
        record["columns"] = {**named, "numbers": examples.encoder.numbers}
    return record
