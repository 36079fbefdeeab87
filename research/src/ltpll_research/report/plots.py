"""Plots: the lines that the page of a study draws, as plotly takes them."""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ltpll.report.templates import without_bidi_controls
from ltpll.runs.schema import Record
from ltpll_research.summary import Figure, Row

COLOURS = 7  # the palette `--row-0` … `--row-6` of page.css
DASHES = ("solid", "dash", "dashdot", "longdash")  # distinguish rows once the palette repeats
LONGEST_NAME = 24

# From a record, or from its curves, and the key of a row: one value per class, or per epoch.
Read = Callable[[Record, str], Sequence[float | None] | None]
# For plotly; study.js draws it in the colour that `meta` names.
Trace = dict[str, Any]


def study_plots(found: Sequence[Row], classes: Sequence[str]) -> list[dict[str, Any]]:
    """All plots that the records have data for; study.html has their titles by name."""
    # A post-hoc row has the targets of the run that it comes from.
    trained = [row for row in found if row.key == "test"]
    records = [record for row in trained for record in row.records]
    estimating = [row for row in trained if any("prior" in one["last"] for one in row.records)]
    counted = [record["class_counts"] for record in records if record.get("class_counts")]
    counts = [sum(values) / len(values) for values in zip(*counted, strict=True)]
    order = sorted(range(len(classes)), key=lambda c: -counts[c] if counts else 0)
    labels = []
    for c in order:
        examples = f" ({counts[c]:.0f})" if counts else ""
        labels.append(_isolated(_plain(_short(classes[c]))) + examples)
    # Plotly draws equal labels at one position.
    labels = [f"{one} #{i}" if labels.count(one) > 1 else one for i, one in enumerate(labels)]

    def by_class(shown: Sequence[Row], read: Read, what: str = "") -> list[Trace]:
        traces = []
        for row in shown:
            columns = [values for one in row.records if (values := read(one, row.key)) is not None]
            figures = [Figure.of(values[c] for values in columns) for c in order]
            traces.append(_line(found.index(row), row.label, what, labels, figures))
        return traces

    def by_epoch(shown: Sequence[Row], read: Read, what: str = "", scale: int = 100) -> list[Trace]:
        traces = []
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
            line = _line(found.index(row), row.label, what, epochs, figures, scale)
            traces += [line] if what else [*_band(line), line]
        return traces

    priors = by_class(estimating, lambda record, _: record["last"].get("prior"), "estimated prior")
    priors += by_class(
        estimating, lambda record, _: record["last"].get("mean_target"), "mean target"
    )
    # The runs of a setting have the same kind of sets, whatever their method is.
    if from_sets := [record["prior"] for record in records if record.get("prior")]:
        estimate, lower, upper = (
            [sum(prior[name][c] for prior in from_sets) / len(from_sets) for c in order]
            for name in ("estimate", "lower", "upper")
        )
        line = _line(None, "estimated from the sets", "", labels, _exact(estimate))
        above = [100 * (most - share) for most, share in zip(upper, estimate, strict=True)]
        below = [100 * (share - least) for share, least in zip(estimate, lower, strict=True)]
        line["error_y"] = {"type": "data", "array": above, "arrayminus": below}
        priors.append(line | {"mode": "markers"})
    if counts and priors:
        shares = [counts[c] / sum(counts) for c in order]
        priors.append(_line(None, "true class frequencies", "", labels, _exact(shares)))
    distances = by_epoch(
        trained, lambda curves, _: curves.get("prior_distance"), "estimated prior", 1
    )
    distances += by_epoch(
        trained, lambda curves, _: curves.get("mean_target_distance"), "mean target", 1
    )
    accuracy = by_epoch(found, lambda curves, key: curves.get("accuracy", {}).get(key))
    prediction = by_class(found, lambda record, key: record["last"][key].get("mean_prediction"))
    per_class = by_class(found, lambda record, key: record["last"][key]["per_class"])
    epoch, by_frequency = "epoch", "class (training examples)" if counts else "class"
    plots = [
        _plot("accuracy", accuracy, epoch, "balanced test accuracy (%)"),
        _plot("per-class", per_class, by_frequency, "test accuracy (%)"),
        _plot(
            "recovery",
            by_epoch(trained, lambda curves, _: curves.get("target_recovery")),
            epoch,
            "examples (%)",
        ),
        _plot("prior", priors, by_frequency, "share of the class (%), log scale"),
        _plot("distance", distances, epoch, "Euclidean distance"),
        _plot("prediction", prediction, by_frequency, "average prediction (%)"),
    ]
    uniform = {"x0": 0, "x1": 1, "y0": 100 / len(classes), "y1": 100 / len(classes)}
    dashed = {"type": "line", "xref": "paper", "line": {"dash": "dash"}}
    plots[-1]["layout"]["shapes"] = [uniform | dashed]
    plots[3]["layout"]["yaxis"]["type"] = "log"
    return [plot for plot in plots if plot["data"]]


def _plot(name: str, traces: Sequence[Trace], x: str, y: str) -> dict[str, Any]:
    """A plot without its empty lines; class names below it get as much room as they need."""
    data = [trace for trace in traces if any(value is not None for value in trace["y"])]
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": x}},
        "yaxis": {"title": {"text": y}, "rangemode": "tozero"},
        "height": 340,
    }
    if x != "epoch" and data:
        layout["xaxis"]["type"] = "category"
        layout["height"] += 6 * max(map(len, data[0]["x"]))
    return {"name": name, "data": data, "layout": layout}


def _line(
    row: int | None,
    label: str,
    what: str,
    x: Sequence[Any],
    figures: Sequence[Figure | None],
    scale: int = 100,
) -> Trace:
    """The means over seeds, for a row of the table or, without one, for what all rows share."""
    dash = "dot" if what == "mean target" else DASHES[(row or 0) // COLOURS % len(DASHES)]
    return {
        "name": _plain(f"{label}, {what}" if what else label),
        "meta": "ink" if row is None else f"row-{row % COLOURS}",
        "legendgroup": f"{row} {label} {what}",
        "mode": "lines",
        "x": list(x),
        "y": _scaled((figure.mean if figure else None for figure in figures), scale),
        "customdata": _scaled((figure.std if figure else None for figure in figures), scale),
        "line": {"dash": dash, "width": 2},
        "hovertemplate": "%{y:.3g}<extra>%{fullData.name}</extra>",
    }


def _band(line: Trace) -> list[Trace]:
    """The band of one standard deviation around a line; nothing for a single seed."""
    triples = zip(line["x"], line["y"], line["customdata"], strict=True)
    known = [(x, mean, std) for x, mean, std in triples if mean is not None and std is not None]
    upper = [(x, mean + std) for x, mean, std in known]
    lower = [(x, mean - std) for x, mean, std in reversed(known)]
    shape = {"mode": "lines", "fill": "toself", "opacity": 0.15, "line": {"width": 0}}
    xs, ys = [x for x, _ in upper + lower], [y for _, y in upper + lower]
    same = {name: line[name] for name in ("name", "meta", "legendgroup")}
    hidden = {"showlegend": False, "hoverinfo": "skip"}
    return [same | shape | hidden | {"x": xs, "y": ys}] if known else []


def _exact(values: Iterable[float]) -> list[Figure]:
    return [Figure(value, None, 1) for value in values]


def _scaled(values: Iterable[float | None], scale: int) -> list[float | None]:
    return [
        None if value is None or not math.isfinite(value) else round(scale * value, 5)
        for value in values
    ]


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
