"""Plots: the data of the lines that the page of a study draws, and the figure of an estimated prior."""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ltpll.report.templates import without_bidi_controls
from ltpll.runs.schema import Record
from ltpll_research.summary import Figure, Row

LONGEST_NAME = 24
# Readable on light and on dark pages.
BLUE, ORANGE, GREY = "#2f8fd6", "#ee7733", "#858b91"

# From a record, or from its curves, and the key of a row: one value per class, or per epoch.
Read = Callable[[Record, str], Sequence[float | None] | None]


@dataclass(frozen=True)
class Series:
    """One line of a plot: for every x, a figure over seeds."""

    row: int | None  # the row of the table that it belongs to, or None for what all rows share
    name: str
    what: str  # which of the row's lines it is, in a plot with several lines per row
    x: Sequence[Any]
    figures: list[Figure | None]
    bounds: tuple[Sequence[float], Sequence[float]] | None = None  # lower and upper

    def data(self, scale: float) -> dict[str, Any]:
        def numbers(values: Iterable[float | None]) -> list[float | None]:
            return [
                None if value is None or not math.isfinite(value) else round(scale * value, 5)
                for value in values
            ]

        name = f"{self.name}, {self.what}" if self.what and self.row is not None else self.name
        return {
            "row": self.row,
            "what": self.what,
            "name": _plain(name),
            "x": list(self.x),
            "y": numbers(figure.mean if figure else None for figure in self.figures),
            "spread": numbers(figure.std if figure else None for figure in self.figures),
            **(
                {}
                if self.bounds is None
                else {"lower": numbers(self.bounds[0]), "upper": numbers(self.bounds[1])}
            ),
        }


@dataclass(frozen=True)
class Plot:
    """One plot; study.html has its title and caption by name, and study.js draws it."""

    name: str
    y: str
    series: list[Series]
    x: str = "epoch"
    unit: str = " %"
    log: bool = False
    uniform: float | None = None

    @property
    def rows(self) -> list[int]:
        return sorted({one.row for one in self.series if one.row is not None})

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """What the lines of a row show, for the legend."""
        return list(
            dict.fromkeys(
                (one.what, one.what if one.row is not None else one.name)
                for one in self.series
                if one.what
            )
        )

    def data(self) -> dict[str, Any]:
        series = [one.data(100 if self.unit == " %" else 1) for one in self.series]
        return {
            "y": self.y,
            "x": self.x,
            "unit": self.unit,
            "log": self.log,
            "uniform": self.uniform,
            "series": series,
        }


def study_plots(found: Sequence[Row], classes: Sequence[str]) -> list[Plot]:
    """All plots that the records have data for."""
    trained = [
        row for row in found if row.key == "test"
    ]  # a post-hoc row has the targets of the run it comes from
    estimating = [
        row for row in trained if any("prior" in record["last"] for record in row.records)
    ]
    counted = [
        record["class_counts"]
        for row in trained
        for record in row.records
        if record.get("class_counts")
    ]
    counts = [sum(values) / len(values) for values in zip(*counted, strict=True)]
    order = sorted(range(len(classes)), key=lambda c: -counts[c] if counts else 0)
    axis = "class (training examples)" if counts else "class"
    labels = _unique(
        [
            _isolated(_plain(_short(classes[c]))) + (f" ({counts[c]:.0f})" if counts else "")
            for c in order
        ]
    )

    def by_class(shown: Sequence[Row], read: Read, what: str = "") -> list[Series]:
        series = []
        for row in shown:
            columns = [
                values for record in row.records if (values := read(record, row.key)) is not None
            ]
            series.append(
                Series(
                    found.index(row),
                    row.label,
                    what,
                    labels,
                    [Figure.of(values[c] for values in columns) for c in order],
                )
            )
        return series

    def by_epoch(shown: Sequence[Row], read: Read, what: str = "") -> list[Series]:
        series = []
        for row in shown:
            curves = [record.get("curves", {}) for record in row.records]
            columns = [
                dict(zip(one["epoch"], values, strict=True))
                for one in curves
                if (values := read(one, row.key)) is not None
            ]
            # Only epochs that all seeds have: a mean over other seeds at every other epoch would zigzag.
            epochs = sorted(set.intersection(*map(set, columns))) if columns else []
            figures = [Figure.of(column[epoch] for column in columns) for epoch in epochs]
            series.append(Series(found.index(row), row.label, what, epochs, figures))
        return series

    priors = by_class(estimating, lambda record, _: record["last"].get("prior"), "estimated prior")
    priors += by_class(
        estimating, lambda record, _: record["last"].get("mean_target"), "mean target"
    )
    from_sets = [
        record["prior"] for row in trained for record in row.records if record.get("prior")
    ]
    if from_sets:
        # The runs of a setting have the same kind of sets, whatever their method is.
        means = {
            name: [sum(prior[name][c] for prior in from_sets) / len(from_sets) for c in order]
            for name in ("estimate", "lower", "upper")
        }
        estimates: list[Figure | None] = [Figure(share, None, 1) for share in means["estimate"]]
        priors.append(
            Series(
                None,
                "estimated from the sets",
                "sets",
                labels,
                estimates,
                (means["lower"], means["upper"]),
            )
        )
    if counts and priors:
        frequencies: list[Figure | None] = [Figure(counts[c] / sum(counts), None, 1) for c in order]
        priors.append(Series(None, "true class frequencies", "truth", labels, frequencies))
    distances = by_epoch(trained, lambda curves, _: curves.get("prior_distance"), "estimated prior")
    distances += by_epoch(
        trained, lambda curves, _: curves.get("mean_target_distance"), "mean target"
    )
    predictions = by_class(found, lambda record, key: record["last"][key].get("mean_prediction"))
    plots = [
        Plot(
            "accuracy",
            "balanced test accuracy (%)",
            by_epoch(found, lambda curves, key: curves.get("accuracy", {}).get(key)),
        ),
        Plot(
            "per-class",
            "test accuracy (%)",
            by_class(found, lambda record, key: record["last"][key].get("per_class")),
            axis,
        ),
        Plot(
            "recovery",
            "training examples (%)",
            by_epoch(trained, lambda curves, _: curves.get("target_recovery")),
        ),
        Plot("prior", "share of the class (%), log scale", priors, axis, log=True),
        Plot("distance", "Euclidean distance", distances, unit=""),
        Plot("prediction", "average prediction (%)", predictions, axis, uniform=100 / len(classes)),
    ]
    filled = [
        replace(plot, series=[one for one in plot.series if any(one.figures)]) for plot in plots
    ]
    return [plot for plot in filled if plot.series]


def _plain(text: str) -> str:
    """Escape text, since plotly interprets names and ticks as markup."""
    return html.escape(without_bidi_controls(text), quote=False)  # plotly does not know &quot;


def _isolated(text: str) -> str:
    """Keep text that is written from right to left by itself; plotly has no elements for that."""
    backwards = any(unicodedata.bidirectional(letter) in ("R", "AL", "AN") for letter in text)
    return f"\N{FIRST STRONG ISOLATE}{text}\N{POP DIRECTIONAL ISOLATE}" if backwards else text


def _short(name: str) -> str:
    """Shorten a name; long names would leave no room for the plot."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def _unique(labels: Sequence[str]) -> list[str]:
    """Number labels that occur twice, since plotly draws equal labels at one position."""
    return [f"{label} #{i}" if labels.count(label) > 1 else label for i, label in enumerate(labels)]
