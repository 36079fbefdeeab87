"""Summaries: run records grouped into the rows of a table, with mean, standard deviation and number of seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """The mean over runs, the sample standard deviation (None for one run) and the number of runs."""

    mean: float
    std: float | None
    n: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Figure | None:
        """None if no run has a value."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))

    def percent(self) -> str:
        spread = "" if self.std is None else f" ± {100 * self.std:.1f}"
        return f"{100 * self.mean:.1f}{spread}"


@dataclass(frozen=True)
class Row:
    """One line of a table: a method with a rebalancer, over all its seeds."""

    method: str
    rebalancer: str
    extras: tuple[str, ...]
    records: tuple[Record, ...]
    key: str  # where the row's figures stand in a record: "test", or the name of a post-hoc adjustment

    @property
    def label(self) -> str:
        return " + ".join([self.method, *self.extras]) + ("" if self.rebalancer == "none" else f" + {self.rebalancer}")

    @property
    def n(self) -> int:
        return len(self.records)

    def figure(self, read: Callable[[Record, str], float | None]) -> Figure | None:
        return Figure.of(read(record, self.key) for record in self.records)

    def last(self, name: str) -> Figure | None:
        """A test figure at the last epoch."""
        return self.figure(lambda record, key: record["last"][key][name])

    def best(self, name: str = "balanced_accuracy") -> Figure | None:
        """A test figure at each run's best test epoch."""
        return self.figure(lambda record, key: record["best"][key][key][name])

    @property
    def target_recovery(self) -> Figure | None:
        return self.figure(lambda record, key: record["last"].get("target_recovery"))


def rows(records: Sequence[Record]) -> list[Row]:
    """Group records by method, extras and rebalancer, in order of first appearance; post-hoc figures follow the run they come from."""
    groups: dict[tuple[str, str, tuple[str, ...], str], list[Record]] = {}
    for record in records:
        config = record["config"]
        extras = tuple(config.get("extras", ()))
        groups.setdefault((config["method"], config["rebalancer"], extras, "test"), []).append(record)
        for name in record.get("posthoc", ()):
            groups.setdefault((config["method"], name, extras, name), []).append(record)
    return [Row(method, rebalancer, extras, tuple(group), key) for (method, rebalancer, extras, key), group in groups.items()]


def difference(row: Row, other: Row) -> tuple[Figure, float] | None:
    """The paired difference in last-epoch balanced accuracy over the seeds both rows have, and its standard error.

    Pairing by seed takes out what the draw of data adds to both rows alike.
    """

    def by_seed(one: Row) -> dict[int, float]:
        return {record["config"]["seed"]: record["last"][one.key]["balanced_accuracy"] for record in one.records}

    mine, theirs = by_seed(row), by_seed(other)
    figure = Figure.of(mine[seed] - theirs[seed] for seed in sorted(mine.keys() & theirs.keys()))
    if figure is None or figure.std is None:
        return None
    return figure, figure.std / math.sqrt(figure.n)
