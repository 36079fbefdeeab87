"""Schema: what the record of each kind of run must hold; every record is checked when read."""

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
    """The kind of run that a config describes; None for one of somebody else's program."""
    if config.get("experiment") in ("own", "images"):
        return Kind.TABLE if config["experiment"] == "own" else Kind.BENCHMARK
    return Kind.STUDY if "study" in config else None


def record_problem(record: Record, kind: Kind | None) -> str | None:
    """What is wrong with a record, if anything, as the object of "it has"."""
    if kind is None:
        return None
    if kind_of_run(record["config"]) is not kind:
        return f"a config that is not that of {kind}"
    return CHECKS[kind](record) if kind in CHECKS else None


# ---- runs on a table ---------------------------------------------------------------------------


def _table_problem(record: Record) -> str | None:
    for name in ("config", "source", "rows", "last", "curves", "environment"):
        if not isinstance(record.get(name), dict):
            return f"no {name}"
    config, source, classes = record["config"], record["source"], record.get("classes", [])
    n_classes = len(classes) if are_texts(classes) else 0
    if not n_classes or not are_figures(record.get("class_prior"), n_classes, missing=False):
        return "no classes, or no prior for each of them"
    if not _hold(config, is_text, "method", "rebalancer") or not are_texts(config.get("extras")):
        return "no method, rebalancer and extras"
    rows = _hold(record["rows"], is_whole_number, "all", "trained", "held_out")
    if not rows or not isinstance(record.get("skipped"), list):
        return "no numbers of rows"
    paths = [source.get("table"), source.get("images", 0), source.get("features", 0)]
    parts = [source.get(name) for name in ("reading", "preprocessing", "backbone")]
    if not (
        all(isinstance(path, str | None) for path in paths)
        and all(isinstance(part, dict | None) for part in parts)
        and None not in (paths[0], parts[0])
        and are_texts(source.get("feature_names"))
        and is_whole_number(source.get("side"))
        and is_whole_number(record.get("texts_cut", 0))
    ):
        return "no readable account of its table, pictures or features"
    return (
        _held_out_problem(record["last"])
        or prior_problem(record, n_classes)
        or _judgement_problem(record, n_classes)
        or _committee_problem(record)
        or (None if "committee" in record else _curves_problem(record["curves"]))
    )


def _held_out_problem(last: Record) -> str | None:
    test = last.get("test", {})
    by_goal = test.get("by_goal", {}) if isinstance(test, dict) else None
    several = [test, *by_goal.values()] if isinstance(by_goal, dict) else [None]
    for figures in several:
        if not isinstance(figures, dict) or not all(
            is_number(figures.get(name, 0)) for name in TABLE_CURVES
        ):
            return "held-out figures that are not numbers"
        labelled = {"accuracy" in one for one in (test, figures)} | {"balanced_accuracy" in figures}
        if (figures and "covering_rate" not in figures) or len(labelled) > 1:
            return "only some of the held-out figures"
    return None if is_number(last.get("target_recovery", 0)) else "no target recovery"


def _committee_problem(record: Record) -> str | None:
    """What is wrong with the weights of a committee, and what it knows; networks have neither."""
    weights, found = record.get("committee"), record.get("information")
    if weights is None and found is None:
        return None
    names = ("nats", "standard_error", "possible")
    if not isinstance(weights, dict) or not all(map(is_number, weights.values())):
        return "a committee without weights"
    by_class = record.get("information_by_class", [])
    if not isinstance(record.get("choice"), str) or not are_figures(by_class, None, missing=True):
        return "a committee without a sentence about it"
    if not isinstance(found, dict) or not _hold(found, is_number, *names):
        return "a committee without its information"
    return None


def _curves_problem(curves: Record) -> str | None:
    epochs, measured = curves.get("epoch", []), curves.get("measured", [])
    for numbers in (epochs, measured):
        if not are_figures(numbers, None, missing=False) or not all(map(is_whole_number, numbers)):
            return "curves without epochs"
    lines = [curves[name] for name in TABLE_CURVES if name in curves]
    if not epochs or min(epochs + measured) < 0 or (lines and not measured):
        return "curves without epochs"
    if not are_figures(curves.get("loss"), len(epochs), missing=False):
        return "no loss for each epoch"
    if not all(are_figures(line, len(measured), missing=False) for line in lines):
        return "a curve without a number for each epoch"
    return None


def _judgement_problem(record: Record, n_classes: int) -> str | None:
    """What is wrong with the judgement of the sets, which runs without folds may lack."""
    judgement = record.get("judgement")
    if judgement is None:
        return None
    if not _hold(judgement, is_number, "temperature", "missing", "covering", "chance"):
        return "a judgement without its figures"
    unknown, calibration = judgement.get("not_judged"), judgement.get("calibration", {})
    ambiguous = judgement.get("ambiguous")
    names = ("rows", "accuracy", "mean_confidence", "calibration_error")
    if not (
        are_figures(judgement.get("recovered"), n_classes, missing=False)
        and isinstance(unknown, list)
        and all(are_figures(one, 3, missing=False) for one in unknown)
        and all(all(map(is_whole_number, one)) and 0 <= one[0] < n_classes for one in unknown)
        and (ambiguous is None or _hold(ambiguous, is_number, "rows", "expected", "guess"))
        and isinstance(calibration, dict)
        and all(_hold(one, is_number, *names) for one in calibration.values())
        and all(
            one.get("ranking") is None or is_number(one["ranking"]) for one in calibration.values()
        )
    ):
        return "a judgement without figures for its classes, ambiguous rows or calibration"
    return None


# ---- what all kinds of runs may hold -----------------------------------------------------------


def prior_problem(record: Record, n_classes: int) -> str | None:
    """What is wrong with the prior of the sets, and the sentence about it; both may be missing."""
    prior, missing = record.get("prior"), record.get("truth_missing", 0.0)
    if not is_number(missing) or not 0 <= missing < 1:
        return "a share of sets without the true label that is not a share"
    if not isinstance(prior, dict | None) or not isinstance(record.get("choice"), str | None):
        return "a prior that is not a mapping, or a choice that is not text"
    if prior is None:
        return None
    bounds = (prior.get(name) for name in ("estimate", "lower", "upper"))
    if not all(are_figures(one, n_classes, missing=False) for one in bounds):
        return f"no estimate and bounds of the prior for each of its {n_classes} classes"
    if not _hold(prior, is_text, "regime", "because"):
        return "no reason for the estimate of its prior"
    return None


# What finds a problem in the record of a run of each kind; another package may add its kinds.
CHECKS: dict[Kind, Callable[[Record], str | None]] = {Kind.TABLE: _table_problem}


# ---- values ------------------------------------------------------------------------------------


def _hold(entries: Any, is_kind: Callable[[Any], bool], *names: str) -> bool:
    """Whether this is a mapping whose entries of these names are all of a kind."""
    return isinstance(entries, dict) and all(is_kind(entries.get(name)) for name in names)


def is_text(value: Any) -> bool:
    return isinstance(value, str)


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
    return isinstance(values, list) and all(map(is_text, values))


def are_figures(values: Any, n: int | None, *, missing: bool) -> bool:
    """Whether this is a list of n numbers, or of any length; with `missing`, some may be None."""
    if not isinstance(values, list) or (n is not None and len(values) != n):
        return False
    return all(is_number(value) or (missing and value is None) for value in values)
