"""Measures how many true labels are recovered from the scores of weak models, with the scores as
weights or ignored.

    python benchmarks/scores.py --out results/scores [--features x.npy --table t.csv]

A weak model is trained on few labelled rows and scores the others; the three highest scores make a
candidate set, which may lack the true label. Labels by the highest score are compared with labels
that a classifier has learned from the sets, without weights and with powers of the scores as
weights. The data are scikit-learn's digits, made long-tailed, and, if given, an array of features
with a table that has a column `label`. Each draw has a record; existing ones are kept.
"""

from __future__ import annotations

import argparse
import csv
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
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ltpll import Candidates
from ltpll.candidates.parsing import read_scores
from ltpll.errors import InputWarning
from ltpll.estimator import PartialLabelClassifier
from ltpll.runs.environment import environment
from ltpll.synthetic import long_tail_subset

TOP_K = 3
POWERS = {"none": 0.0, "power 1/4": 0.25, "power 1/2": 0.5, "power 1": 1.0}
# The rows that a model is trained on (per class, or with a long tail in the opposite order), its
# features and its regularisation.
MODELS: dict[str, dict[str, Any]] = {
    "few rows": {"per_class": 4},
    "few rows, overconfident": {"per_class": 4, "inverse_decay": 1e4},
    "few features": {"per_class": 20, "n_features": 10},
    "more rows": {"per_class": 30},
    "few rows, other class prior": {"per_class": 12, "imbalance": 12},
}
ON_FEATURES = ("few rows", "few rows, overconfident")
ROWS, COMPONENTS = 3000, 64  # of the array of features


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--features", type=Path, help="array of features, such as cifar10-lt.npy")
    parser.add_argument("--table", type=Path, help="its table, with a column `label`")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    problems = {"digits": tuple(MODELS)} | (
        {options.features.stem: ON_FEATURES} if options.features else {}
    )
    draws = [
        (data, model, seed)
        for seed in range(options.seeds)
        for data, models in problems.items()
        for model in models
    ]
    names = {draw: "-".join(map(str, draw)).replace(", ", "-").replace(" ", "_") for draw in draws}
    missing = {
        draw: path for draw in draws if not (path := options.out / f"{names[draw]}.json").exists()
    }
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        waiting = {
            pool.submit(measure, options.features, options.table, *draw): draw for draw in missing
        }
        for done in as_completed(waiting):
            record = done.result()
            missing[waiting[done]].write_text(json.dumps(record, indent=1) + "\n")
            print(
                *waiting[done],
                {name: f"{figures['all']:.3f}" for name, figures in record["figures"].items()},
                flush=True,
            )


def measure(
    features: Path | None, table: Path | None, data: str, model: str, seed: int
) -> dict[str, Any]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", InputWarning)  # about classes that no set has
    started = time.perf_counter()
    (x, y), (x_scorer, y_scorer) = problem(features, table, data, seed, **MODELS[model])
    scores = weak_scores(x_scorer, y_scorer, x, int(y.max()) + 1, seed, **MODELS[model])
    *sets, values = read_scores(scores, TOP_K, None, None)
    candidates = Candidates.from_flat(*sets)
    right = {"scores alone": scores.argmax(1) == y}
    for name, power in POWERS.items():
        weighted = candidates.with_weights(values**power if power else None)
        classifier = PartialLabelClassifier(random_state=seed, device="cpu", threads=1).fit(
            x, weighted
        )
        right[name] = classifier.transduce().labels == y
    return {
        "data": data,
        "model": model,
        "seed": seed,
        "n": len(y),
        "classes": candidates.n_classes,
        "trained_on": len(y_scorer),
        "set_size": round(float(candidates.sizes.float().mean()), 3),
        "highest_score": round(float((scores / scores.sum(1, keepdims=True)).max(1).mean()), 4),
        "covered": round(float(candidates.contains(torch.from_numpy(y)).float().mean()), 5),
        "figures": {
            name: {
                "all": round(float(found.mean()), 5),
                "balanced": round(
                    float(np.mean([found[y == label].mean() for label in np.unique(y)])), 5
                ),
            }
            for name, found in right.items()
        },
        "seconds": round(time.perf_counter() - started, 1),
        "environment": environment("cpu"),
    }


def problem(
    features: Path | None,
    table: Path | None,
    data: str,
    seed: int,
    *,
    per_class: int,
    imbalance: float = 1,
    **_: Any,
) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Features and true labels of the rows that get sets, and of those that the weak model is
    trained on.
    """
    rng = np.random.default_rng(seed)
    if data == "digits":
        x, y = load_digits(return_X_y=True)
    else:
        assert features is not None
        assert table is not None
        with table.open(encoding="utf-8") as file:
            labels = [(row["label"], row.get("split", "train")) for row in csv.DictReader(file)]
        training = np.asarray([split == "train" for _, split in labels])
        y = np.unique([label for label, _ in labels], return_inverse=True)[1][training]
        x = np.load(features, mmap_mode="r")
        kept = np.flatnonzero(training)[rng.permutation(len(y))]
        y = y[np.searchsorted(np.flatnonzero(training), kept)]
        x, y = np.asarray(x[kept[: 2 * ROWS]]), y[: 2 * ROWS]
        x = PCA(COMPONENTS, random_state=seed).fit_transform(x)
    n_classes = int(y.max()) + 1
    # The last class has the most rows if the model has a class prior of its own, while the first
    # one has the most rows in the table.
    wanted = [
        max(1, round(per_class * imbalance ** (-(n_classes - 1 - label) / (n_classes - 1))))
        for label in range(n_classes)
    ]
    chosen = np.concatenate(
        [rng.permutation(np.flatnonzero(y == label))[:n] for label, n in enumerate(wanted)]
    )
    rest = np.setdiff1d(np.arange(len(y)), chosen)
    if data == "digits":
        rest = rest[long_tail_subset(y[rest], 20, seed=seed)]
    rest = rest[:ROWS]
    return (x[rest].astype(np.float32), y[rest].astype(np.int64)), (
        x[chosen].astype(np.float32),
        y[chosen],
    )


def weak_scores(
    x: Any,
    y: Any,
    x_new: Any,
    n_classes: int,
    seed: int,
    *,
    inverse_decay: float = 1.0,
    n_features: int | None = None,
    **_: Any,
) -> Any:
    """Probabilities of a logistic regression, which may see only some of the features."""
    columns = (
        np.arange(x.shape[1])
        if n_features is None
        else np.random.default_rng(seed).permutation(x.shape[1])[:n_features]
    )
    model = make_pipeline(StandardScaler(), LogisticRegression(C=inverse_decay, max_iter=2000)).fit(
        x[:, columns], y
    )
    scores = np.zeros((len(x_new), n_classes))
    scores[:, model.classes_] = model.predict_proba(x_new[:, columns])
    return scores


if __name__ == "__main__":
    main()
