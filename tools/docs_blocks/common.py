"""What the blocks of several pages share: records, figures and tables as text."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ltpll.runs.run import Record
from ltpll_research.summary import Figure

ROOT = Path(__file__).resolve().parents[2]


def measured_on(records: Sequence[Record]) -> str:
    """Hardware, versions and commit, from the records."""

    def distinct(name: str) -> str:
        return " / ".join(sorted({str(record["environment"][name]) for record in records}))

    return (
        f"*{len(records)} runs on {distinct('hardware')} ({distinct('threads')} thread per "
        f"run), Python {distinct('python')}, "
        f"torch {distinct('torch')}, commit {distinct('commit')}.*"
    )


def record_of(path: str) -> Record:
    """A record in results/."""
    found: Record = json.loads((ROOT / "results" / path).read_text(encoding="utf-8"))
    return found


def records_in(folder: str) -> list[Record]:
    """The records in a folder of results/, in the order of their names."""
    paths = sorted((ROOT / "results" / folder).glob("*.json"))
    return [record_of(f"{folder}/{path.name}") for path in paths]


def grouped(records: Iterable[Record], *names: str) -> dict[tuple[Any, ...], list[Record]]:
    """Records by the values of some of their entries."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in names), []).append(record)
    return groups


def table_head(*columns: object, texts: int = 1) -> list[str]:
    """The first two lines of a Markdown table, whose first columns hold texts and others numbers."""
    line = "|" + "---|" * texts + "---:|" * (len(columns) - texts)
    return [table_row(*columns), line]


def table_row(*cells: object) -> str:
    """A line of a Markdown table."""
    return "|".join(["", *(f" {cell} " if cell != "" else " " for cell in cells), ""])


def block(*parts: str | Sequence[str]) -> str:
    """Paragraphs, and tables as lists of lines, with an empty line between any two."""
    return "\n\n".join(part if isinstance(part, str) else "\n".join(part) for part in parts)


def percent(figure: Figure | None) -> str:
    return "–" if figure is None else figure.percent()


def bench_records(name: str) -> list[Record]:
    paths = sorted((ROOT / "results" / "bench").glob(f"{name}-*.json"))
    return [record_of(f"bench/{path.name}") for path in paths]


RELABELLED = {  # rows whose name in the record has been improved since
    (
        "targets worked out beside the backward pass"
    ): "targets refined in parallel with the backward pass",
    (
        "also: weights' gradients on a stream of their own"
    ): "also: weight gradients on a separate stream",
    "the network alone, on one batch again and again": "the network alone, on a single batch",
}


def over_folds(values: list[float]) -> str:
    return f"{100 * statistics.mean(values):.1f}" + (
        f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    )


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def at_epochs(curves: Record, values: Sequence[float], epochs: Iterable[int]) -> list[float]:
    """The values of a curve at these epochs; runs of different versions keep different ones."""
    by_epoch = dict(zip(curves["epoch"], values, strict=True))
    return [by_epoch[epoch] for epoch in epochs]
