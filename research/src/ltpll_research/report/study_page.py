"""The page of a study or of benchmark runs: tables and interactive plots in one HTML file that opens offline."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ltpll.errors import InputError, required_by
from ltpll.formatting import are, counted, format_duration
from ltpll.report import templates
from ltpll.runs.schema import Record
from ltpll_research.report.plots import study_plots
from ltpll_research.schema import check_record
from ltpll_research.summary import NOT_SETTING, Comparison, Row, difference, rows

COLOURS = 7  # the palette `--row-0` … `--row-6` of page.css
NOTHING = "–"


def write_page(
    path: Path,
    records: Sequence[Record],
    *,
    title: str,
    intro: Sequence[str],
    classes: Sequence[str] | None = None,
    comparisons: Sequence[Comparison] = (),
) -> None:
    """Write the page that `render_page` renders.

    Examples:
        >>> write_page(Path("page.html"), finished_runs(Path("ltpll-runs/images")), title="My runs", intro=[])
    """
    templates.write(
        path,
        render_page(records, title=title, intro=intro, classes=classes, comparisons=comparisons),
    )


def render_page(
    records: Sequence[Record],
    *,
    title: str,
    intro: Sequence[str],
    classes: Sequence[str] | None = None,
    comparisons: Sequence[Comparison] = (),
) -> str:
    """Render benchmark runs as HTML, with one section per setting.

    Args:
        records: The records of finished runs.
        title: The heading of the page.
        intro: Paragraphs below the heading.
        classes: The class names; by default those in the records.
        comparisons: Tables to show above the runs.

    Raises:
        InputError: There are no records, or one of them is damaged.
    """
    with required_by("A report page", install="plotly jinja2"):
        import jinja2  # noqa: F401
        from plotly.offline import get_plotlyjs
    if not records:
        raise InputError("There are no finished runs to show: run the study first.")
    for record in records:
        check_record(record)
    differing = _differing_settings(records)
    settings = [_setting(record, differing) for record in records]
    return templates.render(
        "study.html",
        title=title,
        styles=[templates.read_asset("page.css")],
        scripts=[get_plotlyjs(), templates.read_asset("study.js", __package__)],
        pictures="data: blob:",
        package=__package__,
        intro=intro,
        measured=_measured(records),
        versions=[
            json.dumps(code)
            for code in dict.fromkeys(record["config"].get("code") for record in records)
        ],
        comparisons=comparisons,
        filters=differing,
        colours=COLOURS,
        parts=[
            _part(
                number,
                setting,
                [record for record, mine in zip(records, settings, strict=True) if mine == setting],
                classes,
            )
            for number, setting in enumerate(_distinct(settings))
        ],
    )


# ---- settings --------------------------------------------------------------------------------------------------------


def _differing_settings(records: Sequence[Record]) -> dict[str, list[str]]:
    """The settings that differ between runs, with their values in order; rows can only be compared where settings agree."""
    configs = [
        {name: value for name, value in record["config"].items() if name not in NOT_SETTING}
        for record in records
    ]
    names = dict.fromkeys(name for config in configs for name in config)
    values = {
        name: {_value(config, name): config.get(name) for config in configs} for name in names
    }
    numbers = (bool, int, float)

    def in_order(found: dict[str, Any]) -> list[str]:
        sortable = all(isinstance(value, numbers) for value in found.values())
        return sorted(found, key=lambda text: found[text]) if sortable else list(found)

    return {name: in_order(found) for name, found in values.items() if len(found) > 1}


def _value(config: Record, name: str) -> str:
    value = config.get(name, "not set")
    if isinstance(value, (str, float)):
        return templates.without_bidi_controls(value) if isinstance(value, str) else f"{value:g}"
    return "none" if value in ({}, []) else json.dumps(value, sort_keys=True)


def _setting(record: Record, differing: Iterable[str]) -> dict[str, str]:
    return {name: _value(record["config"], name) for name in differing}


def _distinct(settings: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    return [setting for i, setting in enumerate(settings) if setting not in settings[:i]]


def _part(
    number: int, setting: dict[str, str], records: Sequence[Record], classes: Sequence[str] | None
) -> dict[str, Any]:
    """Everything that the page shows of the runs of one setting."""
    found = _in_groups(rows(records))
    return {
        "suffix": f"-{number + 1}" if number else "",  # makes ids unique on the page
        "setting": setting,
        "shots": _shots(records),
        "groups": _summary(found),
        "oracle": any("oracle" in row.rebalancer + row.posthoc for row in found),
        "labels": [row.label for row in found],
        "plots": study_plots(found, _class_names(records, classes)),
        "runs": [
            _run(record)
            for row in found
            if row.key == "test"
            for record in sorted(row.records, key=_seed)
        ],
    }


# ---- what was measured ----------------------------------------------------------------------------------------------


def _seed(record: Record) -> int:
    return int(record["config"]["seed"])


def _measured(records: Sequence[Record]) -> list[tuple[str, str]]:
    """What the figures were measured with; where runs differ, all their values."""
    environments = [record.get("environment", {}) for record in records]

    def distinct(name: str) -> str:
        return " / ".join(dict.fromkeys(str(one[name]) for one in environments if name in one))

    versions = {name for one in environments for name in one} - {
        "hardware",
        "device",
        "threads",
        "commit",
    }
    seconds = sum(record.get("seconds", 0) for record in records)
    facts = [
        ("Seeds", f"{len({_seed(record) for record in records})}"),
        ("Runs", f"{len(records)}, {format_duration(seconds)} of training in total"),
        ("Hardware", distinct("hardware") or distinct("device")),
        (
            "Versions",
            ", ".join(
                f"{name} {distinct(name)}"
                for name in sorted(versions, key=lambda name: (name != "ltpll", name))
            ),
        ),
        ("Commit", distinct("commit")),
    ]
    return [(name, value) for name, value in facts if value]


def _shots(records: Sequence[Record]) -> dict[str, str]:
    """The bounds of the three groups of classes, as text."""
    bounds = {(shots["many"], shots["few"]) for record in records if (shots := record.get("shots"))}
    if len(bounds) != 1:
        return dict.fromkeys(
            ("many", "medium", "few"),
            "bounds differ between runs" if bounds else "bounds not recorded",
        )
    many, few = bounds.pop()
    return {"many": f"> {many} examples", "medium": f"{few} to {many}", "few": f"< {few} examples"}


def _class_names(records: Sequence[Record], classes: Sequence[str] | None) -> list[str]:
    sizes = {len(record["last"]["test"]["per_class"]) for record in records}
    if len(sizes) > 1:
        raise InputError(
            f"Runs of one setting have {' and '.join(map(str, sorted(sizes)))} classes: make one page for each data set."
        )
    size = sizes.pop()
    if classes is None:
        classes = next(
            (record["classes"] for record in records if record.get("classes")),
            [str(c) for c in range(size)],
        )
    if len(classes) != size:
        raise InputError(
            f"There {are(len(classes))} {counted(len(classes), 'class name')} for {size} classes: give one name for each class."
        )
    return [str(name) for name in classes]


# ---- the tables -----------------------------------------------------------------------------------------------------


def _group(row: Row) -> tuple[str, tuple[str, ...], str]:
    return row.method, row.extras, row.setting


def _in_groups(found: Sequence[Row]) -> list[Row]:
    """Rows sorted by method, those without rebalancing first."""
    groups = list(dict.fromkeys(_group(row) for row in found))
    return sorted(found, key=lambda row: (groups.index(_group(row)), row.rebalancer != "none"))


def _summary(found: Sequence[Row]) -> list[list[dict[str, Any]]]:
    """The lines of the table, one list per method: a label, the figures as text, and which of them are the best of their method."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for i, row in enumerate(found):
        figures = [
            row.last("balanced_accuracy"),
            row.best(),
            row.last("many"),
            row.last("medium"),
            row.last("few"),
            row.target_recovery,
        ]
        line: dict[str, Any] = {
            "row": i,
            "label": row.label,
            "posthoc": row.key != "test",
            "n": row.n,
            "figures": figures,
            "cells": [],
        }
        groups.setdefault(_group(row), []).append(line | {"gain": _gain(row, found)})
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
    """The difference from the method without rebalancing as text, and its direction if it exceeds two standard errors."""
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
        "seed": _seed(record),
        "seconds": f"{record['seconds']:.1f}" if "seconds" in record else NOTHING,
        "last": f"{100 * last['balanced_accuracy']:.1f}",
        "best": f"{100 * best['test']['balanced_accuracy']:.1f}",
        "epoch": best.get("epoch", NOTHING),
        "config": templates.json_markup(record["config"], sort_keys=True),
        "environment": templates.json_markup(record.get("environment", {}), sort_keys=True),
    }
