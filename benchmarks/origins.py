"""Measures rebalancers on real features whose candidate sets have many origins: those that "auto"
tells apart, and those it cannot.

    python benchmarks/origins.py PACK --out results/origins
    python benchmarks/origins.py PACK --out results/choice --committee --seeds 30 31 32

The features are those of scikit-learn's digits (made long-tailed) and of the tables of PACK (see
benchmarks/tabular.py); the sets are simulated, the answers of a weak model, or the table's own.
Each draw has a record with the figures of every rebalancer on held-out rows, and with the scores by
which "auto" decided where the sets left it undecided; existing records are kept. With `--committee`,
a committee is trained as well.
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
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ltpll.before_training import can_compare
from ltpll.candidates import Candidates
from ltpll.committee import Committee
from ltpll.errors import InputWarning
from ltpll.estimator import PartialLabelClassifier
from ltpll.rebalancers import Auto
from ltpll.runs.environment import environment
from ltpll.synthetic import (
    long_tail_subset,
    superclass_candidates,
    top_k_candidates,
    uniform_candidates,
)
from ltpll_research.set_origins import crowd_candidates, neighbour_candidates

REBALANCERS = {
    "mean-target": "mean-target",
    "records": "records",
    "average": Auto(prior="average"),
    "set-evidence": "set-evidence",
    "auto": "auto",
}
SIMULATED = (
    "independent 0.1",
    "independent 0.3",
    "crowd",
    "neighbours",
    "similar",
    "top 3",
    "weak model",
)
ORIGINS = {
    "digits": (*SIMULATED, "independent 0.5", "independent 0.7"),
    "lost": (*SIMULATED, "own", "own, shuffled"),
    "msrcv2": (*SIMULATED, "own", "own, shuffled"),
    "birdsong": (*SIMULATED, "independent 0.5", "own", "own, shuffled"),
}
SEEDS = (20, 21, 22)  # others than those on which choices were made
SIMILAR = 3  # classes that are like each other
WEAK_ROWS = (
    0.1  # of the rows, at least 60, which a weak model is trained on; they are not used otherwise
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pack", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--committee", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    draws = [
        (data, origin, seed)
        for seed in options.seeds
        for data, origins in ORIGINS.items()
        for origin in origins
    ]
    missing = {
        draw: path
        for draw in draws
        if not (path := options.out / f"{'-'.join(map(str, draw)).replace(' ', '_')}.json").exists()
    }
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        waiting = {
            pool.submit(measure, options.pack, *draw, options.committee): draw for draw in missing
        }
        for done in as_completed(waiting):
            record = done.result()
            missing[waiting[done]].write_text(json.dumps(record, indent=1) + "\n")
            balanced = {
                name: f"{figures['balanced_accuracy']:.3f}"
                for name, figures in record["figures"].items()
            }
            print(*waiting[done], record["regime"], record["scores"], balanced, flush=True)


def measure(pack: Path, data: str, origin: str, seed: int, committee: bool) -> dict[str, Any]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", InputWarning)  # about classes that no training row has
    started = time.perf_counter()
    x, y, sets, x_test, y_test = problem(pack, data, origin, seed)
    how: dict[str, Any] = {"random_state": seed, "device": "cpu", "threads": 1}
    figures, scores = {}, None
    for name, rebalancer in REBALANCERS.items():
        model = PartialLabelClassifier(rebalancer=rebalancer, **how)
        trainer, inputs, candidates = model.prepare_training(x, sets)
        undecided = name == "auto" and can_compare(trainer.rebalancer, inputs, candidates)
        figures[name] = figures_of(model.fit(x, sets), y, x_test, y_test)
        if name == "auto":
            auto: Any = model._predictor.rebalancer
            regime, choice = auto.prior_.regime, model.choice_
            scores = dict(auto.scores) if undecided else None
    weights = None
    if committee:
        whole = Committee(**how).fit(x, sets)
        figures["committee"] = figures_of(whole, y, x_test, y_test)
        weights = {member: round(weight, 3) for member, weight in whole.weights_.items()}
    rounded = {
        name: {key: round(value, 5) for key, value in row.items()} for name, row in figures.items()
    }
    return {
        "data": data,
        "origin": origin,
        "seed": seed,
        "n": len(x),
        "classes": sets.n_classes,
        "singletons": float((sets.sizes == 1).double().mean()),
        "regime": regime,
        "choice": choice,
        "scores": scores,
        **({} if weights is None else {"weights": weights}),
        "figures": rounded,
        "seconds": round(time.perf_counter() - started, 1),
        "environment": environment("cpu"),
    }


def figures_of(model: Any, y: Any, x_test: Any, y_test: Any) -> dict[str, float]:
    """How well a fitted model predicts other rows, and recovers the labels of its own."""
    predicted = {
        goal: model.set_params(goal=goal).predict(x_test) for goal in ("accuracy", "balanced")
    }
    right = predicted["balanced"] == y_test
    return {
        "accuracy": float((predicted["accuracy"] == y_test).mean()),
        "balanced_accuracy": float(
            np.mean([right[y_test == label].mean() for label in np.unique(y_test)])
        ),
        "recovery": float((model.transduce().labels == y).mean()),
    }


def problem(pack: Path, data: str, origin: str, seed: int) -> tuple[Any, Any, Candidates, Any, Any]:
    """Training features, labels and candidate sets, test features and labels."""
    if data == "digits":
        x, y = load_digits(return_X_y=True)
        pool, test = train_test_split(
            np.arange(len(y)), test_size=500, stratify=y, random_state=seed
        )
        train, n_classes, own = (
            pool[long_tail_subset(y[pool], 20, seed=seed, largest=120)],
            10,
            None,
        )
    else:
        with np.load(pack) as tables:
            x, y, n_classes = (
                tables[f"{data}_X"],
                tables[f"{data}_y"].astype(np.int64),
                int(tables[f"{data}_C"]),
            )
            own = np.unpackbits(tables[f"{data}_S"], axis=1)[:, :n_classes]
        train, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed)
        train = (
            train if origin == "own, shuffled" else np.sort(train)
        )  # otherwise in the order of the file
    x, labels = x.astype(np.float32), y[train]
    rng = np.random.default_rng(seed)
    if origin == "weak model":
        few, train = np.split(rng.permutation(train), [max(60, int(WEAK_ROWS * len(train)))])
        sets = weak_model_candidates(x[few], y[few], x[train], y[train], n_classes)
        return x[train], y[train], sets, x[test], y[test]
    if origin.startswith("own"):
        sets = Candidates.from_matrix(torch.from_numpy(own[train]))  # type: ignore[index]
    elif origin.startswith("independent"):
        sets = uniform_candidates(labels, n_classes, float(origin.split()[1]), seed=seed)
    elif origin == "crowd":
        sets = crowd_candidates(labels, n_classes, seed=seed)
    elif origin == "neighbours":
        sets = neighbour_candidates(labels, n_classes, seed=seed, reach=1)
    elif origin == "similar":
        sets = superclass_candidates(labels, rng.permutation(n_classes) // SIMILAR, 0.06, seed=seed)
    else:
        sets = top_k_candidates(labels, n_classes, 3, seed=seed)
    return x[train], labels, sets, x[test], y[test]


def weak_model_candidates(x_few: Any, y_few: Any, x: Any, y: Any, n_classes: int) -> Candidates:
    """The three likeliest classes of a logistic regression; where the true label is not among them,
    it replaces the last one.
    """
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300)).fit(
        x_few, y_few
    )
    scores = np.zeros((len(x), n_classes))
    scores[:, model[-1].classes_] = model.predict_proba(x)
    top = np.argsort(-scores, axis=1, kind="stable")[:, :3]
    lacking = (top != y[:, None]).all(1)
    top[lacking, 2] = y[lacking]
    return Candidates.from_matrix(np.eye(n_classes, dtype=bool)[top].any(1))


if __name__ == "__main__":
    main()
