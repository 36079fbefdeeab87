"""Schema: what the record of a benchmark run or of a run of a study must hold."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ltpll.errors import InputError, shown
from ltpll.runs.schema import Kind, Record, kind_of_run, prior_problem

# Neither infinite nor NaN, nor so large that a figure computed from it would be infinite.
Number = Annotated[float, msgspec.Meta(ge=-1e100, le=1e100)]
Numbers = list[Number] | None
Figures = list[Number | None] | None  # of classes or epochs; None where nothing was measured
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Config(msgspec.Struct):
    method: str
    rebalancer: str
    seed: Whole
    extras: list[str] = []


class LastFigures(msgspec.Struct):
    """What a row of the table shows of the last epoch."""

    balanced_accuracy: Number
    many: Number | None
    medium: Number | None
    few: Number | None
    per_class: Annotated[list[Number | None], msgspec.Meta(min_length=1)]
    mean_prediction: Figures = None


class BestFigures(msgspec.Struct):
    balanced_accuracy: Number


class LastEpoch(msgspec.Struct):
    """What the last epoch holds besides the figures of each row."""

    prior: Numbers = None
    mean_target: Numbers = None
    target_recovery: Number | None = None


class Shots(msgspec.Struct):
    many: Number
    few: Number


class Curves(msgspec.Struct):
    epoch: list[Whole] = []
    accuracy: dict[str, Any] = {}
    target_recovery: Figures = None
    mean_target_distance: Figures = None
    prior_distance: Figures = None


class Snapshots(msgspec.Struct):
    epoch: list[Whole] = []
    mean_prediction: dict[str, list[list[Number | None]]] = {}


class BenchmarkRecord(msgspec.Struct):
    """The record of a benchmark run or of a study; other entries may hold anything."""

    config: Config
    last: dict[str, Any]
    best: dict[str, Any]
    posthoc: list[str] = []
    class_counts: Numbers = None
    classes: list[Any] | None = None
    seconds: Number = 0.0
    environment: dict[str, Any] = {}
    shots: Shots | None = None
    curves: Curves = msgspec.field(default_factory=Curves)
    snapshots: Snapshots = msgspec.field(default_factory=Snapshots)


def check_record(record: Record) -> None:
    """Refuse a record that is not a complete one of a benchmark run or of a study."""
    config = record.get("config")
    if isinstance(config, dict) and kind_of_run(config) is Kind.TABLE:
        problem: str | None = f"the config of {Kind.TABLE}"
    else:
        problem = benchmark_problem(record)
    if problem is not None:
        raise InputError(
            f"The record {shown(record.get('key', 'without a key'))} has {problem}: leave the run "
            "out, or run it again."
        )


def benchmark_problem(record: Record) -> str | None:
    """What is wrong with a record, as the object of "it has"; None if nothing is wrong."""
    try:
        found = msgspec.convert(record, BenchmarkRecord)
        last = msgspec.convert(found.last, LastEpoch)
        rows = {}
        for row in ("test", *found.posthoc):
            rows[row] = msgspec.convert(found.last.get(row), LastFigures)
            best = msgspec.convert(found.best.get(row), dict[str, Any])
            msgspec.convert(best.get(row), BestFigures)
        curves = msgspec.convert([found.curves.accuracy.get(row) for row in rows], list[Figures])
    except (ValueError, OverflowError) as error:
        return f"an entry that does not fit ({error})"
    n_classes = len(rows["test"].per_class)
    figures = [last.prior, last.mean_target, found.class_counts, found.classes or None]
    for shown_figures in rows.values():
        figures += [shown_figures.per_class, shown_figures.mean_prediction]
    if any(one is not None and len(one) != n_classes for one in figures):
        return "figures or names for different numbers of classes"
    if found.class_counts and (min(found.class_counts) < 0 or sum(found.class_counts) <= 0):
        return "impossible class_counts"
    own = found.curves
    curves += [own.target_recovery, own.mean_target_distance, own.prior_distance]
    if any(line is not None and len(line) != len(own.epoch) for line in curves):
        return "a curve without a number for each epoch"
    kept = found.snapshots
    if any(len(rows) != len(kept.epoch) for rows in kept.mean_prediction.values()):
        return "no snapshot for each epoch"
    return prior_problem(record, n_classes)
