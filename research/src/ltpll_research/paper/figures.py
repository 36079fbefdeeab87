"""Draws the paper's figures from the runs that are finished."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ltpll.runs.run import Record
from ltpll_research.paper.catalog import MOMENTA, Cell, Item
from ltpll_research.paper.grid import Finished, experiment_of, missing_parts
from ltpll_research.plotting import save_figure

PANELS = 4  # epochs shown, of those whose predictions a record keeps


def draw_figure(item: Item, finished: Finished, changes: Mapping[str, Any], path: Path) -> bool:
    """Draw an item from the runs with seed 0; return False if none of them is finished."""
    found = [[_record(cell, finished, changes) for cell in line.cells] for line in item.lines]
    if not any(record is not None for records in found for record in records):
        return False
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    PLOTTERS[item.name](figure, item, found)
    save_figure(figure, path)
    return True


def _record(cell: Cell, finished: Finished, changes: Mapping[str, Any]) -> Record | None:
    if missing_parts(cell.setting):
        return None
    record = next(iter(finished.newest([experiment_of(cell.setting, changes, 0)])), None)
    # Old records do not hold the predictions over the course of training.
    lacks = cell.figure == "mean_prediction" and record is not None and "snapshots" not in record
    return None if lacks else record


def _by_frequency(record: Record) -> Any:
    """Class numbers from the most to the least frequent."""
    return np.argsort(-np.asarray(record["class_counts"]), kind="stable")


Found = Sequence[Sequence[Record | None]]


def _average_prediction(figure: Any, item: Item, found: Found) -> None:
    """One panel per epoch, for a few epochs; classes from frequent to rare."""
    shown = [
        (line, record)
        for line, records in zip(item.lines, found, strict=True)
        if (record := records[0]) is not None
    ]
    n = min(PANELS, *(len(record["snapshots"]["epoch"]) for _, record in shown))
    figure.set_size_inches(3.2 * n, 3.2)
    panels = figure.subplots(1, n, sharey=True, squeeze=False)[0]
    for k, panel in enumerate(panels):
        for line, record in shown:
            epochs = record["snapshots"]["epoch"]
            at = (k + 1) * len(epochs) // n - 1
            predictions = record["snapshots"]["mean_prediction"][line.cells[0].row]
            values = np.asarray(predictions[at])[_by_frequency(record)]
            panel.plot(100 * values, label=line.label, linewidth=1.2)
            panel.set_title(f"epoch {epochs[at]}", fontsize=9)
        uniform = 100 / len(values)
        panel.axhline(uniform, color="black", linestyle="--", linewidth=0.8, label="uniform")
        panel.set_xlabel("class, frequent to rare")
    panels[0].set_ylabel("average prediction (%)")
    panels[0].legend(fontsize=8)


def _prior(figure: Any, item: Item, found: Found) -> None:
    """The estimated prior at the end, and its distance from the class frequencies over epochs."""
    record = next(record for records in found for record in records if record is not None)
    figure.set_size_inches(8, 3.4)
    distance, estimate = figure.subplots(1, 2)
    distance.plot(record["curves"]["epoch"], record["curves"]["prior_distance"])
    distance.set(xlabel="epoch", ylabel="L2 distance to the class frequencies", ylim=(0, None))
    order, counts = _by_frequency(record), np.asarray(record["class_counts"])
    estimate.plot(100 * np.asarray(record["last"]["prior"])[order], label="estimated prior")
    estimate.plot(100 * (counts / counts.sum())[order], color="black", label="class frequencies")
    estimate.set(xlabel="class, frequent to rare", ylabel="share (%)", ylim=(0, None))
    estimate.legend(fontsize=8)


def _per_class(figure: Any, item: Item, found: Found) -> None:
    """One panel per ambiguity."""
    n = len(item.columns)
    figure.set_size_inches(4 * n, 3.4)
    panels = figure.subplots(1, n, sharey=True, squeeze=False)[0]
    for k, panel in enumerate(panels):
        for line, records in zip(item.lines, found, strict=True):
            if (record := records[k]) is not None:
                per_class = record["last"][line.cells[k].row]["per_class"]
                values = np.asarray(per_class, dtype=float)[_by_frequency(record)]
                panel.plot(100 * values, marker="o", markersize=3, label=line.label)
        panel.set_title(item.columns[k], fontsize=9)
        panel.set_xlabel("class, frequent to rare")
    panels[0].set(ylabel="accuracy at the last epoch (%)", ylim=(0, 100))
    known: dict[str, Any] = {}
    for panel in panels:
        lines, labels = panel.get_legend_handles_labels()
        known |= dict(zip(labels, lines, strict=True))
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": len(known), "fontsize": 8}
    figure.legend(known.values(), known.keys(), **place)


def _momentum(figure: Any, item: Item, found: Found) -> None:
    """Accuracy over RECORDS' momentum, equally spaced: values near one matter most."""
    figure.set_size_inches(4.5, 3.4)
    panel = figure.subplots()
    known = [(k, record) for k, (record,) in enumerate(found) if record is not None]
    for name, read in (
        ("last epoch", lambda record: record["last"]["test"]),
        ("best epoch (on the test set)", lambda record: record["best"]["test"]["test"]),
    ):
        values = [100 * read(record)["balanced_accuracy"] for _, record in known]
        panel.plot([k for k, _ in known], values, marker="o", label=name)
    panel.set_xticks(range(len(MOMENTA)), [f"{momentum:g}" for momentum in MOMENTA])
    panel.set(xlabel="momentum m", ylabel="accuracy (%)")
    panel.legend(fontsize=8)


PLOTTERS: dict[str, Callable[[Any, Item, Found], None]] = {
    "average-prediction": _average_prediction,
    "prior": _prior,
    "per-class": _per_class,
    "ablation-m": _momentum,
}
