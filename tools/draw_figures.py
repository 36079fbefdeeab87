"""Draws the figures of README and docs from the records in results/ and from the example table:
docs/figures/*.svg.

Each file names the data it was drawn from by a checksum; `--check` compares only that, since the
same data may give other bytes with another version of matplotlib.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np

from docs_blocks import beyond
from docs_blocks.common import ROOT
from docs_blocks.tables import TABULAR_ROWS, tabular_records
from ltpll.runs.run import Record
from ltpll.synthetic import example_tables
from ltpll_research.records import results_under

mpl.use("Agg")
from matplotlib import pyplot as plt

FOLDER = ROOT / "docs" / "figures"
# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = {"none": "#7f7f7f", "mean-target": "#009e73", "records": "#d55e00", "anchor": "#0072b2"}
STYLE = {
    "svg.hashsalt": "ltpll",
    "svg.fonttype": "path",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def per_class(records: Sequence[Record], read: Callable[[Record], Record]) -> list[list[float]]:
    """The accuracy of every class in every run, in percent, from the most to the least frequent
    class.
    """
    found = []
    for record in records:
        order = np.argsort(record["class_counts"], kind="stable")[::-1]
        found.append([round(100 * read(record)["per_class"][c], 2) for c in order])
    return found


def partial_labels_data() -> dict[str, Any]:
    table = example_tables().train
    pixels = np.asarray([table[name] for name in table if name.startswith("pixel")]).T
    ambiguous = [
        row
        for row, text in enumerate(table["candidates"])
        if text.count("|") and table["label"][row] in text.split("|")
    ]
    wanted = ["zero", "three", "eight", "five", "nine", "seven"]
    rows = [next(row for row in ambiguous if table["label"][row] == name) for name in wanted]
    records = [
        record
        for record in results_under(ROOT / "results" / "digits")
        if record["config"]["method"] == "corr"
    ]
    plain, anchored = (
        [one for one in records if one["config"]["rebalancer"] == name]
        for name in ("none", "anchor")
    )
    return {
        "examples": [
            [table["candidates"][row], table["label"][row], pixels[row].round(2).tolist()]
            for row in rows
        ],
        "sizes": sorted((table["label"].count(name) for name in set(table["label"])), reverse=True),
        "accuracy": {
            "none": per_class(plain, lambda record: record["last"]["test"]),
            "mean-target": per_class(plain, lambda record: record["last"]["mean-target"]),
            "anchor": per_class(anchored, lambda record: record["last"]["test"]),
        },
    }


def draw_partial_labels(data: dict[str, Any]) -> Any:
    figure = plt.figure(figsize=(10, 3.1))
    left, middle, right = figure.subfigures(1, 3, width_ratios=(1.2, 0.75, 1.05))
    left.text(0.02, 0.93, "Each example has a set of candidates", weight="bold", size=10)
    for place, (candidates, label, pixels) in enumerate(data["examples"]):
        axes = left.add_axes(
            (0.02 + 0.32 * (place % 3), 0.51 - 0.41 * (place // 3), 0.18, 0.37), anchor="W"
        )
        axes.imshow(np.reshape(pixels, (8, 8)), cmap="gray_r")
        axes.axis("off")
        names = candidates.split("|")
        for line, name in enumerate(names):
            colour, weight = ("#0072b2", "bold") if name == label else ("black", "normal")
            axes.text(8, 1.6 + 2.1 * line, name, size=8, color=colour, weight=weight, clip_on=False)
    left.text(0.03, 0.02, "The true label (blue) is not known in training.", size=8)
    axes = middle.add_axes((0.14, 0.16, 0.8, 0.7))
    axes.bar(range(len(data["sizes"])), data["sizes"], color="#999999")
    axes.set(
        title="Classes are long-tailed", xlabel="class, by frequency", ylabel="examples", xticks=[]
    )
    axes = right.add_axes((0.14, 0.16, 0.84, 0.7))
    names = {"none": "CORR alone", "mean-target": "+ mean-target", "anchor": "+ anchor"}
    for name, runs in data["accuracy"].items():
        mean = np.mean(runs, axis=0)
        axes.plot(
            range(1, len(mean) + 1),
            mean,
            marker="o",
            markersize=3.5,
            color=COLOURS[name],
            label=names[name],
        )
    runs = len(next(iter(data["accuracy"].values())))
    axes.set(
        title="Rare classes need rebalancing",
        xlabel=f"class, by frequency (digits demo, n = {runs})",
        ylabel="test accuracy (%)",
    )
    axes.set(ylim=(-3, 103), xticks=range(1, 11))
    axes.legend(frameon=False, loc="center left", fontsize=8)
    return figure


def drift_data() -> dict[str, Any]:
    groups = {name: records for name, records in beyond.under_recipe().items() if name in COLOURS}
    adjusted = {
        name: per_class(records, lambda record: beyond.last_figures(record)["adjusted"])
        for name, records in groups.items()
    }
    return {
        "epochs": list(beyond.DRIFT_EPOCHS),
        "recovery": {
            name: [beyond.recovery_curve(record) for record in records]
            for name, records in groups.items()
        },
        "accuracy": adjusted,
    }


def draw_drift(data: dict[str, Any]) -> Any:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.3), layout="constrained")
    names = {"none": "no rebalancing", "records": "RECORDS", "anchor": "anchor (ours)"}
    for name, runs in data["recovery"].items():
        values = 100 * np.asarray(runs)
        left.plot(data["epochs"], values.mean(0), color=COLOURS[name], label=names[name])
        left.fill_between(
            data["epochs"],
            values.min(0),
            values.max(0),
            color=COLOURS[name],
            alpha=0.15,
            linewidth=0,
        )
    half = data["epochs"][-1] / 2
    left.axvline(half, color="black", linewidth=0.8, linestyle=":")
    left.text(half + 2, 66.5, "the anchor takes over", size=8)
    left.set(
        title="Labels recovered during training",
        xlabel="epoch",
        ylabel="training rows (%)",
        ylim=(65, 100),
    )
    left.legend(frameon=False, loc="upper left", ncols=3, fontsize=8)
    n = len(next(iter(data["accuracy"].values())))
    for name, runs in data["accuracy"].items():
        values = np.asarray(runs)
        places = range(1, values.shape[1] + 1)
        right.plot(places, values.mean(0), marker="o", markersize=3.5, color=COLOURS[name])
        right.fill_between(
            places, values.min(0), values.max(0), color=COLOURS[name], alpha=0.15, linewidth=0
        )
    right.set(
        title="Accuracy at the end, z − log m",
        xlabel="class, by frequency",
        ylabel="test accuracy (%)",
        ylim=(-3, 103),
    )
    right.set(xticks=places)
    figure.supxlabel(
        f"CIFAR-10-LT, ρ = 100, q = 0.5, CORR + mixup, {data['epochs'][-1]} epochs; mean and "
        f"range of {n} seeds",
        size=8,
    )
    return figure


def committee_data() -> dict[str, Any]:
    found = tabular_records()
    tables = sorted({table for table, _ in found})
    weights = {}
    for table in tables:
        folds = found[table, "committee"]["weights"]
        weights[table] = {
            name: round(sum(fold[name] for fold in folds) / len(folds), 4) for name in folds[0]
        }
    shown = ("neighbours", "logistic", "corr+none", "corr+records", "corr+auto", "committee")
    accuracy = {row: [found[table, row]["accuracy"] for table in tables] for row in shown}
    return {"tables": tables, "weights": weights, "accuracy": accuracy}


def draw_committee(data: dict[str, Any]) -> Any:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.3), layout="constrained")
    colours = plt.get_cmap("tab20").colors
    members = list(dict.fromkeys(name for one in data["weights"].values() for name in one))
    places, before = range(len(data["tables"])), np.zeros(len(data["tables"]))
    for k, name in enumerate(members):
        own = np.asarray([100 * data["weights"][table].get(name, 0) for table in data["tables"]])
        left.barh(places, own, left=before, color=colours[k], label=name, height=0.6)
        before += own
    left.set(title="Whom held-out sets trust", xlabel="mean weight over ten folds (%)")
    left.set_yticks(places, data["tables"])
    left.invert_yaxis()
    left.legend(frameon=False, fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    width = 0.8 / len(data["accuracy"])
    for k, (row, tables) in enumerate(data["accuracy"].items()):
        values = 100 * np.asarray(tables)
        at = np.arange(len(values)) + (k - len(data["accuracy"]) / 2 + 0.5) * width
        label = TABULAR_ROWS[row].replace("*", "").replace(" (default)", "")
        colour = COLOURS["anchor"] if row == "committee" else str(0.85 - 0.12 * k)
        right.bar(at, values.mean(1), width, yerr=values.std(1, ddof=1), color=colour, label=label)
    right.set(title="Accuracy of each alone, and together", ylabel="test accuracy (%)")
    right.set_xticks(range(len(data["tables"])), data["tables"])
    right.legend(frameon=False, fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    return figure


FIGURES: dict[str, tuple[Callable[[], dict[str, Any]], Callable[[dict[str, Any]], Any]]] = {
    "partial-labels": (partial_labels_data, draw_partial_labels),
    "drift": (drift_data, draw_drift),
    "committee": (committee_data, draw_committee),
}


def main(arguments: Sequence[str]) -> int:
    stale = []
    for name, (read, draw) in FIGURES.items():
        path, data = FOLDER / f"{name}.svg", read()
        mark = (
            "data sha256 " + hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
        )
        if path.exists() and mark in path.read_text(encoding="utf-8"):
            continue
        stale.append(path.name)
        if "--check" not in arguments:
            FOLDER.mkdir(parents=True, exist_ok=True)
            with mpl.rc_context(STYLE):
                figure = draw(data)
                figure.savefig(
                    path,
                    facecolor="white",
                    metadata={"Date": None, "Creator": "ltpll", "Description": mark},
                )
                plt.close(figure)
    if stale:
        print(("out of date: " if "--check" in arguments else "drawn: ") + ", ".join(stale))
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
