"""Prediction: label a new table by the classifier of a run on a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ltpll.backbones import Backbone, Embedder, Preprocessing
from ltpll.backbones.backbone import load_backbone
from ltpll.backbones.onnx_encoder import onnx_session
from ltpll.cleaning.dataset import Examples, TableSource
from ltpll.cleaning.feature_files import is_array
from ltpll.cleaning.results import Columns, rounded_column
from ltpll.columns import ColumnEncoder
from ltpll.committee import Committee
from ltpll.convert.json_formats import OPTIONS, is_tool_file, json_format
from ltpll.errors import InputError
from ltpll.estimator import PartialLabelClassifier
from ltpll.evaluation.set_predictions import PROBABILITIES_AT_ONCE
from ltpll.runs.checksums import read_checked
from ltpll.runs.run import Record
from ltpll.runs.run_files import RunFile
from ltpll.tables.opening import READABLE, is_pattern, open_table
from ltpll.tables.reading import Reading
from ltpll.training.checkpoint import read_checkpoint

ANNOTATION = ("task", "worker", "annotation")
LIMITS = ("excluded", "possible", "site")  # columns
FILES = ("taxonomy", "possible_at")
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
    read_before = _reading_of(before, was_json)
    if is_json or was_json:
        # Only what another file of the same kind needs; columns of a table have the usual names.
        of_kind = OPTIONS.get(json_format(table) or "", ()) if is_json and was_json else ()
        names_kept = [name for name in ("path", "control", "objects") if name in of_kind]
        same: dict[str, Any] = {name: getattr(read_before, name) for name in names_kept}
        read_before = replace(Reading(), **same)
    names: Sequence[str] = ()
    if is_folder:
        read_before, names = Reading(), ("path",)
    elif not is_json and (table.suffix.lower() in READABLE or is_pattern(table)):
        read_before = replace(read_before, sheet=_sheet_of(table, read_before.sheet))
        names = open_table(table, read_before.sheet).names
    # New examples need neither candidate sets nor true labels; sets are of the run's classes.
    changes: dict[str, Any] = {
        "classes": tuple(record["classes"]),
        "label": read_before.label if read_before.label in names else None,
        "features": named if named and images is None and not is_array(features) else None,
        **dict.fromkeys(("group", "top_k", "mass")),
        **dict.fromkeys(("class_columns", "probability_columns"), ()),
        **_set_limits(read_before, names),
    }
    # Without all three columns of annotations, there is one row per example; tasks may be its ids.
    if not all(getattr(read_before, name) in names for name in ANNOTATION):
        if read_before.task in names and read_before.id not in names:
            read_before = replace(read_before, id=read_before.task)
        changes |= {
            **dict.fromkeys(("annotators", *ANNOTATION)),
            "vote_weights": Reading.vote_weights,
        }
    if names:
        changes |= _optional_columns(read_before, names, images, features)
    return TableSource(
        table,
        replace(read_before, **changes),
        images,
        features,
        _preprocessing(before),
        stored_backbone(run, record),
        on_error,
        exact=before.get("exact") is True,
        encoder=encoder,
    )


def _sheet_of(table: Path, before: str | None) -> str | None:
    """The sheet of this name if a new table has it; otherwise, its only sheet is read."""
    with suppress(InputError):
        open_table(table, before)
        return before
    return None


def _reading_of(source: Record, is_json: bool) -> Reading:
    """How the table of a run was read; a record that does not say it is refused."""
    names = ("candidates", "separator", "id", "path", "split")
    optional = ("label", "control", *ANNOTATION, *LIMITS, *FILES)
    try:
        reading = Reading.of(source["reading"])
        reading.check(is_json=is_json)
        valid = all(isinstance(getattr(reading, name), str) for name in names)
        valid = valid and all(isinstance(getattr(reading, name), str | None) for name in optional)
    except (TypeError, ValueError, AttributeError):
        valid = False
    if not valid:
        unknown = "The record of the run does not say how its table was read"
        raise InputError(f"{unknown}: train it again with --fresh.")
    return reading


def _optional_columns(
    before: Reading, names: Sequence[str], images: Path | None, features: Path | None
) -> dict[str, Any]:
    """The columns that a new table may lack, if nothing is looked up by them.

    Without ids, examples are called by their paths or row numbers.
    """
    found: dict[str, Any] = {"split": before.split if before.split in names else Reading.split}
    if images is None and before.path not in names:
        found["path"] = None
    by_id = images is not None and before.path not in names
    by_id |= features is not None and not is_array(features)
    if not by_id and before.id not in names:
        found["id"] = None
    return found


def _set_limits(before: Reading, names: Sequence[str]) -> dict[str, Any]:
    """What limits the sets of a new table, which needs neither the columns nor the files for it."""
    limits = {what: name if (name := getattr(before, what)) in names else None for what in LIMITS}
    for what in FILES:
        path = getattr(before, what)
        limits[what] = path if path is not None and Path(path).is_file() else None
    if before.taxonomy is not None and limits["taxonomy"] is None and before.candidates in names:
        raise InputError(
            "The candidate sets of the new table cannot be read, because the taxonomy "
            f"{before.taxonomy} of the run is gone: restore it, or drop the column of sets, which "
            "predictions do not need."
        )
    if limits["site"] is None or limits["possible_at"] is None:
        limits["site"] = limits["possible_at"] = None
    return limits


def _preprocessing(source: Record) -> Preprocessing:
    """How the pictures of a run were scaled."""
    if source.get("preprocessing") is None:
        return Preprocessing(max(source["side"], 1))
    try:
        return Preprocessing.from_record(source["preprocessing"])
    except (TypeError, ValueError, AttributeError):
        unknown = "The record of the run does not say how its pictures were scaled"
        raise InputError(f"{unknown}: train it again with --fresh.") from None


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
    """Predict new examples.

    Args:
        run: The run folder.
        record: The record of the run.
        examples: The new examples, read from `source_for_new_table`.
        probabilities: Whether to add a column of probabilities for each class.
        device: "cpu", "cuda" or "auto".
        goal: "balanced" or "accuracy"; None for the goal of the run.

    Returns:
        Columns of equal length by name: label, confidence, runner-up and margin of every example,
        and, if the examples have candidate sets, the likeliest candidate.
    """
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
