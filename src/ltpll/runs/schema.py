"""Schema: what the record of each kind of run must hold; every record is checked when read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

Record = dict[str, Any]


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


# ---- values ------------------------------------------------------------------------------------


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and abs(value) < 1e100 and math.isfinite(value)


def is_whole_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _misfit(value: Any, shape: Any, name: str = "") -> str | None:
    """The name of the first entry that does not fit a shape, if any.

    A shape is a test of a value, a list with the shape of all items, or a mapping with the shape of
    each entry, in which `*` stands for all names, and a name that ends in `?` may be missing. With
    None before it, as a pair, a value may be null.
    """
    if isinstance(shape, tuple):
        return None if value is None else _misfit(value, shape[1], name)
    if isinstance(shape, dict) and isinstance(value, dict):
        entries = [(f"{name}.{key}".lstrip("."), key, one) for key, one in shape.items()]
        if "*" in shape:
            entries = [(name, key, shape["*"]) for key in value]
        for place, key, one in entries:
            optional, key = key.endswith("?"), key.removesuffix("?")
            if optional and key not in value:
                continue
            if found := _misfit(value.get(key), one, place.removesuffix("?")):
                return found
        return None
    if isinstance(shape, list) and isinstance(value, list):
        return next(filter(None, (_misfit(one, shape[0], name) for one in value)), None)
    return None if callable(shape) and shape(value) else name


# ---- runs on a table ---------------------------------------------------------------------------

PRIOR = {
    "prior?": (
        None,
        {
            **{name: [is_number] for name in ("estimate", "lower", "upper")},
            **dict.fromkeys(("regime", "because"), is_text),
        },
    ),
    "choice?": (None, is_text),
    "truth_missing?": lambda share: is_number(share) and 0 <= share < 1,
}
HELD_OUT = {"covering_rate": is_number, "accuracy?": is_number, "balanced_accuracy?": is_number}
JUDGEMENT = {
    **dict.fromkeys(("temperature", "missing", "covering", "chance"), is_number),
    "recovered": [is_number],
    "not_judged": [[is_whole_number]],
    "ambiguous?": (None, dict.fromkeys(("rows", "expected", "guess"), is_number)),
    "calibration?": {
        "*": {
            **dict.fromkeys(("accuracy", "mean_confidence", "calibration_error"), is_number),
            "rows": is_whole_number,
            "ranking?": (None, is_number),
        }
    },
}
TABLE = {
    "config": {"method": is_text, "rebalancer": is_text, "extras": [is_text]},
    "source": {
        "table": is_text,
        "images?": (None, is_text),
        "features?": (None, is_text),
        "reading": {},
        "preprocessing?": (None, {}),
        "backbone?": (None, {}),
        "feature_names": [is_text],
        "side": is_whole_number,
    },
    "classes": [is_text],
    "class_prior": [is_number],
    "rows": dict.fromkeys(("all", "trained", "held_out"), is_whole_number),
    "skipped": lambda value: isinstance(value, list),
    "texts_cut?": is_whole_number,
    "environment": {},
    "last": {
        "test?": {**HELD_OUT, "by_goal?": {"*": HELD_OUT}},
        "target_recovery?": is_number,
    },
    "judgement?": (None, JUDGEMENT),
    "committee?": {"*": is_number},
    "information?": dict.fromkeys(("nats", "standard_error", "possible"), is_number),
    "information_by_class?": [(None, is_number)],
}


def _table_problem(record: Record) -> str | None:
    if misfit := _misfit(record, TABLE):
        return f"an entry that does not fit ({misfit})"
    n, test = len(record["classes"]), record["last"].get("test", {})
    judgement = record.get("judgement") or {}
    of_classes = [record["class_prior"], judgement.get("recovered")]
    of_classes.append(record.get("information_by_class"))
    unknown = judgement.get("not_judged", [])
    if not n or any(one is not None and len(one) != n for one in of_classes):
        return "figures for another number of classes"
    if any(len(one) != 3 or not 0 <= one[0] < n for one in unknown):
        return "classes that are not judged, but unknown"
    several = [test, *test.get("by_goal", {}).values()]
    shown = {name for one in several for name in one if name in HELD_OUT or f"{name}?" in HELD_OUT}
    if not all(shown <= one.keys() for one in several) or len(shown) == 2:
        return "only some of the held-out figures"
    if "committee" in record and not is_text(record.get("choice")):
        return "a committee without a sentence about it"
    return prior_problem(record, n)


def prior_problem(record: Record, n_classes: int) -> str | None:
    """What is wrong with the prior of the sets, and the sentence about it; both may be missing."""
    if misfit := _misfit(record, PRIOR):
        return f"an entry that does not fit ({misfit})"
    prior = record.get("prior")
    if prior and any(len(prior[name]) != n_classes for name in ("estimate", "lower", "upper")):
        return f"no estimate and bounds of the prior for each of its {n_classes} classes"
    return None


# What finds a problem in the record of a run of each kind; another package may add its kinds.
CHECKS: dict[Kind, Callable[[Record], str | None]] = {Kind.TABLE: _table_problem}
