"""Page: the comparison of runs as one HTML file that opens offline."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ltpll.formatting import format_duration
from ltpll.report import templates
from ltpll.runs.schema import Record
from ltpll_research.comparing.pictures import draw_problems
from ltpll_research.comparing.systems import Problem


def write_page(path: Path, problems: Sequence[Problem], **contents: Any) -> None:
    """Write the page that `render_page` renders."""
    templates.write(path, render_page(problems, **contents))


def render_page(problems: Sequence[Problem], *, title: str, intro: Sequence[str] = ()) -> str:
    """Render what `compare_systems` found as HTML, with paragraphs below the title."""
    found = [
        one for problem in problems for system in problem.systems for one in system.row.records
    ]
    records = list({record["key"]: record for record in found}.values())
    styles = [templates.read_asset(name, __package__) for name in ("page.css", "comparison.css")]
    return templates.render(
        "comparison.html",
        title=title,
        styles=styles,
        scripts=[],
        package=__package__,
        intro=intro,
        measured=_measured(records),
        problems=problems,
        pictures_of=[base64.b64encode(draw_problems([one])).decode() for one in problems],
        runs=[
            (record["key"], templates.json_markup([record["config"], record.get("environment")]))
            for record in records
        ],
    )


def _measured(records: Sequence[Record]) -> list[tuple[str, str]]:
    """What the figures were measured with; where runs differ, all their values."""
    environments = [record.get("environment", {}) for record in records]

    def distinct(name: str) -> str:
        return " / ".join(dict.fromkeys(str(one[name]) for one in environments if name in one))

    seconds = sum(record.get("seconds", 0) for record in records)
    packages = ("ltpll", "torch", "numpy", "python")
    facts = {
        "Seeds": str(len({record["config"]["seed"] for record in records})),
        "Runs": f"{len(records)}, {format_duration(seconds)} of training in total",
        "Hardware": distinct("hardware") or distinct("device"),
        "Versions": ", ".join(f"{name} {distinct(name)}" for name in packages if distinct(name)),
        "Commit": distinct("commit"),
    }
    return [(name, value) for name, value in facts.items() if value]
