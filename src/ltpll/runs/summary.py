"""Summaries: run records grouped into the rows of a table, with mean, standard deviation and number of seeds."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ltpll.errors import InputError

Record = dict[str, Any]
# What tells the runs of one table apart; `code` differs between versions of the program that are compared on purpose.
NOT_SETTING = {"method", "rebalancer", "extras", "seed", "code"}


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
    """One line of a table: a method with a rebalancer in one setting, over all its seeds."""

    method: str
    rebalancer: str
    extras: tuple[str, ...]
    posthoc: str  # the name of an adjustment of the finished model, or empty
    setting: str  # every other entry of the config but the seed, as text: what rows must share to be compared
    records: tuple[Record, ...]

    @property
    def key(self) -> str:
        """Where the row's figures stand in a record."""
        return self.posthoc or "test"

    @property
    def label(self) -> str:
        rebalancers = [name for name in (self.rebalancer, self.posthoc) if name not in ("none", "")]
        return " + ".join([self.method, *self.extras, *rebalancers])

    @property
    def bare(self) -> bool:
        """Whether this is the method without any rebalancing, which the others are compared with."""
        return self.rebalancer == "none" and not self.posthoc

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
    """Group records into rows, in order of first appearance; a post-hoc row follows the row of the runs that it adjusts."""
    groups: dict[tuple[str, str, tuple[str, ...], str], list[Record]] = {}
    for record in records:
        config = record["config"]
        setting = json.dumps({key: value for key, value in config.items() if key not in NOT_SETTING}, sort_keys=True)
        groups.setdefault((config["method"], config["rebalancer"], tuple(config.get("extras", ())), setting), []).append(record)
    table = []
    for (method, rebalancer, extras, setting), group in groups.items():
        _check_seeds(group)
        posthoc = {name: None for record in group for name in record.get("posthoc", ())}
        for name in ["", *posthoc]:
            having = tuple(record for record in group if not name or name in record.get("posthoc", ()))
            table.append(Row(method, rebalancer, extras, name, setting, having))
    return table


def _check_seeds(group: Sequence[Record]) -> None:
    seen: dict[int, str] = {}
    for record in group:
        seed, key = record["config"]["seed"], str(record.get("key", "?"))
        if seed in seen:
            raise InputError(f"The runs {seen[seed]} and {key} are the same experiment with the same seed {seed}: leave one of them out.")
        seen[seed] = key


def difference(row: Row, table: Sequence[Row]) -> tuple[Figure, float] | None:
    """What a row gains over its method without rebalancing, in last-epoch balanced accuracy: paired by seed, with its standard error.

    Pairing takes out what the draw of data adds to both alike. None if there is nothing to compare with, or only one seed.
    """
    other = next(
        (one for one in table if one.bare and (one.method, one.extras, one.setting) == (row.method, row.extras, row.setting)), None
    )
    if other is None or row.bare:
        return None

    def by_seed(one: Row) -> dict[int, float]:
        return {record["config"]["seed"]: record["last"][one.key]["balanced_accuracy"] for record in one.records}

    mine, theirs = by_seed(row), by_seed(other)
    figure = Figure.of(mine[seed] - theirs[seed] for seed in sorted(mine.keys() & theirs.keys()))
    if figure is None or figure.std is None:
        return None
    return figure, figure.std / math.sqrt(figure.n)


@dataclass(frozen=True)
class Comparison:
    """A table of numbers beside others' (such as a paper's): a row is text for each column, and whether to mark its last one."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[Sequence[str], bool]]
