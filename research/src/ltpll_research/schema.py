"""Schema: what the record of a benchmark run or of a run of a study must hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ltpll.errors import InputError, shown
from ltpll.runs.schema import (
    Kind,
    Record,
    are_figures,
    are_texts,
    is_number,
    is_whole_number,
    kind_of_run,
    prior_problem,
)

GROUPS = ("many", "medium", "few")
BENCHMARK_CURVES = ("target_recovery", "mean_target_distance", "prior_distance")


def check_record(record: Record) -> None:
    """Refuse a record that cannot be compared with those of other benchmark runs and studies.

    Args:
        record: The record of a finished run.

    Raises:
        InputError: The record lacks something that its schema requires, or is that of a run on a table.

    Examples:
        >>> check_record(Run.open("ltpll-runs/images/0fa6e60ccbdf").result())
    """
    config = record.get("config")
    if not isinstance(config, dict):
        problem: str | None = "no config"
    else:
        problem = (
            f"the config of {Kind.TABLE}"
            if kind_of_run(config) is Kind.TABLE
            else benchmark_problem(record)
        )
    if problem is not None:
        raise InputError(
            f"The record {shown(record.get('key', 'without a key'))} has {problem}: leave the run out, or run it again."
        )


def benchmark_problem(record: Record) -> str | None:
    config, last, best = (record.get(name) for name in ("config", "last", "best"))
    if not isinstance(config, dict) or not isinstance(last, dict) or not isinstance(best, dict):
        return "no last epoch or no best epoch"
    if not isinstance(config.get("method"), str) or not isinstance(config.get("rebalancer"), str):
        return "no method or no rebalancer in its config"
    if not is_whole_number(config.get("seed")) or not are_texts(config.get("extras", [])):
        return "no seed, or extras that are not names, in its config"
    posthoc = record.get("posthoc", [])
    if not are_texts(posthoc):
        return "post-hoc rows that are not names"
    for row in ("test", *posthoc):
        if (problem := _row_problem(last.get(row), best.get(row), row)) is not None:
            return f"{problem} in the row {shown(row)}"
    n_classes = len(last["test"]["per_class"])
    if any(len(last[row]["per_class"]) != n_classes for row in posthoc):
        return "rows with different numbers of classes"
    for where, name in (
        (last, "prior"),
        (last, "mean_target"),
        (record, "class_counts"),
        *((last[row], "mean_prediction") for row in ("test", *posthoc)),
    ):
        if where.get(name) is not None and not are_figures(
            where[name], n_classes, missing=name == "mean_prediction"
        ):
            return f"no number for each of its {n_classes} classes in {name}"
    counts = record.get("class_counts")
    if counts and (min(counts) < 0 or sum(counts) <= 0):
        return "impossible class_counts"
    if record.get("classes") and (
        not isinstance(record["classes"], list) or len(record["classes"]) != n_classes
    ):
        return f"no name for each of its {n_classes} classes"
    return prior_problem(record, n_classes) or _optional_problem(record, last, ("test", *posthoc))


def _row_problem(last: Any, best: Any, row: str) -> str | None:
    if (
        not isinstance(last, dict)
        or not isinstance(best, dict)
        or not isinstance(best.get(row), dict)
    ):
        return "no figures"
    if not is_number(last.get("balanced_accuracy")) or not is_number(
        best[row].get("balanced_accuracy")
    ):
        return "no balanced accuracy"
    if not all(
        group in last and (last[group] is None or is_number(last[group])) for group in GROUPS
    ):
        return "no figures for the groups many, medium and few"
    if (
        not isinstance(last.get("per_class"), list)
        or not last["per_class"]
        or not are_figures(last["per_class"], None, missing=True)
    ):
        return "no figures for the classes"
    return None


def _optional_problem(record: Record, last: Record, rows: Sequence[str]) -> str | None:
    """What is wrong with entries that may be missing."""
    if last.get("target_recovery") is not None and not is_number(last["target_recovery"]):
        return "a target recovery that is not a number"
    if not is_number(record.get("seconds", 0)):
        return "seconds that are not a number"
    if not isinstance(record.get("environment", {}), dict):
        return "an environment that is not a mapping"
    shots = record.get("shots")
    if shots and not (
        isinstance(shots, dict) and is_number(shots.get("many")) and is_number(shots.get("few"))
    ):
        return "bounds of many and few that are not numbers"
    curves = record.get("curves", {})
    if not isinstance(curves, dict) or not isinstance(curves.get("accuracy", {}), dict):
        return "curves that are not a mapping"
    epochs = curves.get("epoch", [])
    if not isinstance(epochs, list) or not all(is_whole_number(epoch) for epoch in epochs):
        return "curves without epochs"
    lines = [curves.get(name) for name in BENCHMARK_CURVES] + [
        curves.get("accuracy", {}).get(row) for row in rows
    ]
    if not all(line is None or are_figures(line, len(epochs), missing=True) for line in lines):
        return "a curve without a number for each epoch"
    return None
