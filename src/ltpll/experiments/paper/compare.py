"""Compares finished runs with the paper's numbers, cell by cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ltpll.experiments.paper.catalog import ITEMS, Cell, Item
from ltpll.experiments.paper.grid import Finished, experiment_of, missing_parts
from ltpll.runs.summary import Comparison, Figure


@dataclass(frozen=True)
class ComparedCell:
    """One cell in percent: our figures at the last and the best test epoch, over seeds, and the published number."""

    last: Figure | None
    best: Figure | None
    published: float | None
    missing_parts: tuple[str, ...] = ()

    @property
    def difference(self) -> float | None:
        """Our figure at the last epoch minus the paper's."""
        return None if self.last is None or self.published is None else self.last.mean - self.published


def compare(item: Item, finished: Finished, seeds: int, changes: Mapping[str, Any]) -> list[list[ComparedCell]]:
    """Compare the cells of a table, line by line; `changes` are the settings in which the runs depart from the paper's protocol."""
    return [[_compare(cell, finished, seeds, changes) for cell in line.cells] for line in item.lines]


def _compare(cell: Cell, finished: Finished, seeds: int, changes: Mapping[str, Any]) -> ComparedCell:
    missing = tuple(missing_parts(cell.setting))
    if missing:
        return ComparedCell(None, None, cell.published, missing)
    wanted = [experiment_of(cell.setting, changes, seed) for seed in range(seeds)]
    records = [record for experiment in wanted if (record := finished.get(experiment)) is not None]
    last, best = (
        [_number(read(record).get(cell.figure)) for record in records]
        for read in (lambda record: record["last"][cell.row], lambda record: record["best"][cell.row][cell.row])
    )
    return ComparedCell(Figure.of(last), Figure.of(best), cell.published)


def _number(value: Any) -> float | None:
    """A figure in percent; None for curves and lists, which do not fit into a table."""
    return 100 * value if isinstance(value, float) else None


def cell_text(cell: ComparedCell) -> str:
    """The last epoch with its standard deviation, and the best epoch in brackets."""
    if cell.missing_parts:
        return f"{', '.join(cell.missing_parts)}: not built yet"
    if cell.last is None:
        return "–"
    return _spread(cell.last) + ("" if cell.best is None else f" (best {cell.best.mean:.2f})")


LARGE_DIFFERENCE = 2.0  # percentage points; a larger difference from the paper is marked


def comparison_tables(finished: Finished, seeds: int) -> list[Comparison]:
    """Every table of the paper that has runs, for a results page."""
    found = []
    for item in ITEMS.values():
        cells = _cells_with_runs(item, compare(item, finished, seeds, {}))
        if any(cell.published is not None for _, cell in cells):
            rows = [(texts, cell.difference is not None and abs(cell.difference) > LARGE_DIFFERENCE) for texts, cell in cells]
            found.append(Comparison(f"{item.where}: {item.title}", COLUMNS, rows))
    return found


COLUMNS = ("setting", "row", "last epoch (%)", "best epoch (%)", "n", "paper", "last − paper")


def _spread(figure: Figure | None) -> str:
    return "–" if figure is None else f"{figure.mean:.2f}" + ("" if figure.std is None else f" ± {figure.std:.2f}")


def _paper_and_difference(cell: ComparedCell) -> tuple[str, str]:
    paper = "–" if cell.published is None else f"{cell.published:.2f}"
    return paper, "–" if cell.difference is None else f"{cell.difference:+.2f}"


def _cells_with_runs(item: Item, compared: list[list[ComparedCell]]) -> list[tuple[list[str], ComparedCell]]:
    """One row of texts per cell that has runs; most cells of a wide table would be empty."""
    return [
        ([column, line.label, _spread(cell.last), _spread(cell.best), str(cell.last.n), *_paper_and_difference(cell)], cell)
        for number, column in enumerate(item.columns)
        for line, cells in zip(item.lines, compared, strict=True)
        if (cell := cells[number]).last is not None
    ]


def markdown_table(item: Item, compared: list[list[ComparedCell]]) -> str:
    rows = [f"| {' | '.join(texts)} |" for texts, _ in _cells_with_runs(item, compared)]
    head = ["| " + " | ".join(COLUMNS) + " |", "|---|---|---:|---:|---:|---:|---:|"]
    return "\n".join([*head, *rows]) if rows else "*No runs yet.*"
