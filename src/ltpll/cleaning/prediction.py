"""Prediction: label a new table by the classifier of a run on a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ltpll.backbones import Backbone, Embedder, Preprocessing
from ltpll.backbones.backbone import load_backbone
from ltpll.backbones.onnx_models import onnx_session
from ltpll.cleaning.dataset import Examples, TableSource, is_array
from ltpll.cleaning.results import Columns, rounded_column
from ltpll.columns import ColumnEncoder
from ltpll.committee import Committee
from ltpll.convert.open import OPTIONS, is_tool_file, json_format
from ltpll.errors import InputError
from ltpll.estimator import PartialLabelClassifier
from ltpll.evaluation.set_predictions import PROBABILITIES_AT_ONCE
from ltpll.runs.run import Record, read_checked
from ltpll.runs.run_files import RunFile
from ltpll.tables.opening import READABLE, open_table
from ltpll.tables.reading import Reading
from ltpll.training.checkpoint import read_checkpoint

ANNOTATION = ("task", "worker", "annotation")
CHECKED = 64  # random inputs with which an exported model is checked


def source_for_new_table(
    run: Path,
    record: Record,
    table: Path,
    images: Path | None,
    features: Path | None,
    on_error: str,
) -> TableSource:
    """A source of new examples that are read in the same way as those of this run."""
    before, is_folder = record["source"], table.is_dir()
    if is_folder and features is None:
        images = images or table
    if (images is None) != (before["images"] is None):
        what = "pictures: give --images DIR" if images is None else "features: leave --images out"
        raise InputError(f"The run was trained on {what}.")
    named, encoder = tuple(before["feature_names"]), stored_encoder(run, record)
    beside = encoder is not None and encoder.n_beside > 0
    if encoder is not None and not beside and features is not None:
        raise InputError("The run was trained on the columns of its table: leave --features out.")
    if images is None and features is None and (beside or not named):
        trained = "The run was trained on a file of features"
        raise InputError(f"{trained}: give --features FILE with the features of the new examples.")
    was_json, is_json = (is_tool_file(Path(name)) for name in (before["table"], table))
    unknown = "The record of the run does not say how its table or its pictures were read"
    try:
        reading = Reading.of(before["reading"])
        reading.check(is_json=was_json)
        preprocessing = Preprocessing(max(before["side"], 1))
        if before.get("preprocessing") is not None:
            preprocessing = Preprocessing.from_record(before["preprocessing"])
    except (TypeError, ValueError, AttributeError):
        raise InputError(f"{unknown}: train it again with --fresh.") from None
    if is_json or was_json:
        # Only what another file of the same kind needs; columns of a table have the usual names.
        of_kind = OPTIONS.get(json_format(table) or "", ()) if is_json and was_json else ()
        names_kept = [name for name in ("path", "control") if name in of_kind]
        same: dict[str, Any] = {name: getattr(reading, name) for name in names_kept}
        reading = Reading(**same)
    names: Sequence[str] = ()
    if is_folder:
        reading, names = Reading(), ("path",)
    elif not is_json and table.suffix.lower() in READABLE:
        try:
            names = open_table(table, reading.sheet).names
        except InputError:  # it has no sheet of this name: its only one is read
            reading = replace(reading, sheet=None)
            names = open_table(table).names
    by_column = features is not None and not is_array(features)
    by_id = by_column or (images is not None and reading.path not in names)
    reading = replace(
        _for_new_table(reading, names, by_id=by_id, by_path=images is not None),
        classes=tuple(record["classes"]),
        features=named if named and images is None and not is_array(features) else None,
    )
    how: dict[str, Any] = {"exact": before.get("exact") is True, "encoder": encoder}
    backbone = stored_backbone(run, record)
    return TableSource(table, reading, images, features, preprocessing, backbone, on_error, **how)


def _for_new_table(before: Reading, names: Sequence[str], *, by_id: bool, by_path: bool) -> Reading:
    """How a new table with these columns, if any, is read; it needs neither sets nor true labels.

    Other files are looked up by ids or by paths, so that it needs these.
    """
    changes: dict[str, Any] = {
        **dict.fromkeys(("group", "top_k", "mass")),
        **dict.fromkeys(("class_columns", "probability_columns"), ()),
        "label": before.label if before.label in names else None,
    }
    if before.taxonomy is not None and not Path(before.taxonomy).is_file():
        changes["taxonomy"] = None
    if "taxonomy" in changes and before.candidates in names:
        raise InputError(
            "The candidate sets of the new table cannot be read, because the taxonomy "
            f"{before.taxonomy} of the run is gone: restore it, or drop the column of sets, which "
            "predictions do not need."
        )
    # Without all three columns of annotations, there is one row per example; tasks may be its ids.
    if not all(getattr(before, name) in names for name in ANNOTATION):
        if before.task in names and before.id not in names:
            before = replace(before, id=before.task)
        changes |= dict.fromkeys(("annotators", *ANNOTATION))
        changes["vote_weights"] = Reading.vote_weights
    # Without ids, examples are called by their paths or row numbers.
    if names and before.split not in names:
        changes["split"] = Reading.split
    if names and not by_path and before.path not in names:
        changes["path"] = None
    if names and not by_id and before.id not in names:
        changes["id"] = None
    return replace(before, **changes)


def stored_backbone(run: Path, record: Record) -> Backbone | None:
    """The backbone whose features a run was trained on, if any; a damaged one is refused."""
    if record["source"].get("backbone") is None:
        return None
    read_checked(run / RunFile.BACKBONE)
    return load_backbone(run / RunFile.BACKBONE)


def stored_encoder(run: Path, record: Record) -> ColumnEncoder | None:
    """What turned the columns of a run's table into numbers, if something had to."""
    if record["source"].get("columns") is None:
        return None
    read_checked(run / RunFile.COLUMNS)
    tensors, values = read_checkpoint(run / RunFile.COLUMNS, advice="train again with --fresh")
    return ColumnEncoder.from_record(
        values, {name: tensor.numpy() for name, tensor in tensors.items()}
    )


