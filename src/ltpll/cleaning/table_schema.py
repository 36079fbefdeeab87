"""Shape: what the record and the tables of a run on own data must hold, looked at before anything is computed from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ltpll.runs.run import Record
from ltpll.runs.schema import are_figures, are_texts, is_number, is_whole

if TYPE_CHECKING:
    from ltpll.cleaning.results import Cleaned

SHARES = ("covering_rate", "accuracy", "balanced_accuracy", "target_recovery")


def problem_of_record(record: Record) -> str | None:
    """Why a record is none of a run on own data."""
    parts = {name: record.get(name) for name in ("config", "source", "rows", "last", "curves", "environment")}
    lacking = next((name for name, part in parts.items() if not isinstance(part, dict)), None)
    if lacking is not None:
        return f"no {lacking}"
    config, source, rows, last, curves = (record[name] for name in ("config", "source", "rows", "last", "curves"))
    classes = record.get("classes")
    if not are_texts(classes) or not classes or not are_figures(record.get("class_prior"), len(classes), missing=False):
        return "no classes, or no prior of each"
    if not all(isinstance(config.get(name), str) for name in ("method", "rebalancer")) or not are_texts(config.get("extras")):
        return "no method, rebalancer and extras"
    if not all(is_whole(rows.get(name)) for name in ("all", "trained", "held_out")) or not isinstance(record.get("skipped"), list):
        return "no numbers of rows"
    if not isinstance(source.get("table"), str) or not isinstance(source.get("reading"), dict):
        return "no table that it was read from"
    if not are_texts(source.get("feature_names")) or not is_whole(source.get("side")):
        return "no names of features, or no size of pictures"
    if not all(source.get(name, "") is None or isinstance(source.get(name), str) for name in ("images", "features")):
        return "no word on pictures or features"
    test = last.get("test", {})
    if not isinstance(test, dict) or not all(is_number(last["test"].get(name, 0)) for name in SHARES if test):
        return "held-out figures that are no numbers"
    if (test and "covering_rate" not in test) or ("accuracy" in test) != ("balanced_accuracy" in test):
        return "only some of the held-out figures"
    if not is_number(last.get("target_recovery", 0)):
        return "a target recovery that is no number"
    return _problem_of_curves(curves)


def _problem_of_curves(curves: dict[str, Any]) -> str | None:
    epochs, measured = curves.get("epoch"), curves.get("measured", [])
    for x in (epochs, measured):
        if not isinstance(x, list) or not all(is_whole(epoch) and epoch >= 0 for epoch in x):
            return "curves without epochs"
    if not epochs or not are_figures(curves.get("loss"), len(epochs), missing=False):
        return "no loss of each epoch"
    lines = [curves[name] for name in SHARES if name in curves]
    if not all(measured and are_figures(line, len(measured), missing=False) for line in lines):
        return "a curve without a number for each epoch"
    return None


def check_tables(run: Cleaned) -> None:
    """Refuse columns of several lengths, and numbers of classes or rows that there are not."""
    n, n_classes = len(run.ids), len(run.record["classes"])
    cleaning = run.cleaning
    columns = [run.true, *(getattr(cleaning, name) for name in cleaning.__dataclass_fields__)]
    if (
        n == 0
        or any(column.shape != (n,) for column in columns)
        or any(one is not None and len(one) != n for one in (run.paths, run.splits))
    ):
        raise ValueError("its columns have several lengths")
    if len(run.offsets) != n + 1 or run.offsets[0] != 0 or (np.diff(run.offsets) < 1).any() or run.offsets[-1] != len(run.candidates):
        raise ValueError("its sets do not fit its rows")
    _check_numbers(run.candidates, 0, n_classes, "candidates")
    for name in ("label", "runner_up", "outside"):
        _check_numbers(getattr(cleaning, name), -1 if name == "outside" else 0, n_classes, name)
    for name in ("confidence", "margin", "inside_probability", "outside_probability"):
        shares = getattr(cleaning, name)
        if shares.dtype.kind != "f" or not np.isfinite(shares).all():
            raise ValueError(f"its column {name} holds no numbers")
    if (cleaning.outside[cleaning.issue] < 0).any():
        raise ValueError("it suspects sets that hold every class")
    if not all(isinstance(text, str) for column in (run.ids, cleaning.judged_by) for text in column.tolist()):
        raise ValueError("some examples have no name")
    for column in (run.paths, run.splits):
        if column is not None and not all(text is None or isinstance(text, str) for text in column.tolist()):
            raise ValueError("its paths or splits are no text")
    if not all(label is None or (is_whole(label) and 0 <= label < n_classes) for label in run.true.tolist()):
        raise ValueError("its true labels are no classes")
    if run.votes is not None:
        _check_numbers(run.votes.rows, 0, n, "row")
        _check_numbers(run.votes.labels, 0, n_classes, "label")
        if not len(run.votes.rows) or not all(isinstance(name, str) for name in run.votes.annotators.tolist()):
            raise ValueError("its votes have no annotators")
    if not all(is_whole(row) and isinstance(picture, bytes) for row, picture in run.pictures.items()):
        raise ValueError("its pictures are none")


def _check_numbers(values: npt.NDArray[Any], least: int, end: int, name: str) -> None:
    if values.dtype.kind != "i" or (len(values) and not least <= int(values.min()) <= int(values.max()) < end):
        raise ValueError(f"its column {name} holds numbers that are none of the {end}")
