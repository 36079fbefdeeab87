"""Schema: what the record of each kind of run must hold; every record is checked before anything is computed from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

Record = dict[str, Any]
TABLE_CURVES = ("covering_rate", "accuracy", "balanced_accuracy", "target_recovery")


class Kind(StrEnum):
    """The kinds of runs whose records have a schema."""

    TABLE = "a run on a table"
    BENCHMARK = "a benchmark run"
    STUDY = "a run of a study"


def kind_of_run(config: Mapping[str, Any]) -> Kind | None:
    """The kind of run that a config describes; None for a run of somebody else's program, whose record may hold anything."""
    if config.get("experiment") in ("own", "images"):
        return Kind.TABLE if config["experiment"] == "own" else Kind.BENCHMARK
    return Kind.STUDY if "study" in config else None


def record_problem(record: Record, kind: Kind | None) -> str | None:
    """What is wrong with the record of a run of some kind, as the object of "it has"; None if nothing is wrong."""
    if kind is None:
        return None
    if kind_of_run(record["config"]) is not kind:
        return f"a config that is not that of {kind}"
    return CHECKS[kind](record) if kind in CHECKS else None


# ---- runs on a table --------------------------------------------------------------------------------------------------


def _table_problem(record: Record) -> str | None:
    parts = {
        name: record.get(name)
        for name in ("config", "source", "rows", "last", "curves", "environment")
    }
    missing = next((name for name, part in parts.items() if not isinstance(part, dict)), None)
    if missing is not None:
        return f"no {missing}"
    config, source, rows, last, curves = (
        record[name] for name in ("config", "source", "rows", "last", "curves")
    )
    classes = record.get("classes")
    if (
        not are_texts(classes)
        or not classes
        or not are_figures(record.get("class_prior"), len(classes), missing=False)
    ):
        return "no classes, or no prior for each of them"
    if not all(
        isinstance(config.get(name), str) for name in ("method", "rebalancer")
    ) or not are_texts(config.get("extras")):
        return "no method, rebalancer and extras"
    if not all(
        is_whole_number(rows.get(name)) for name in ("all", "trained", "held_out")
    ) or not isinstance(record.get("skipped"), list):
        return "no numbers of rows"
    if not isinstance(source.get("table"), str) or not isinstance(source.get("reading"), dict):
        return "no path of its table, or no account of how it was read"
    if not are_texts(source.get("feature_names")) or not is_whole_number(source.get("side")):
        return "no feature names, or no size of pictures"
    if not all(
        source.get(name, "") is None or isinstance(source.get(name), str)
        for name in ("images", "features")
    ):
        return "paths of pictures or features that are not text"
    if not all(isinstance(source.get(name), dict | None) for name in ("preprocessing", "backbone")):
        return "an unreadable account of how pictures were scaled or of the pretrained network"
    test = last.get("test", {})
    by_goal = test.get("by_goal", {}) if isinstance(test, dict) else None
    if not isinstance(by_goal, dict) or not all(
        isinstance(figures, dict) for figures in by_goal.values()
    ):
        return "held-out figures that are not numbers"
    for figures in (test, *by_goal.values()):
        if not all(is_number(figures.get(name, 0)) for name in TABLE_CURVES):
            return "held-out figures that are not numbers"
        if (figures and "covering_rate" not in figures) or ("accuracy" in figures) != (
            "balanced_accuracy" in figures
        ):
            return "only some of the held-out figures"
    if any(("accuracy" in figures) != ("accuracy" in test) for figures in by_goal.values()):
        return "only some of the held-out figures"
    if (
        problem := prior_problem(record, len(classes)) or _judgement_problem(record, len(classes))
    ) is not None:
        return problem
    if not is_number(last.get("target_recovery", 0)):
        return "a target recovery that is not a number"
    epochs, measured = curves.get("epoch"), curves.get("measured", [])
    for numbers in (epochs, measured):
        if not isinstance(numbers, list) or not all(
            is_whole_number(epoch) and epoch >= 0 for epoch in numbers
        ):
            return "curves without epochs"
    if not epochs or not are_figures(curves.get("loss"), len(epochs), missing=False):
        return "no loss for each epoch"
    lines = [curves[name] for name in TABLE_CURVES if name in curves]
    if not all(measured and are_figures(line, len(measured), missing=False) for line in lines):
        return "a curve without a number for each epoch"
    return None


def _judgement_problem(record: Record, n_classes: int) -> str | None:
    """What is wrong with the judgement of the sets; runs without folds and held-out rows have none."""
    judgement = record.get("judgement")
    if judgement is None:
        return None
    if not isinstance(judgement, dict) or not all(
        is_number(judgement.get(n)) for n in ("temperature", "missing", "covering", "chance")
    ):
        return "a judgement without its figures"
    if not are_figures(judgement.get("recovered"), n_classes, missing=False):
        return "a judgement without the recovered rows of each class"
    unknown = judgement.get("not_judged")
    if not isinstance(unknown, list) or not all(
        isinstance(one, list)
        and len(one) == 3
        and all(map(is_whole_number, one))
        and 0 <= one[0] < n_classes
        for one in unknown
    ):
        return "a judgement that does not name the classes it leaves out"
    inside, calibration = judgement.get("ambiguous"), judgement.get("calibration", {})
    if inside is not None and not (
        isinstance(inside, dict)
        and all(is_number(inside.get(n)) for n in ("rows", "expected", "guess"))
    ):
        return "a judgement without figures for ambiguous rows"
    names = ("rows", "accuracy", "mean_confidence", "calibration_error")
    if not isinstance(calibration, dict) or not all(
        isinstance(one, dict)
        and all(is_number(one.get(name)) for name in names)
        and (one.get("ranking") is None or is_number(one["ranking"]))
        for one in calibration.values()
    ):
        return "a calibration without its figures"
    return None


# ---- what both kinds of runs may hold ----------------------------------------------------------------------------------


def prior_problem(record: Record, n_classes: int) -> str | None:
    """What is wrong with the prior that was read off the sets, and with the sentence about it; older records have neither."""
    prior = record.get("prior")
    missing = record.get("truth_missing", 0.0)
    if isinstance(missing, bool) or not isinstance(missing, (int, float)) or not 0 <= missing < 1:
        return "a share of sets without the true label that is not a share"
    if not isinstance(prior, (dict, type(None))) or not isinstance(
        record.get("choice", ""), (str, type(None))
    ):
        return "a prior that is not a mapping, or a choice that is not text"
    if prior is None:
        return None
    if not all(
        are_figures(prior.get(name), n_classes, missing=False)
        for name in ("estimate", "lower", "upper")
    ):
        return f"no estimate and bounds of the prior for each of its {n_classes} classes"
    if not all(isinstance(prior.get(name), str) for name in ("regime", "because")):
        return "no reason for the estimate of its prior"
    return None


# What finds a problem in the record of a run of each kind; another package may add the kinds that it writes.
CHECKS: dict[Kind, Callable[[Record], str | None]] = {Kind.TABLE: _table_problem}


# ---- values -----------------------------------------------------------------------------------------------------------


def is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) < 1e100
        and math.isfinite(value)
    )


def is_whole_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def are_figures(values: Any, n: int | None, *, missing: bool) -> bool:
    """Whether this is a list of n numbers (None: of any length); with `missing`, entries may be None."""
    if not isinstance(values, list) or (n is not None and len(values) != n):
        return False
    return all(is_number(value) or (missing and value is None) for value in values)