def load_classifier(run: Path, record: Record, device: str) -> PartialLabelClassifier | Committee:
    """Load the classifier of a finished run; a damaged one, or that of another run, is refused."""
    path = run / RunFile.CLASSIFIER
    read_checked(path)
    if "committee" in record:
        return Committee.load(path, device)
    return PartialLabelClassifier.load(path, device)


def prediction_columns(
    run: Path,
    record: Record,
    examples: Examples,
    *,
    probabilities: bool,
    device: str,
    goal: str | None = None,
) -> Columns:
    """Predict new examples, from `source_for_new_table`; None is the goal of the run."""
    classifier = load_classifier(run, record, device)
    if goal is not None:
        classifier.set_params(goal=goal)
    names = np.asarray(record["classes"], dtype=object)
    x, sets, n = examples.x, examples.table.candidates, len(examples)
    numbers, shares = np.zeros((n, 2), dtype=np.int64), np.zeros((n, 2), dtype=np.float32)
    inside = np.zeros(n, dtype=np.int64)
    every = np.zeros((n, len(names)) if probabilities else (0, 0), dtype=np.float32)
    for rows in np.array_split(np.arange(n), max(1, n * len(names) // PROBABILITIES_AT_ONCE)):
        found = torch.from_numpy(classifier.predict_proba(x[rows[0] : rows[-1] + 1]))
        top, labels = found.topk(2, dim=1)
        numbers[rows], shares[rows] = labels.numpy(), top.numpy()
        if sets is not None:
            inside[rows] = found.masked_fill(~sets[torch.from_numpy(rows)], -1.0).argmax(1).numpy()
        if probabilities:
            every[rows] = found.numpy()
    columns: Columns = {"id": examples.table.ids}
    paths = examples.table.paths
    if paths is not None and not np.array_equal(paths, examples.table.ids):
        columns["path"] = paths
    columns |= {
        "label": names[numbers[:, 0]],
        "confidence": rounded_column(shares[:, 0]),
        "runner_up": names[numbers[:, 1]],
        "margin": rounded_column(shares[:, 0] - shares[:, 1]),
    }
    if sets is not None:
        columns |= {"in_set": inside == numbers[:, 0], "label_in_set": names[inside]}
    if probabilities:
        columns |= {f"p({name})": rounded_column(every[:, c]) for c, name in enumerate(names)}
    return columns


def onnx_difference(
    classifier: PartialLabelClassifier | Committee, path: Path, backbone: Backbone | None = None
) -> float | None:
    """The largest difference between an exported model and ours on random inputs.

    It is that of logits, or of the probabilities of a committee. It is None without onnxruntime.
    """
    if find_spec("onnxruntime") is None:
        return None
    session = onnx_session(path.read_bytes(), path.name)
    rng, shape = np.random.default_rng(0), (CHECKED, *classifier.input_shape_)
    if backbone is not None:
        shape = (CHECKED // 8, 3, *(backbone.preprocessing.side,) * 2)
    x: Any = rng.integers(0, 256, shape) if len(shape) == 4 else rng.normal(size=shape)
    x = x.astype(np.uint8 if len(shape) == 4 else np.float32)
    # float32 would blur some features
    kind: Any = np.float64 if session.get_inputs()[0].type == "tensor(double)" else np.float32
    if len(shape) == 2 and (kind is np.float64 or isinstance(classifier, Committee)):
        described = json.loads(session.get_modelmeta().custom_metadata_map["preprocessing"])
        x = x * np.asarray(described["std"]) + np.asarray(described["mean"])
        x = x.astype(kind)
    logits, probabilities = session.run(None, {"x": x.astype(kind)})
    if backbone is not None:
        x = Embedder(backbone, "cpu")(x.transpose(0, 2, 3, 1))
    if isinstance(classifier, Committee):
        return float(np.abs(probabilities - classifier.predict_proba(x)).max())
    ours = classifier.decision_function(x)
    return float(np.abs((logits[:, 1] - logits[:, 0] if ours.ndim == 1 else logits) - ours).max())
