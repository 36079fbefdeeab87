"""Systems: runs grouped by what was learned from and how, with paired differences over seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ltpll.errors import InputError, shown
from ltpll.formatting import counted
from ltpll.report.templates import without_bidi_controls
from ltpll.runs.schema import Record
from ltpll_research.summary import Figure, Row, paired, rows

Read = Callable[[Record, str], float | None]

# Entries of a config that say what is learned from; all others say how.
PROBLEM = (
    *("study", "data", "content", "imbalance", "sets", "ambiguity", "superclass"),
    *("within_superclass", "lacking", "held_out", "draw", "sizes"),
)
SOURCE = ("study", "data", "content")
NOT_SHOWN = {"experiment", "content"}
NOTHING = "–"


def _of_test(name: str) -> Read:
    return lambda record, row: record["last"].get(row, {}).get(name)


def _best(record: Record, row: str) -> float | None:
    found: float | None = record.get("best", {}).get(row, {}).get(row, {}).get("balanced_accuracy")
    return found


def _recovered(record: Record, row: str) -> float | None:
    found: float | None = record["last"].get("target_recovery")
    return record.get("recovered", found) if row == "test" else None  # on tables out of fold


def _information(record: Record, row: str) -> float | None:
    found: float | None = record.get("information", {}).get("nats")
    return found


# The first that any run has is compared; the best epoch is chosen on the test set.
MEASURES: Mapping[str, Read] = {
    "balanced": _of_test("balanced_accuracy"),
    "best epoch": _best,
    "many": _of_test("many"),
    "medium": _of_test("medium"),
    "few": _of_test("few"),
    "accuracy": _of_test("accuracy"),
    "recovered": _recovered,
    "information": _information,
}
WORDS = {
    "balanced": "balanced test accuracy in %",
    "best epoch": "that of the best epoch, which is chosen on the test set",
    "many": "test accuracy of classes with many, medium or few training examples",
    "accuracy": "plain test accuracy",
    "recovered": "training rows with the true label",
    "information": "set information in 1/100 nat",
}


@dataclass(frozen=True)
class System:
    """What was trained on a problem, with its runs of several seeds."""

    label: str
    row: Row

    def figure(self, measure: str) -> Figure | None:
        """The mean and the standard deviation over seeds."""
        return self.row.figure(MEASURES[measure])

    def text(self, measure: str) -> str:
        """The figure as tables show it."""
        figure = self.figure(measure)
        return NOTHING if figure is None else figure.percent()


@dataclass(frozen=True)
class Problem:
    """The systems of one problem, and with which of them all are compared, if with one."""

    title: str
    systems: Sequence[System]
    measures: Sequence[str]
    against: System | None = None

    def reference(self, system: System) -> System:
        """What a system is compared with: by default its method without rebalancing, or the first
        system.
        """
        own = [one for one in self.systems if one.row.bare and _same_method(one.row, system.row)]
        return self.against or next(iter(own), self.systems[0])

    def gain(self, system: System) -> str:
        """The mean difference of runs with the same seed ± its standard error."""
        reference = self.reference(system)
        if system is reference:
            return "reference"
        figure = paired(system.row, reference.row, MEASURES[self.measures[0]])
        if figure is None or figure.std is None:
            return NOTHING
        pairs = "" if figure.n == system.row.n else f" (n = {figure.n})"
        error = 100 * figure.std / math.sqrt(figure.n)
        return f"{100 * figure.mean:+.1f} ± {error:.1f}{pairs}".replace("-", "−")

    @property
    def note(self) -> str:
        """What the columns of its table are."""
        words = [f"{name}: {WORDS[name]}" for name in self.measures if name in WORDS]
        over = "the same method without rebalancing"
        over = self.against.label if self.against else f"{over}, or else {self.systems[0].label}"
        seeds = sorted({system.row.n for system in self.systems})
        n = counted(seeds[-1], "seed") if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
        return (
            f"{'; '.join(words)}; all at the last epoch, mean ± standard deviation over {n}. gain: in "
            f"{self.measures[0]} over {over}, runs paired by seed ± standard error."
        )


def _same_method(one: Row, other: Row) -> bool:
    return (one.method, one.extras, one.setting) == (other.method, other.extras, other.setting)


def compare_systems(records: Sequence[Record], against: str | None = None) -> list[Problem]:
    """Group runs by problem and system.

    Args:
        records: The records of finished runs of benchmarks, of studies, or on tables.
        against: The label of the system that others are compared with; by default the first one
            without a rebalancer, or else the first.

    Raises:
        InputError: Two runs differ in nothing, no system is called so, or nothing was measured.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows(records):
        problem = {name: one for name, one in _settings(row).items() if name in PROBLEM}
        groups.setdefault(json.dumps(problem, sort_keys=True), []).append(row)
    every = [_settings(row) for found in groups.values() for row in found]
    problems = []
    for found in groups.values():
        own = _settings(found[0])
        alike = [one for one in every if all(one.get(key) == own.get(key) for key in SOURCE)]
        differing = [name for name in PROBLEM if len(_values(alike, name)) > 1]
        systems, title = _systems(found), _title(found[0], differing)
        measures = [one for one in MEASURES if any(system.figure(one) for system in systems)]
        if not measures:
            raise InputError(
                f"Nothing was measured on {title}: its runs have neither test examples, true labels "
                "nor folds."
            )
        labels = {one.label: one for one in systems}
        if against is not None and against not in labels:
            raise InputError(
                f"There is no system {shown(against)}: choose one of {', '.join(labels)}."
            )
        problems.append(Problem(title, systems, measures, labels.get(against or "")))
    return problems


def _settings(row: Row) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(row.setting)
    return settings


def _values(settings: Sequence[Mapping[str, Any]], name: str) -> set[str]:
    return {json.dumps(one.get(name), sort_keys=True) for one in settings}


def _systems(found: Sequence[Row]) -> list[System]:
    """Rows with labels that tell them apart."""
    settings = [_settings(row) for row in found]
    names = dict.fromkeys(name for one in settings for name in one)
    differing = [
        name
        for name in names
        if name not in {*PROBLEM, *NOT_SHOWN} and len(_values(settings, name)) > 1
    ]
    systems = []
    for row, own in zip(found, settings, strict=True):
        words = [own["learner"] if own.get("learner") == "committee" else row.label]
        words += [f"{name} {_text(own[name])}" for name in differing if name in own]
        systems.append(System(without_bidi_controls(", ".join(words)), row))

    def place(one: System) -> Any:
        row = one.row
        return row.method, row.extras, row.setting, row.rebalancer != "none", row.rebalancer

    return sorted(systems, key=place)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _title(row: Row, differing: Sequence[str]) -> str:
    """The data of a problem, and what tells it from the others."""
    settings, record = _settings(row), row.records[0]
    if "source" in record:
        return Path(record["source"]["table"]).name
    words = [str(settings.get("study") or settings.get("data"))]
    words += [
        f"{name} {_text(settings[name])}"
        for name in differing
        if name in settings and name not in SOURCE
    ]
    return without_bidi_controls(", ".join(words))
