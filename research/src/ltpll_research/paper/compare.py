"""Compares finished runs with the paper's numbers, cell by cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ltpll_research.benchmark import EDITION, Experiment
from ltpll_research.paper.catalog import Cell, Item, Setting
from ltpll_research.paper.grid import Finished, experiment_of, missing_parts
from ltpll_research.summary import Figure

LARGE_DIFFERENCE = 2.0  # percentage points; a larger difference from the paper is marked


@dataclass(frozen=True)
class ComparedCell:
    """One cell in percent: our figures at the last and the best test epoch, and the paper's."""

    last: Figure | None
    best: Figure | None
    published: float | None
    missing_parts: tuple[str, ...] = ()
    # From the protocol of its line, such as "200 epochs"; empty without runs.
    departures: tuple[str, ...] = ()
    edition: int = EDITION  # of the runs

    @property
    def manner(self) -> tuple[str, ...]:
        """How the runs were trained, where that is not what the protocol of the line says now."""
        edition = () if self.edition == EDITION else (f"edition {self.edition}",)
        return (*self.departures, *edition)

    @property
    def difference(self) -> float | None:
        """Our figure at the last epoch minus the paper's."""
        if self.last is None or self.published is None:
            return None
        return self.last.mean - self.published

    @property
    def is_far(self) -> bool:
        """Whether the difference is large enough to be marked."""
        return self.difference is not None and abs(self.difference) > LARGE_DIFFERENCE


def compare(
    item: Item, finished: Finished, seeds: int, changes: Mapping[str, Any]
) -> list[list[ComparedCell]]:
    """Compare the cells of a table, line by line, with runs that depart by `changes`."""
    return [
        [_compare(cell, finished, seeds, changes) for cell in line.cells] for line in item.lines
    ]


def _compare(
    cell: Cell, finished: Finished, seeds: int, changes: Mapping[str, Any]
) -> ComparedCell:
    missing = tuple(missing_parts(cell.setting))
    if missing:
        return ComparedCell(None, None, cell.published, missing)
    wanted = [experiment_of(cell.setting, changes, seed) for seed in range(seeds)]
    records = finished.newest(wanted)
    figure = Figure.of(_number(one["last"][cell.row].get(cell.figure)) for one in records)
    if figure is None:
        return ComparedCell(None, None, cell.published)
    made = Experiment.from_config(records[0]["config"])
    best = Figure.of(_number(one["best"][cell.row][cell.row].get(cell.figure)) for one in records)
    manner = departures(made, cell.setting)
    return ComparedCell(figure, best, cell.published, (), manner, made.edition)


# Entries of a config that say what was trained and where, not how.
WHAT = {"data", "content", "imbalance", "sets", "ambiguity", "superclass", "within_superclass"}
WHAT |= {"precision", "seed"}
PARTS = {"method", "rebalancer", "extras", "options"}
NOT_PROTOCOL = {*WHAT, *PARTS, "epochs", "edition"}  # the last two are named in words


def departures(made: Experiment, setting: Setting) -> tuple[str, ...]:
    """In which settings an experiment departs from the protocol; another length comes first.

    Stages and milestones that are only as long as another number of epochs makes them do not count.

    Examples:
        >>> usual = {"data": "cifar10", "method": "corr"}
        >>> departures(Experiment("cifar10", epochs=200, lr=0.05), usual)
        ('200 epochs', 'lr = 0.05')
    """
    usual = experiment_of(setting, {}, 0)
    found = []
    if made.epochs != usual.epochs:
        found.append(f"{made.epochs} epochs")
        usual = experiment_of(setting, {"epochs": made.epochs}, 0)
    names = [one.name for one in fields(Experiment) if one.name not in NOT_PROTOCOL]
    changed = [name for name in names if getattr(made, name) != getattr(usual, name)]
    return (*found, *(f"{name} = {getattr(made, name)}" for name in changed))


def _number(value: Any) -> float | None:
    """A figure in percent; None for curves and lists, which do not fit into a table."""
    return 100 * value if isinstance(value, float) else None


def cell_text(cell: ComparedCell) -> str:
    """The last epoch with its deviation, the best epoch in brackets, and an earlier edition."""
    if cell.missing_parts:
        return f"{', '.join(cell.missing_parts)}: not built yet"
    if cell.last is None:
        return "–"
    best = "" if cell.best is None else f" (best {cell.best.mean:.2f})"
    edition = "" if cell.edition == EDITION else f", edition {cell.edition}"
    return figure_text(cell.last) + best + edition


def figure_text(figure: Figure) -> str:
    """The mean, and with several seeds the standard deviation."""
    return f"{figure.mean:.2f}" + ("" if figure.std is None else f" ± {figure.std:.2f}")
