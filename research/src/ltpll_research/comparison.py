"""Comparison: systems on the same problems over seeds, for image benchmarks and runs on tables."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ltpll.errors import InputError, shown
from ltpll.runs.schema import Record
from ltpll_research.plotting import save_figure
from ltpll_research.summary import Figure, Row, paired, rows

# Entries of a config that say what is learned from; all others say how.
PROBLEM = (
    *("study", "data", "content", "imbalance", "sets", "ambiguity", "superclass"),
    *("within_superclass", "lacking", "held_out", "draw", "sizes"),
)
NOT_SHOWN = {"experiment", "content"}


def _of_test(name: str) -> Callable[[Record, str], float | None]:
    return lambda record, row: record["last"].get(row, {}).get(name)


def _recovered(record: Record, row: str) -> float | None:
    found: float | None = record["last"].get("target_recovery")
    return record.get("recovered", found) if row == "test" else None  # on tables out of fold


def _information(record: Record, row: str) -> float | None:
    found: float | None = record.get("information", {}).get("nats")
    return found


MEASURES: Mapping[str, Callable[[Record, str], float | None]] = {
    "balanced accuracy (%)": _of_test("balanced_accuracy"),
    "accuracy (%)": _of_test("accuracy"),
    "labels recovered (%)": _recovered,
    "set information (1/100 nat)": _information,
}


@dataclass(frozen=True)
class System:
    """What was trained on a problem, with its runs of several seeds."""

    label: str
    row: Row

    def figure(self, measure: str) -> Figure | None:
        """The mean and the standard deviation over seeds."""
        return self.row.figure(MEASURES[measure])

    def difference(self, other: System, measure: str) -> tuple[Figure, float] | None:
        """The mean difference of runs with the same seed, and its standard error."""
        found = paired(self.row, other.row, MEASURES[measure])
        if found is None or found.std is None:
            return None
        return found, found.std / math.sqrt(found.n)


@dataclass(frozen=True)
class Problem:
    """The systems of one problem; the others are compared with the reference."""

    title: str
    systems: Sequence[System]
    reference: System

    @property
    def measures(self) -> list[str]:
        """The measures that any run has; the first one is compared."""
        return [
            name for name in MEASURES if any(one.figure(name) is not None for one in self.systems)
        ]


def compare_systems(records: Sequence[Record], against: str | None = None) -> list[Problem]:
    """Group runs by problem and system.

    Args:
        records: The records of finished runs.
        against: The label of the system that others are compared with; by default the first one
            without a rebalancer, or else the first.

    Raises:
        InputError: Two runs differ in nothing, no system is called so, or nothing was measured.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows(records):
        problem = {name: one for name, one in _settings(row).items() if name in PROBLEM}
        groups.setdefault(json.dumps(problem, sort_keys=True), []).append(row)
    settings = [_settings(row) for found in groups.values() for row in found]
    differing = [name for name in PROBLEM if len(_values(settings, name)) > 1]
    problems = []
    for found in groups.values():
        systems = _systems(found)
        reference = next((one for one in systems if one.row.bare), systems[0])
        if against is not None:
            named = [one for one in systems if one.label == against]
            if not named:
                labels = ", ".join(one.label for one in systems)
                raise InputError(f"There is no system {shown(against)}: choose one of {labels}.")
            reference = named[0]
        problems.append(Problem(_title(found[0], differing), systems, reference))
    if not any(problem.measures for problem in problems):
        raise InputError(
            "Nothing can be compared: the runs have neither test examples, true labels nor folds."
        )
    return problems


def _settings(row: Row) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(row.setting)
    return settings


def _values(settings: Sequence[Mapping[str, Any]], name: str) -> set[str]:
    return {json.dumps(one.get(name), sort_keys=True) for one in settings}


def _systems(found: Sequence[Row]) -> list[System]:
    """Rows with labels that tell them apart, those without a rebalancer first."""
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
        systems.append(System(", ".join(words), row))
    return sorted(systems, key=lambda one: (one.row.rebalancer != "none", one.row.key != "test"))


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
        if name in settings and name not in {"study", "data", *NOT_SHOWN}
    ]
    return ", ".join(words)


def draw_comparison(problems: Sequence[Problem], path: Path) -> None:
    """Draw the first measure of each problem: mean and standard deviation, and single runs."""
    from matplotlib.figure import Figure as Canvas

    height = sum(1.0 + 0.3 * len(problem.systems) for problem in problems)
    canvas = Canvas(figsize=(7, height), layout="constrained")
    ratios = [1.0 + 0.3 * len(problem.systems) for problem in problems]
    panels = canvas.subplots(len(problems), 1, squeeze=False, height_ratios=ratios)[:, 0]
    for panel, problem in zip(panels, problems, strict=True):
        measure = next(iter(problem.measures), None)
        for place, system in enumerate(problem.systems):
            figure = None if measure is None else system.figure(measure)
            if measure is None or figure is None:
                continue
            values = [MEASURES[measure](one, system.row.key) for one in system.row.records]
            known = [100 * value for value in values if value is not None]
            panel.plot(known, [place] * len(known), "o", color="0.75", markersize=3)
            spread = 100 * (figure.std or 0.0)
            panel.errorbar(100 * figure.mean, place, xerr=spread, fmt="o", capsize=3, color="C0")
        panel.set_yticks(range(len(problem.systems)), [one.label for one in problem.systems])
        panel.invert_yaxis()
        panel.set(title=problem.title, xlabel=measure or "")
        panel.grid(axis="x", alpha=0.3)
    save_figure(canvas, path)
