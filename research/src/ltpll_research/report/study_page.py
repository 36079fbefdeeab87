"""The page of a study or of benchmark runs: tables and interactive plots in one HTML file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ltpll.errors import InputError
from ltpll.formatting import format_duration
from ltpll.report import templates
from ltpll.runs.schema import Record
from ltpll_research.report.plots import COLOURS, study_plots
from ltpll_research.schema import check_record
from ltpll_research.summary import NOT_SETTING, Comparison, Row, difference, rows

NOTHING = "–"


def write_page(path: Path, records: Sequence[Record], **contents: Any) -> None:
    """Write the page that `render_page` renders."""
    templates.write(path, render_page(records, **contents))


def render_page(
    records: Sequence[Record],
    *,
    title: str,
    intro: Sequence[str],
    comparisons: Sequence[Comparison] = (),
) -> str:
    """Render benchmark runs as HTML, with one section per setting.

    Args:
        records: The records of finished runs.
        title: The heading of the page.
        intro: Paragraphs below the heading.
        comparisons: Tables to show above the runs.

    Raises:
        InputError: There are no records, or one of them is damaged.
    """
    from plotly.offline import get_plotlyjs

    if not records:
        raise InputError("There are no finished runs to show: run the study first.")
    for record in records:
        check_record(record)
    differing = _differing_settings(records)
    parts: dict[str, list[Record]] = {}
    for record in records:
        setting = {name: _value(record["config"], name) for name in differing}
        parts.setdefault(json.dumps(setting), []).append(record)
    codes = dict.fromkeys(record["config"].get("code") for record in records)
    return templates.render(
        "study.html",
        title=title,
        styles=[
            templates.read_asset("page.css"),
            templates.read_asset("study.css", __package__),
        ],
        scripts=[get_plotlyjs(), templates.read_asset("study.js", __package__)],
        pictures="data: blob:",
        package=__package__,
        intro=intro,
        measured=_measured(records),
        versions=[json.dumps(code) for code in codes],
        comparisons=comparisons,
        filters=differing,
        colours=COLOURS,
        parts=[
            _part(number, json.loads(setting), found)
            for number, (setting, found) in enumerate(parts.items())
        ],
    )


def _differing_settings(records: Sequence[Record]) -> dict[str, list[str]]:
    """The settings that differ between runs, with their values in order."""
    values: dict[str, dict[str, Any]] = {}
    configs = [record["config"] for record in records]
    for name in dict.fromkeys(name for config in configs for name in config):
        if name not in NOT_SETTING:
            values[name] = {_value(config, name): config.get(name) for config in configs}

    def in_order(found: dict[str, Any]) -> list[str]:
        sortable = all(isinstance(value, bool | int | float) for value in found.values())
        return sorted(found, key=lambda text: found[text]) if sortable else list(found)

    return {name: in_order(found) for name, found in values.items() if len(found) > 1}


def _value(config: Record, name: str) -> str:
    value = config.get(name, "not set")
    if isinstance(value, str):
        return templates.without_bidi_controls(value)
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value in ({}, []) else json.dumps(value, sort_keys=True)


def _part(number: int, setting: dict[str, str], records: Sequence[Record]) -> dict[str, Any]:
    """Everything that the page shows of the runs of one setting."""
    found = rows(records)
    groups = list(dict.fromkeys(map(_group, found)))
    found.sort(key=lambda row: (groups.index(_group(row)), row.rebalancer != "none"))
    return {
        "suffix": f"-{number + 1}" if number else "",  # makes ids unique on the page
        "setting": setting,
        "shots": _shots(records),
        "groups": _summary(found),
        "oracle": any("oracle" in row.rebalancer + row.posthoc for row in found),
        "labels": [row.label for row in found],
        "plots": study_plots(found, _class_names(records)),
        "runs": [
            _run(record)
            for row in found
            if row.key == "test"
            for record in sorted(row.records, key=lambda record: record["config"]["seed"])
        ],
    }


def _measured(records: Sequence[Record]) -> list[tuple[str, str]]:
    """What the figures were measured with; where runs differ, all their values."""
    environments = [record.get("environment", {}) for record in records]

    def distinct(name: str) -> str:
        return " / ".join(dict.fromkeys(str(one[name]) for one in environments if name in one))

    packages = {name for one in environments for name in one}
    packages -= {"hardware", "device", "threads", "commit"}
    in_order = sorted(packages, key=lambda name: (name != "ltpll", name))
    seconds = sum(record.get("seconds", 0) for record in records)
    facts = {
        "Seeds": str(len({record["config"]["seed"] for record in records})),
        "Runs": f"{len(records)}, {format_duration(seconds)} of training in total",
        "Hardware": distinct("hardware") or distinct("device"),
        "Versions": ", ".join(f"{name} {distinct(name)}" for name in in_order),
        "Commit": distinct("commit"),
    }
    return [(name, value) for name, value in facts.items() if value]


def _shots(records: Sequence[Record]) -> dict[str, str]:
    """The bounds of the three groups of classes, as text."""
    bounds = {(shots["many"], shots["few"]) for record in records if (shots := record.get("shots"))}
    if len(bounds) != 1:
        why = "bounds differ between runs" if bounds else "bounds not recorded"
        return dict.fromkeys(("many", "medium", "few"), why)
    many, few = bounds.pop()
    return {"many": f"> {many} examples", "medium": f"{few} to {many}", "few": f"< {few} examples"}


def _class_names(records: Sequence[Record]) -> list[str]:
    sizes = {len(record["last"]["test"]["per_class"]) for record in records}
    if len(sizes) > 1:
        raise InputError(
            f"Runs of one setting have {' and '.join(map(str, sorted(sizes)))} classes: make one "
            "page for each data set."
        )
    named = (record["classes"] for record in records if record.get("classes"))
    return [str(name) for name in next(named, range(sizes.pop()))]


def _group(row: Row) -> tuple[str, tuple[str, ...], str]:
    return row.method, row.extras, row.setting


def _summary(found: Sequence[Row]) -> list[list[dict[str, Any]]]:
    """The lines of the table, one list per method.

    A line has a label, the figures as text, and which of them are the best of their method.
    """
    groups: dict[Any, list[dict[str, Any]]] = {}
    for i, row in enumerate(found):
        line: dict[str, Any] = {
            "row": i,
            "label": row.label,
            "posthoc": row.key != "test",
            "n": row.n,
            "figures": [
                row.last("balanced_accuracy"),
                row.best(),
                *map(row.last, ("many", "medium", "few")),
                row.target_recovery,
            ],
            "cells": [],
            "gain": _gain(row, found),
        }
        groups.setdefault(_group(row), []).append(line)
    for lines in groups.values():
        for column in zip(*(line["figures"] for line in lines), strict=True):
            # Compare rounded values: of two numbers that look equal, both must be bold.
            shown = [None if figure is None else round(100 * figure.mean, 1) for figure in column]
            known = [value for value in shown if value is not None]
            for line, figure, value in zip(lines, column, shown, strict=True):
                best = value is not None and value == max(known) > min(known)
                line["cells"].append((figure.percent() if figure else NOTHING, best))
    return list(groups.values())


def _gain(row: Row, table: Sequence[Row]) -> tuple[str, str]:
    """The difference from the method without rebalancing as text, and its direction.

    There is a direction only if the difference exceeds two standard errors.
    """
    if row.bare:
        return "reference", "reference"
    gain = difference(row, table)
    if gain is None:
        return NOTHING, ""
    figure, error = gain
    pairs = "" if figure.n == row.n else f" (n = {figure.n})"
    direction = "" if abs(figure.mean) <= 2 * error else "better" if figure.mean > 0 else "worse"
    return f"{100 * figure.mean:+.1f} ± {100 * error:.1f}{pairs}".replace("-", "−"), direction


def _run(record: Record) -> dict[str, Any]:
    last, best = record["last"]["test"], record["best"]["test"]
    return {
        "key": record.get("key", NOTHING),
        "label": rows([record])[0].label,
        "seed": record["config"]["seed"],
        "seconds": f"{record['seconds']:.1f}" if "seconds" in record else NOTHING,
        "last": f"{100 * last['balanced_accuracy']:.1f}",
        "best": f"{100 * best['test']['balanced_accuracy']:.1f}",
        "epoch": best.get("epoch", NOTHING),
        "config": templates.json_markup(record["config"], sort_keys=True),
        "environment": templates.json_markup(record.get("environment", {}), sort_keys=True),
    }
