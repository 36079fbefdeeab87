"""Summary: run records grouped into the rows of a table, with mean and standard deviation."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ltpll.errors import InputError
from ltpll.runs.schema import Record

# What distinguishes the runs of one table; `code` differs between versions of the program that are
# compared on purpose.
NOT_SETTING = {"method", "rebalancer", "extras", "seed", "code"}


@dataclass(frozen=True)
class Figure:
    """The mean over runs, the sample standard deviation and the number of runs."""

    mean: float
    std: float | None  # None for a single run
    n: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Figure | None:
        """The figure of the values that are known; None if there are none."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        std = statistics.stdev(known) if len(known) > 1 else None
        return cls(statistics.fmean(known), std, len(known))

    def percent(self) -> str:
        spread = "" if self.std is None else f" ± {100 * self.std:.1f}"
        return f"{100 * self.mean:.1f}{spread}"


@dataclass(frozen=True)
class Row:
    """One row of a table: a method with a rebalancer in one setting, over all seeds."""

    method: str
    rebalancer: str
    extras: tuple[str, ...]
    posthoc: str  # the name of an adjustment of the trained model, or empty
    # All other entries of the config but the seed, as text; only rows of one setting are compared.
    setting: str
    records: tuple[Record, ...]

    @property
    def key(self) -> str:
        """The key of the row's figures in a record."""
        return self.posthoc or "test"

    @property
    def label(self) -> str:
        rebalancers = [name for name in (self.rebalancer, self.posthoc) if name not in ("none", "")]
        return " + ".join([self.method, *self.extras, *rebalancers])

    @property
    def bare(self) -> bool:
        """Whether this is the method without rebalancing, with which other rows are compared."""
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
    """Group records into rows; a post-hoc row follows the row that it adjusts.

    Args:
        records: The records of benchmark runs or of a study.

    Raises:
        InputError: Two runs differ in nothing, not even in their seed.
    """
    groups: dict[tuple[str, str, tuple[str, ...], str], list[Record]] = {}
    for record in records:
        config = record["config"]
        kept = {key: value for key, value in config.items() if key not in NOT_SETTING}
        parts = (config["method"], config["rebalancer"], tuple(config.get("extras", ())))
        groups.setdefault((*parts, json.dumps(kept, sort_keys=True)), []).append(record)
    table = []
    for (method, rebalancer, extras, setting), group in groups.items():
        _check_seeds(group)
        posthoc = {name: None for record in group for name in record.get("posthoc", ())}
        for name in ["", *posthoc]:
            having = [one for one in group if not name or name in one.get("posthoc", ())]
            table.append(Row(method, rebalancer, extras, name, setting, tuple(having)))
    return table


def _check_seeds(group: Sequence[Record]) -> None:
    seen: dict[int, str] = {}
    for record in group:
        seed, key = record["config"]["seed"], str(record.get("key", "?"))
        if seed in seen:
            raise InputError(
                f"The runs {seen[seed]} and {key} are the same experiment with the same seed "
                f"{seed}: leave one of them out."
            )
        seen[seed] = key


def paired(row: Row, other: Row, read: Callable[[Record, str], float | None]) -> Figure | None:
    """The difference of two rows over the seeds that both have."""

    def by_seed(row: Row) -> dict[int, float]:
        found = {one["config"]["seed"]: read(one, row.key) for one in row.records}
        return {seed: value for seed, value in found.items() if value is not None}

    mine, others = by_seed(row), by_seed(other)
    return Figure.of(mine[seed] - others[seed] for seed in sorted(mine.keys() & others.keys()))
