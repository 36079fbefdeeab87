"""Schema: what the record of each kind of run must hold; every record is checked before anything is computed from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from ltpll.errors import InputError, shown

Record = dict[str, Any]
GROUPS = ("many", "medium", "few")
BENCHMARK_CURVES = ("target_recovery", "mean_target_distance", "prior_distance")
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


def check_record(record: Record) -> None:
    """Refuse a record that cannot be compared with those of other benchmark runs and studies.

    Args:
        record: The record of a finished run.

    Raises:
        InputError: The record lacks something that its schema requires, or is that of a run on a table.
    """
    config = record.get("config")
    if not isinstance(config, dict):
        problem: str | None = "no config"
    else:
        problem = f"the config of {Kind.TABLE}" if kind_of_run(config) is Kind.TABLE else _benchmark_problem(record)
    if problem is not None:
        raise InputError(f"The record {shown(record.get('key', 'without a key'))} has {problem}: leave the run out, or run it again.")


def record_problem(record: Record, kind: Kind | None) -> str | None:
    """What is wrong with the record of a run of some kind, as the object of "it has"; None if nothing is wrong."""
    if kind is None:
        return None
    if kind_of_run(record["config"]) is not kind:
        return f"a config that is not that of {kind}"
    return _table_problem(record) if kind is Kind.TABLE else _benchmark_problem(record)


# ---- benchmark runs and runs of studies ----------------------------------------------------------------------------------


def _benchmark_problem(record: Record) -> str | None:
    config, last, best = (record.get(name) for name in ("config", "last", "best"))
    if not isinstance(config, dict) or not isinstance(last, dict) or not isinstance(best, dict):
        return "no last epoch or no best epoch"
    if not isinstance(config.get("method"), str) or not isinstance(config.get("rebalancer"), str):
        return "no method or no rebalancer in its config"
    if not is_whole_number(config.get("seed")) or not _are_texts(config.get("extras", [])):
        return "no seed, or extras that are not names, in its config"
    posthoc = record.get("posthoc", [])
    if not _are_texts(posthoc):
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
        if where.get(name) is not None and not _are_figures(where[name], n_classes, missing=name == "mean_prediction"):
            return f"no number for each of its {n_classes} classes in {name}"
    counts = record.get("class_counts")
    if counts and (min(counts) < 0 or sum(counts) <= 0):
        return "impossible class_counts"
    if record.get("classes") and (not isinstance(record["classes"], list) or len(record["classes"]) != n_classes):
        return f"no name for each of its {n_classes} classes"
    return _prior_problem(record, n_classes) or _optional_problem(record, last, ("test", *posthoc))


def _row_problem(last: Any, best: Any, row: str) -> str | None:
    if not isinstance(last, dict) or not isinstance(best, dict) or not isinstance(best.get(row), dict):
        return "no figures"
    if not _is_number(last.get("balanced_accuracy")) or not _is_number(best[row].get("balanced_accuracy")):
        return "no balanced accuracy"
    if not all(group in last and (last[group] is None or _is_number(last[group])) for group in GROUPS):
        return "no figures for the groups many, medium and few"
    if not isinstance(last.get("per_class"), list) or not last["per_class"] or not _are_figures(last["per_class"], None, missing=True):
        return "no figures for the classes"
    return None


def _optional_problem(record: Record, last: Record, rows: Sequence[str]) -> str | None:
    """What is wrong with entries that may be missing."""
    if last.get("target_recovery") is not None and not _is_number(last["target_recovery"]):
        return "a target recovery that is not a number"
    if not _is_number(record.get("seconds", 0)):
        return "seconds that are not a number"
    if not isinstance(record.get("environment", {}), dict):
        return "an environment that is not a mapping"
    shots = record.get("shots")
    if shots and not (isinstance(shots, dict) and _is_number(shots.get("many")) and _is_number(shots.get("few"))):
        return "bounds of many and few that are not numbers"
    curves = record.get("curves", {})
    if not isinstance(curves, dict) or not isinstance(curves.get("accuracy", {}), dict):
        return "curves that are not a mapping"
    epochs = curves.get("epoch", [])
    if not isinstance(epochs, list) or not all(is_whole_number(epoch) for epoch in epochs):
        return "curves without epochs"
    lines = [curves.get(name) for name in BENCHMARK_CURVES] + [curves.get("accuracy", {}).get(row) for row in rows]
    if not all(line is None or _are_figures(line, len(epochs), missing=True) for line in lines):
        return "a curve without a number for each epoch"
    return None


# ---- runs on a table --------------------------------------------------------------------------------------------------


def _table_problem(record: Record) -> str | None:
    parts = {name: record.get(name) for name in ("config", "source", "rows", "last", "curves", "environment")}
    missing = next((name for name, part in parts.items() if not isinstance(part, dict)), None)
    if missing is not None:
        return f"no {missing}"
    config, source, rows, last, curves = (record[name] for name in ("config", "source", "rows", "last", "curves"))
    classes = record.get("classes")
    if not _are_texts(classes) or not classes or not _are_figures(record.get("class_prior"), len(classes), missing=False):
        return "no classes, or no prior for each of them"
    if not all(isinstance(config.get(name), str) for name in ("method", "rebalancer")) or not _are_texts(config.get("extras")):
        return "no method, rebalancer and extras"
    if not all(is_whole_number(rows.get(name)) for name in ("all", "trained", "held_out")) or not isinstance(record.get("skipped"), list):
        return "no numbers of rows"
    if not isinstance(source.get("table"), str) or not isinstance(source.get("reading"), dict):
        return "no path of its table, or no account of how it was read"
    if not _are_texts(source.get("feature_names")) or not is_whole_number(source.get("side")):
        return "no feature names, or no size of pictures"
    if not all(source.get(name, "") is None or isinstance(source.get(name), str) for name in ("images", "features")):
        return "paths of pictures or features that are not text"
    if not all(isinstance(source.get(name), dict | None) for name in ("preprocessing", "backbone")):
        return "an unreadable account of how pictures were scaled or of the pretrained network"
    test = last.get("test", {})
    by_goal = test.get("by_goal", {}) if isinstance(test, dict) else None
    if not isinstance(by_goal, dict) or not all(isinstance(figures, dict) for figures in by_goal.values()):
        return "held-out figures that are not numbers"
    for figures in (test, *by_goal.values()):
        if not all(_is_number(figures.get(name, 0)) for name in TABLE_CURVES):
            return "held-out figures that are not numbers"
        if (figures and "covering_rate" not in figures) or ("accuracy" in figures) != ("balanced_accuracy" in figures):
            return "only some of the held-out figures"
    if any(("accuracy" in figures) != ("accuracy" in test) for figures in by_goal.values()):
        return "only some of the held-out figures"
    if (problem := _prior_problem(record, len(classes)) or _judgement_problem(record, len(classes))) is not None:
        return problem
    if not _is_number(last.get("target_recovery", 0)):
        return "a target recovery that is not a number"
    epochs, measured = curves.get("epoch"), curves.get("measured", [])
    for numbers in (epochs, measured):
        if not isinstance(numbers, list) or not all(is_whole_number(epoch) and epoch >= 0 for epoch in numbers):
            return "curves without epochs"
    if not epochs or not _are_figures(curves.get("loss"), len(epochs), missing=False):
        return "no loss for each epoch"
    lines = [curves[name] for name in TABLE_CURVES if name in curves]
    if not all(measured and _are_figures(line, len(measured), missing=False) for line in lines):
        return "a curve without a number for each epoch"
    return None


def _judgement_problem(record: Record, n_classes: int) -> str | None:
    """What is wrong with the judgement of the sets; runs without folds and held-out rows have none."""
    judgement = record.get("judgement")
    if judgement is None:
        return None
    if not isinstance(judgement, dict) or not all(_is_number(judgement.get(n)) for n in ("temperature", "missing", "covering", "chance")):
        return "a judgement without its figures"
    if not _are_figures(judgement.get("recovered"), n_classes, missing=False):
        return "a judgement without the recovered rows of each class"
    unknown = judgement.get("not_judged")
    if not isinstance(unknown, list) or not all(
        isinstance(one, list) and len(one) == 3 and all(map(is_whole_number, one)) and 0 <= one[0] < n_classes for one in unknown
    ):
        return "a judgement that does not name the classes it leaves out"
    inside, calibration = judgement.get("ambiguous"), judgement.get("calibration", {})
    if inside is not None and not (isinstance(inside, dict) and all(_is_number(inside.get(n)) for n in ("rows", "expected", "guess"))):
        return "a judgement without figures for ambiguous rows"
    names = ("rows", "accuracy", "mean_confidence", "calibration_error")
    if not isinstance(calibration, dict) or not all(
        isinstance(one, dict)
        and all(_is_number(one.get(name)) for name in names)
        and (one.get("ranking") is None or _is_number(one["ranking"]))
        for one in calibration.values()
    ):
        return "a calibration without its figures"
    return None


# ---- what both kinds of runs may hold ----------------------------------------------------------------------------------


def _prior_problem(record: Record, n_classes: int) -> str | None:
    """What is wrong with the prior that was read off the sets, and with the sentence about it; older records have neither."""
    prior = record.get("prior")
    missing = record.get("truth_missing", 0.0)
    if isinstance(missing, bool) or not isinstance(missing, (int, float)) or not 0 <= missing < 1:
        return "a share of sets without the true label that is not a share"
    if not isinstance(prior, (dict, type(None))) or not isinstance(record.get("choice", ""), (str, type(None))):
        return "a prior that is not a mapping, or a choice that is not text"
    if prior is None:
        return None
    if not all(_are_figures(prior.get(name), n_classes, missing=False) for name in ("estimate", "lower", "upper")):
        return f"no estimate and bounds of the prior for each of its {n_classes} classes"
    if not all(isinstance(prior.get(name), str) for name in ("regime", "because")):
        return "no reason for the estimate of its prior"
    return None


# ---- values -----------------------------------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e100 and math.isfinite(value)


def is_whole_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _are_figures(values: Any, n: int | None, *, missing: bool) -> bool:
    """Whether this is a list of n numbers (None: of any length); with `missing`, entries may be None."""
    if not isinstance(values, list) or (n is not None and len(values) != n):
        return False
    return all(_is_number(value) or (missing and value is None) for value in values)
