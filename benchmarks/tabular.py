"""Measures ten-fold accuracy on small real partial-label tables, for our methods and two simple
baselines.

    python benchmarks/tabular.py PACK --out results/tabular

The pack is an .npz file with, for every table NAME, NAME_X (rows × features), NAME_S (candidates,
bits packed by row), NAME_C (the number of classes) and NAME_y (true labels, used only for
evaluation). Each table and method has a record; existing records are kept. Accuracy is that of
predictions for the goal "accuracy", balanced accuracy that of predictions for the goal "balanced".
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from ltpll.committee import Committee
from ltpll.errors import InputWarning
from ltpll.estimator import PartialLabelClassifier
from ltpll.rebalancers import Auto
from ltpll.runs.environment import environment

# "auto" is the default; "average" is what it chooses for rows that share their sets in groups, as
# in these tables.
REBALANCERS = ("none", "mean-target", "records", "set-evidence", "auto", "average")
ROWS = ["committee", "neighbours", "logistic", *(f"corr+{name}" for name in REBALANCERS)]
FOLDS = 10
NEIGHBOURS = 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pack", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with np.load(options.pack) as pack:
        names = sorted(key.removesuffix("_X") for key in pack.files if key.endswith("_X"))
    missing = [
        (name, row)
        for row in ROWS
        for name in names
        if not (options.out / f"{name}-{row}.json").exists()
    ]
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        waiting = {
            pool.submit(evaluate, options.pack, name, row): (name, row) for name, row in missing
        }
        for done in as_completed(waiting):
            name, row = waiting[done]
            record = done.result()
            (options.out / f"{name}-{row}.json").write_text(json.dumps(record, indent=1) + "\n")
            print(
                f"{name:10s} {row:16s} accuracy {np.mean(record['accuracy']):.3f}, balanced "
                f"{np.mean(record['balanced_accuracy']):.3f}",
                flush=True,
            )


def evaluate(path: Path, name: str, row: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    warnings.simplefilter(
        "ignore", InputWarning
    )  # about classes that no training row of a fold has
    with np.load(path) as pack:
        x, y = pack[f"{name}_X"].astype(np.float32), pack[f"{name}_y"].astype(np.int64)
        sets = np.unpackbits(pack[f"{name}_S"], axis=1)[:, : int(pack[f"{name}_C"])]
    known = (
        "accuracy",
        "balanced_accuracy",
        "accuracy_for_balanced",
        "balanced_accuracy_for_accuracy",
        "recovery",
    )
    figures: dict[str, list[float]] = {figure: [] for figure in known}
    choices: list[str] = []
    weights: list[dict[str, float]] = []
    started, cpu_started = time.perf_counter(), time.process_time()
    for train, test in KFold(FOLDS, shuffle=True, random_state=0).split(x):
        predicted, balanced, identified, model = fit_and_predict(
            row, x[train], sets[train], x[test]
        )
        figures["accuracy"].append(float((predicted == y[test]).mean()))
        # Averaged over the classes of the test rows; scikit-learn would warn about predicted
        # classes that are not among them.
        for figure, labels in (
            ("balanced_accuracy", balanced),
            ("balanced_accuracy_for_accuracy", predicted),
        ):
            figures[figure].append(
                float(np.mean([(labels[y[test] == k] == k).mean() for k in np.unique(y[test])]))
            )
        figures["accuracy_for_balanced"].append(float((balanced == y[test]).mean()))
        figures["recovery"].append(float((identified == y[train]).mean()))
        choices.append(getattr(model, "choice_", ""))
        if row == "committee":
            weights.append({name: round(w, 4) for name, w in model.weights_.items()})
    return {
        "table": name,
        "row": row,
        "n": len(x),
        "features": x.shape[1],
        "classes": sets.shape[1],
        "set_size": float(sets.sum(1).mean()),
        "folds": FOLDS,
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time() - cpu_started, 1),
        "environment": environment("cpu"),
        **({"choices": choices} if any(choices) else {}),
        **({"weights": weights} if weights else {}),
        **{figure: [round(value, 5) for value in values] for figure, values in figures.items()},
    }


def fit_and_predict(row: str, x: Any, sets: Any, x_test: Any) -> tuple[Any, Any, Any, Any]:
    """Predictions of the test rows for accuracy and for balanced accuracy, the identified labels of
    the training rows, and the model.
    """
    if row == "committee" or "+" in row:
        model: Any = Committee(device="cpu", threads=1)
        if "+" in row:
            method, name = row.split("+")
            rebalancer = Auto(prior="average") if name == "average" else name
            model = PartialLabelClassifier(method, rebalancer, device="cpu")
        model.fit(x, sets)
        predicted = [
            model.set_params(goal=goal).predict(x_test) for goal in ("accuracy", "balanced")
        ]
        return *predicted, model.transduce().labels, model
    scaler = StandardScaler().fit(x)
    x, x_test = scaler.transform(x), scaler.transform(x_test)
    if row == "neighbours":
        # The nearest rows vote; a set of k labels gives 1/k to each.
        search = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(x)
        votes = sets / sets.sum(1, keepdims=True)
        own = search.kneighbors(return_distance=False)  # without the row itself
        predicted = votes[search.kneighbors(x_test, return_distance=False)].sum(1).argmax(1)
        return predicted, predicted, (votes[own].sum(1) * sets).argmax(1), search
    rows, labels = np.nonzero(sets)
    model = LogisticRegression(max_iter=1000).fit(
        x[rows], labels, sample_weight=1 / sets.sum(1)[rows]
    )
    scores = np.full((len(x), sets.shape[1]), -np.inf)
    scores[:, model.classes_] = model.predict_log_proba(x)
    predicted = model.predict(x_test)
    return predicted, predicted, np.where(sets > 0, scores, -np.inf).argmax(1), model


if __name__ == "__main__":
    main()
