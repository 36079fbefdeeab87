"""Plots: the data of the lines that the page of a study draws."""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ltpll.report.templates import without_bidi_controls
from ltpll.runs.schema import Record
from ltpll_research.summary import Figure, Row

LONGEST_NAME = 24

# From a record, or from its curves, and the key of a row: one value per class, or per epoch.
Read = Callable[[Record, str], Sequence[float | None] | None]


@dataclass(frozen=True)
class Series:
    """One line of a plot: for every x, a figure over seeds."""

    row: int | None  # the row of the table that it belongs to, or None for what all rows share
    name: str
    what: str  # which of the row's lines it is, in a plot with several lines per row
    x: Sequence[Any]
    figures: Sequence[Figure | None]
    bounds: tuple[Sequence[float], Sequence[float]] | None = None  # lower and upper

    def data(self, scale: float) -> dict[str, Any]:
        def numbers(values: Iterable[float | None]) -> list[float | None]:
            return [
                None if value is None or not math.isfinite(value) else round(scale * value, 5)
                for value in values
            ]

        name = f"{self.name}, {self.what}" if self.what and self.row is not None else self.name
        made = {
            "row": self.row,
            "what": self.what,
            "name": _plain(name),
            "x": list(self.x),
            "y": numbers(figure.mean if figure else None for figure in self.figures),
            "spread": numbers(figure.std if figure else None for figure in self.figures),
        }
        if self.bounds is not None:
            made["lower"], made["upper"] = map(numbers, self.bounds)
        return made


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
        found = [(one.what, one.name if one.row is None else one.what) for one in self.series]
        return list(dict.fromkeys(kind for kind in found if kind[0]))

    def data(self) -> dict[str, Any]:
        made: dict[str, Any] = {
            name: getattr(self, name) for name in ("y", "x", "unit", "log", "uniform")
        }
        return made | {"series": [one.data(100 if self.unit == " %" else 1) for one in self.series]}


def study_plots(found: Sequence[Row], classes: Sequence[str]) -> list[Plot]:
    """All plots that the records have data for."""
    # A post-hoc row has the targets of the run that it comes from.
    trained = [row for row in found if row.key == "test"]
    records = [record for row in trained for record in row.records]
    estimating = [row for row in trained if any("prior" in one["last"] for one in row.records)]
    counted = [record["class_counts"] for record in records if record.get("class_counts")]
    counts = [sum(values) / len(values) for values in zip(*counted, strict=True)]
    order = sorted(range(len(classes)), key=lambda c: -counts[c] if counts else 0)
    axis = "class (training examples)" if counts else "class"
    labels = []
    for c in order:
        examples = f" ({counts[c]:.0f})" if counts else ""
        labels.append(_isolated(_plain(_short(classes[c]))) + examples)
    # Plotly draws equal labels at one position.
    labels = [f"{one} #{i}" if labels.count(one) > 1 else one for i, one in enumerate(labels)]

    def by_class(shown: Sequence[Row], read: Read, what: str = "") -> list[Series]:
        series = []
        for row in shown:
            columns = [values for one in row.records if (values := read(one, row.key)) is not None]
            figures = [Figure.of(values[c] for values in columns) for c in order]
            series.append(Series(found.index(row), row.label, what, labels, figures))
        return series

    def by_epoch(shown: Sequence[Row], read: Read, what: str = "") -> list[Series]:
        series = []
        for row in shown:
            columns = []
            for record in row.records:
                curves = record.get("curves", {})
                if (values := read(curves, row.key)) is not None:
                    columns.append(dict(zip(curves["epoch"], values, strict=True)))
            # Only epochs that all seeds have: a mean over other seeds at every other epoch would
            # zigzag.
            epochs = sorted(set.intersection(*map(set, columns))) if columns else []
            figures = [Figure.of(column[epoch] for column in columns) for epoch in epochs]
            series.append(Series(found.index(row), row.label, what, epochs, figures))
        return series

    def of_last(name: str) -> Read:
        return lambda record, _: record["last"].get(name)

    def of_row(name: str) -> Read:
        return lambda record, key: record["last"][key].get(name)

    def curve(name: str) -> Read:
        return lambda curves, _: curves.get(name)

    priors = by_class(estimating, of_last("prior"), "estimated prior")
    priors += by_class(estimating, of_last("mean_target"), "mean target")
    # The runs of a setting have the same kind of sets, whatever their method is.
    if from_sets := [record["prior"] for record in records if record.get("prior")]:
        estimate, lower, upper = (
            [sum(prior[name][c] for prior in from_sets) / len(from_sets) for c in order]
            for name in ("estimate", "lower", "upper")
        )
        shares = [Figure(share, None, 1) for share in estimate]
        name = "estimated from the sets"
        priors.append(Series(None, name, "sets", labels, shares, (lower, upper)))
    if counts and priors:
        frequencies = [Figure(counts[c] / sum(counts), None, 1) for c in order]
        priors.append(Series(None, "true class frequencies", "truth", labels, frequencies))
    distances = by_epoch(trained, curve("prior_distance"), "estimated prior")
    distances += by_epoch(trained, curve("mean_target_distance"), "mean target")
    accuracy = by_epoch(found, lambda curves, key: curves.get("accuracy", {}).get(key))
    per_class = by_class(found, of_row("per_class"))
    recovery = by_epoch(trained, curve("target_recovery"))
    prediction = by_class(found, of_row("mean_prediction"))
    uniform = 100 / len(classes)

    def filled(series: list[Series]) -> list[Series]:
        return [one for one in series if any(one.figures)]

    plots = [
        Plot("accuracy", "balanced test accuracy (%)", filled(accuracy)),
        Plot("per-class", "test accuracy (%)", filled(per_class), axis),
        Plot("recovery", "training examples (%)", filled(recovery)),
        Plot("prior", "share of the class (%), log scale", filled(priors), axis, log=True),
        Plot("distance", "Euclidean distance", filled(distances), unit=""),
        Plot("prediction", "average prediction (%)", filled(prediction), axis, uniform=uniform),
    ]
    return [plot for plot in plots if plot.series]


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
