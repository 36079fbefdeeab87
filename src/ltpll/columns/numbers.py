"""Columns of numbers and of dates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from ltpll.columns.bins import BINS, bin_edges, in_bins
from ltpll.columns.cells import Numbers, as_numbers, as_texts, as_times, date_order

HEAVY = 1.5  # deviations that hold 90 % of the rows of a column with heavy tails, or fewer
KNOTS = 64  # between which ranks are interpolated
# The period of each part of a date in days, and in which unit it is counted.
CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}
Encoded = npt.NDArray[np.float32]


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, centred and scaled; gaps are filled with the median and marked.

    Where few values lie far beyond all others, numbers are replaced by their ranks.
    """

    center: float
    scale: float
    median: float
    gaps: bool
    knots: tuple[float, ...] = ()
    places: tuple[float, ...] = ()
    edges: tuple[float, ...] = ()

    @classmethod
    def fit(cls, name: str, values: Any, numbers: str) -> Self:
        """Learn the scale, and with `numbers="bins"` the bins, from the training rows."""
        return cls.of(as_numbers(name, values), numbers)

    @classmethod
    def of(cls, found: Numbers, numbers: str) -> Self:
        """The column of these numbers."""
        known = found[~np.isnan(found)]
        center, scale = float(known.mean()), float(known.std())
        least, most = np.quantile(known, [0.05, 0.95])
        knots, places = _ranks(known) if most - least < HEAVY * scale else ((), ())
        return cls(
            center,
            scale or 1.0,
            float(np.median(known)),
            len(known) < len(found),
            knots,
            places,
            tuple(bin_edges(known, BINS).tolist()) if numbers == "bins" else (),
        )

    @property
    def names(self) -> list[str]:
        """What is appended to the name of the column for each output."""
        bins = [f" [{k + 1}]" for k in range(max(len(self.edges) - 1, 0))]
        return ["", *bins, *([" (missing)"] if self.gaps else [])]

    def encode(self, name: str, values: Any) -> Encoded:
        """The column as numbers of about size one, (rows, outputs)."""
        return self.of_numbers(as_numbers(name, values))

    def of_numbers(self, found: Numbers) -> Encoded:
        """The outputs of these numbers."""
        missing = np.isnan(found)
        filled = np.where(missing, self.median, found)
        plain = (filled - self.center) / self.scale
        if self.knots:
            plain = np.interp(filled, self.knots, self.places)
        parts = [plain[:, None].astype(np.float32)]
        if len(self.edges) > 1:
            parts.append(in_bins(filled, np.asarray(self.edges)))
        if self.gaps:
            parts.append(missing[:, None].astype(np.float32))
        return np.concatenate(parts, axis=1)


def _ranks(known: Numbers) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Values and the share of the rows below them, scaled to a deviation of one."""
    ordered = np.sort(known)
    rows = np.unique(np.linspace(0, len(known) - 1, KNOTS + 1).astype(int))
    knots = np.unique(ordered[rows])
    low, high = (np.searchsorted(ordered, knots, side) for side in ("left", "right"))
    places = ((low + high) / len(known) - 1) * np.sqrt(3)
    return tuple(knots.tolist()), tuple(places.tolist())


@dataclass(frozen=True)
class DateColumn:
    """A column of dates and times: when it was, and the time of the year, the week and the day."""

    time: NumberColumn
    order: Literal["iso", "day first", "month first"]
    cycles: tuple[str, ...]

    @classmethod
    def fit(cls, name: str, values: Any, numbers: str) -> Self:
        """Learn from the training rows how dates are written, and which parts of them vary."""
        import pandas as pd

        order = "iso"
        if not pd.api.types.is_datetime64_any_dtype(values):
            order = date_order(name, as_texts(values)) or "iso"
        days = as_times(name, values, order)
        known = days[~np.isnan(days)]
        span = float(np.ptp(known))
        cycles = [part for part, period in CYCLES.items() if np.ptp(known % period) > 0]
        if span < CYCLES["year"] / 2:  # the time itself says as much
            cycles = [part for part in cycles if part != "year"]
        return cls(NumberColumn.of(days, numbers), order, tuple(cycles))  # type: ignore[arg-type]

    @property
    def names(self) -> list[str]:
        """What is appended to the name of the column for each output."""
        return [
            *self.time.names,
            *(f" ({side} of the {part})" for part in self.cycles for side in ("sine", "cosine")),
        ]

    def encode(self, name: str, values: Any) -> Encoded:
        """The column as numbers of about size one, (rows, outputs)."""
        days = as_times(name, values, self.order)
        angles = [2 * np.pi * np.nan_to_num(days) / CYCLES[part] for part in self.cycles]
        waves = [wave(angle) for angle in angles for wave in (np.sin, np.cos)]
        columns = [np.where(np.isnan(days), 0, one).astype(np.float32) for one in waves]
        return np.column_stack([self.time.of_numbers(days), *columns])
