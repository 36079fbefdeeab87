"""Shape: what a run's record must hold to be shown, looked at before anything is computed from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ltpll.errors import InputError, shown

GROUPS = ("many", "medium", "few")
CURVES = ("target_recovery", "mean_target_distance", "prior_distance")


def check_record(record: dict[str, Any]) -> None:
    """Refuse a record that was damaged, or written by hand, before it fails somewhere inside a page."""
    problem = _problem(record)
    if problem is not None:
        raise InputError(f"The record {shown(record.get('key', 'without a key'))} has {problem}: leave the run out, or make it again.")


def _problem(record: dict[str, Any]) -> str | None:
    config, last, best = (record.get(name) for name in ("config", "last", "best"))
    if not isinstance(config, dict) or not isinstance(last, dict) or not isinstance(best, dict):
        return "no config, no last epoch or no best epoch"
    if not isinstance(config.get("method"), str) or not isinstance(config.get("rebalancer"), str):
        return "no method or no rebalancer in its config"
    if not is_whole(config.get("seed")) or not are_texts(config.get("extras", [])):
        return "no seed, or extras that are no names, in its config"
    posthoc = record.get("posthoc", [])
    if not are_texts(posthoc):
        return "post-hoc rows that are no names"
    for row in ("test", *posthoc):
        if (problem := _row_problem(last.get(row), best.get(row), row)) is not None:
            return f"{problem} in the row {shown(row)}"
    n_classes = len(last["test"]["per_class"])
    if any(len(last[row]["per_class"]) != n_classes for row in posthoc):
        return "rows of several numbers of classes"
    for where, name in (
        (last, "prior"),
        (last, "mean_target"),
        (record, "class_counts"),
        *((last[row], "mean_prediction") for row in ("test", *posthoc)),
    ):
        if where.get(name) is not None and not are_figures(where[name], n_classes, missing=name == "mean_prediction"):
            return f"no number for each of its {n_classes} classes in {name}"
    counts = record.get("class_counts")
    if counts and (min(counts) < 0 or sum(counts) <= 0):
        return "class_counts that no classes have"
    if record.get("classes") and (not isinstance(record["classes"], list) or len(record["classes"]) != n_classes):
        return f"no name for each of its {n_classes} classes"
    return _problem_beside(record, last, ("test", *posthoc))


def _row_problem(last: Any, best: Any, row: str) -> str | None:
    if not isinstance(last, dict) or not isinstance(best, dict) or not isinstance(best.get(row), dict):
        return "no figures"
    if not is_number(last.get("balanced_accuracy")) or not is_number(best[row].get("balanced_accuracy")):
        return "no balanced accuracy"
    if not all(group in last and (last[group] is None or is_number(last[group])) for group in GROUPS):
        return "no figures of the groups many, medium and few"
    if not isinstance(last.get("per_class"), list) or not last["per_class"] or not are_figures(last["per_class"], None, missing=True):
        return "no figures of the classes"
    return None


def _problem_beside(record: dict[str, Any], last: dict[str, Any], rows: Sequence[str]) -> str | None:
    """Of what may be missing."""
    if last.get("target_recovery") is not None and not is_number(last["target_recovery"]):
        return "a target recovery that is no number"
    if not is_number(record.get("seconds", 0)):
        return "seconds that are no number"
    if not isinstance(record.get("environment", {}), dict):
        return "an environment that is no list of entries"
    shots = record.get("shots")
    if shots and not (isinstance(shots, dict) and is_number(shots.get("many")) and is_number(shots.get("few"))):
        return "bounds of many and few that are no numbers"
    curves = record.get("curves", {})
    if not isinstance(curves, dict) or not isinstance(curves.get("accuracy", {}), dict):
        return "curves that are none"
    epochs = curves.get("epoch", [])
    if not isinstance(epochs, list) or not all(is_whole(epoch) for epoch in epochs):
        return "curves without epochs"
    lines = [curves.get(name) for name in CURVES] + [curves.get("accuracy", {}).get(row) for row in rows]
    if not all(line is None or are_figures(line, len(epochs), missing=True) for line in lines):
        return "a curve without a number for each epoch"
    return None


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e100 and math.isfinite(value)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def are_figures(values: Any, n: int | None, *, missing: bool) -> bool:
    """Whether this is a list of n numbers; some may be missing."""
    if not isinstance(values, list) or (n is not None and len(values) != n):
        return False
    return all(is_number(value) or (missing and value is None) for value in values)
