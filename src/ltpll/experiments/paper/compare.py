"""Comparison: our finished runs beside the paper's numbers, cell by cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ltpll.experiments.paper.grid import Finished, experiment_of, unbuilt
from ltpll.experiments.paper.items import ITEMS, Cell, Item
from ltpll.runs.summary import Comparison, Figure


@dataclass(frozen=True)
class Compared:
    """One cell: ours at the last and at the best test epoch, over seeds, and what was published, all in percent."""

    last: Figure | None
    best: Figure | None
    published: float | None
    unbuilt: tuple[str, ...] = ()

    @property
    def difference(self) -> float | None:
        """Ours at the last epoch less the paper's."""
        return None if self.last is None or self.published is None else self.last.mean - self.published


def compare(item: Item, finished: Finished, seeds: int, changes: Mapping[str, Any]) -> list[list[Compared]]:
    """The cells of a table, line by line; `changes` are departures from the paper's protocol that the runs were made with."""
    return [[_compare(cell, finished, seeds, changes) for cell in line.cells] for line in item.lines]


def _compare(cell: Cell, finished: Finished, seeds: int, changes: Mapping[str, Any]) -> Compared:
    missing = tuple(unbuilt(cell.setting))
    if missing:
        return Compared(None, None, cell.published, missing)
    wanted = [experiment_of(cell.setting, changes, seed) for seed in range(seeds)]
    records = [record for experiment in wanted if (record := finished.get(experiment)) is not None]
    last, best = (
        [_number(read(record).get(cell.figure)) for record in records]
        for read in (lambda record: record["last"][cell.row], lambda record: record["best"][cell.row][cell.row])
    )
    return Compared(Figure.of(last), Figure.of(best), cell.published)


def _number(value: Any) -> float | None:
    """In percent; a figure that is a curve or a list has no place in a table."""
    return 100 * value if isinstance(value, float) else None


def cell_text(cell: Compared) -> str:
    """Last epoch with its spread, best epoch in brackets, and the paper's number."""
    if cell.unbuilt:
        return f"{', '.join(cell.unbuilt)}: not built yet"
    if cell.last is None:
        return "–"
    return _spread(cell.last) + ("" if cell.best is None else f" (best {cell.best.mean:.2f})")


FAR = 2.0  # points of difference to the paper that ask for a reason


def comparisons(finished: Finished, seeds: int) -> list[Comparison]:
    """For a results page: every table of the paper of which there are runs."""
    found = []
    for item in ITEMS.values():
        known = _known(item, compare(item, finished, seeds, {}))
        if any(cell.published is not None for _, cell in known):
            rows = [(texts, cell.difference is not None and abs(cell.difference) > FAR) for texts, cell in known]
            found.append(Comparison(f"{item.where}: {item.title}", COLUMNS, rows))
    return found


COLUMNS = ("setting", "row", "last epoch (%)", "best epoch (%)", "n", "paper", "last − paper")


def _spread(figure: Figure | None) -> str:
    return "–" if figure is None else f"{figure.mean:.2f}" + ("" if figure.std is None else f" ± {figure.std:.2f}")


def _against(cell: Compared) -> tuple[str, str]:
    paper = "–" if cell.published is None else f"{cell.published:.2f}"
    return paper, "–" if cell.difference is None else f"{cell.difference:+.2f}"


def _known(item: Item, compared: list[list[Compared]]) -> list[tuple[list[str], Compared]]:
    """The cells that have runs, one row each with its texts: a wide table with most cells empty helps nobody."""
    return [
        ([column, line.label, _spread(cell.last), _spread(cell.best), str(cell.last.n), *_against(cell)], cell)
        for number, column in enumerate(item.columns)
        for line, cells in zip(item.lines, compared, strict=True)
        if (cell := cells[number]).last is not None
    ]


def markdown(item: Item, compared: list[list[Compared]]) -> str:
    rows = [f"| {' | '.join(texts)} |" for texts, _ in _known(item, compared)]
    head = ["| " + " | ".join(COLUMNS) + " |", "|---|---|---:|---:|---:|---:|---:|"]
    return "\n".join([*head, *rows]) if rows else "*No runs yet.*"
