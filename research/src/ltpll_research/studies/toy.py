"""The paper's toy study: PRODEN on four long-tailed squares, with three rebalancers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ltpll.evaluation.during_training import Evaluate
from ltpll.models import build_model
from ltpll.parts import build_parts
from ltpll.runs.run import Record, Run
from ltpll.synthetic import four_squares, uniform_candidates
from ltpll.training.trainer import PartialLabelTrainer
from ltpll_research.plotting import save_figure
from ltpll_research.recording import code_fingerprint, record_training

SIZES = (30, 100, 500, 1000)
FLIP = 0.6
TEST_SIZE = 100
REBALANCERS_SHOWN = ("none", "oracle-la", "records")


def configs(seeds: int, *, cosine: bool = False) -> list[Record]:
    """One config per seed and rebalancer.

    The paper gives the initial learning rate, 2.0, but mentions no schedule, no weight decay and no
    dropping of the last, partial batch, so there is none of them here. `cosine` uses the schedule
    of the image experiments instead.
    """
    return [
        {
            "study": "toy",
            "method": "proden",
            "rebalancer": rebalancer,
            "epochs": 50,
            "batch_size": 512,
            "lr": 2.0,
            "final_lr": 1e-3 if cosine else 1.0,
            "weight_decay": 0.0,
            "drop_last": cosine,
            "sizes": list(SIZES),
            "ambiguity": FLIP,
            "seed": seed,
            "code": code_fingerprint(),
        }
        for seed in range(seeds)
        for rebalancer in REBALANCERS_SHOWN
    ]


def train(run: Run) -> None:
    """Train one run, and save what the figure shows."""
    config = run.config
    seed = config["seed"]
    x, y = four_squares(config["sizes"], seed=seed)
    x_test, y_test = four_squares([TEST_SIZE] * 4, seed=1_000_000 + seed)
    candidates = uniform_candidates(y, 4, config["ambiguity"], seed=seed)
    model = build_model("mlp", seed, n_inputs=2, n_classes=4, hidden=(10,))
    counts = np.bincount(y)
    parts = build_parts(config["method"], config["rebalancer"], class_frequencies=counts)
    same = ("epochs", "batch_size", "lr", "weight_decay", "drop_last")
    settings = {name: config[name] for name in same} | {"final_lr_factor": config["final_lr"]}
    trainer = PartialLabelTrainer(model, *parts, seed=seed, device="cpu", **settings)

    def keep_points() -> None:
        points: dict[str, Any] = {"x": x, "y": y, "x_test": x_test, "y_test": y_test}
        points["identified"] = trainer.targets.labels().numpy()
        points["predicted"] = trainer.predict(x_test)
        np.savez(run.folder / "points.npz", **points)

    truth, facts = Evaluate(x_test, y_test, y), {"class_counts": counts.tolist()}
    record_training(run, trainer, x, candidates, truth, before_done=keep_points, **facts)


def draw(runs: list[Run], path: Path) -> None:
    """Draw the paper's 2 × 4 figure.

    The truth comes first, then the identified training labels and the test predictions of each
    rebalancer.
    """
    from matplotlib.figure import Figure

    colours = np.asarray(["#d62728", "#e6b800", "#1f77b4", "#2ca02c"])
    figure = Figure(figsize=(14, 7.4), layout="constrained")
    axes = figure.subplots(2, 4, sharex=True, sharey=True)
    loaded = [np.load(run.folder / "points.npz") for run in runs]
    panels: list[tuple[str, Any, Any, Record | None]] = [
        ("ground truth", loaded[0]["y"], loaded[0]["y_test"], None)
    ]
    for run, points in zip(runs, loaded, strict=True):
        name = run.config["rebalancer"]
        title = "PRODEN" if name == "none" else f"PRODEN + {name}"
        panels.append((title, points["identified"], points["predicted"], run.result()))
    for column, (title, identified, predicted, result) in enumerate(panels):
        top, bottom = axes[:, column]
        top.scatter(*loaded[0]["x"].T, s=5, c=colours[identified], linewidths=0)
        bottom.scatter(*loaded[0]["x_test"].T, s=12, c=colours[predicted], linewidths=0)
        top.set_title(title, fontweight="bold")
        if result is not None:
            top.set_xlabel(f"true label identified: {result['last']['target_recovery']:.1%}")
            bottom.set_xlabel(f"test accuracy: {result['last']['test']['balanced_accuracy']:.1%}")
        for axis in (top, bottom):
            axis.set(aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
            axis.axhline(0, color="0.8", linewidth=0.6, zorder=0)
            axis.axvline(0, color="0.8", linewidth=0.6, zorder=0)
    axes[0, 0].set_ylabel("training set\n(30 / 100 / 500 / 1000)")
    axes[1, 0].set_ylabel("balanced test set")
    save_figure(figure, path, dpi=110)
