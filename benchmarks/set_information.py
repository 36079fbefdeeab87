"""Measures how often set information ranks two models as their accuracy does, and where it fails.

    python benchmarks/set_information.py --out results/set-information

Ten logistic regressions are fitted to true labels: few or many of them, with and without weights
for rare classes. Each predicts the same held-out rows of a long-tailed problem, whose candidate
sets arise in one of these ways:

- independent: each wrong label joins with probability 0.1 or 0.5;
- look-alikes: the two classes nearest to the true one join with probability 0.5;
- scenes: three rows share the union of their labels;
- features: each wrong label j joins with probability p_j / max p of a weak model of the features;
- top 3: the three likeliest classes of that model, and the true label;
- imitated top 3: the same, and the weak model is one of the ten;
- missing: as independent with 0.3, but a tenth of the sets have lost the true label.

Of all pairs of models whose accuracy differs by two points or more, the share that set information
ranks the wrong way round is recorded; likewise for balanced accuracy, and for the plain likelihood
of the sets. Existing records are kept.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from ltpll import Candidates, set_information
from ltpll.evaluation.set_information import set_probabilities
from ltpll.runs.environment import environment

ORIGINS = ("independent 0.1", "independent 0.5", "look-alikes", "scenes", "features")
ORIGINS += ("top 3", "imitated top 3", "missing")
PROBLEMS = {"digits": 500, "digits, 60 rows": 60, "200 classes": 2000}
LABELLED = (40, 80, 160, 320, 640)
IMBALANCE, LEAST = 20, 0.02


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for problem in PROBLEMS:
        path = options.out / f"{problem.replace(', ', '-').replace(' ', '-')}.json"
        if path.exists():
            continue
        found = [measure(problem, seed) for seed in range(options.seeds)]
        record = {
            "problem": problem,
            "rows": PROBLEMS[problem],
            "seeds": options.seeds,
            "origins": {
                origin: {
                    name: [sum(one[origin][name][k] for one in found) for k in (0, 1)]
                    for name in found[0][origin]
                }
                for origin in ORIGINS
            },
            "environment": environment("cpu"),
        }
        path.write_text(json.dumps(record, indent=1) + "\n")
        print(problem, json.dumps(record["origins"]))


def measure(problem: str, seed: int) -> dict[str, dict[str, list[int]]]:
    """For each origin and criterion, the number of wrong and of all pairs."""
    rng = np.random.default_rng(seed)
    x, y = data(problem, seed)
    n_classes = int(y.max()) + 1
    weights = (1 / IMBALANCE) ** (np.arange(n_classes) / (n_classes - 1))
    order = rng.permutation(len(y))
    order = order[rng.random(len(y)) < weights[y[order]]]
    held_out, rest = order[: PROBLEMS[problem]], order[PROBLEMS[problem] :]
    factor = n_classes // 10
    models = [
        probabilities(x, y, rng.choice(rest, min(len(rest), factor * n)), held_out, n_classes, how)
        for n in LABELLED
        for how in (None, "balanced")
    ]
    weak = probabilities(x, y, rng.choice(rest, 60 * factor), held_out, n_classes, None)
    found = {}
    for origin in ORIGINS:
        sets = Candidates.from_matrix(draw(origin, x[held_out], y[held_out], weak, rng))
        several = [*models, weak] if origin.startswith("imitated") else models
        found[origin] = counts(several, sets, y[held_out])
    return found


def data(problem: str, seed: int) -> tuple[Any, Any]:
    if problem.startswith("digits"):
        x, y = load_digits(return_X_y=True)
    else:
        x, y = make_classification(
            20_000, 24, n_informative=16, n_classes=200, n_clusters_per_class=1, class_sep=3.0,
            random_state=seed,
        )  # fmt: skip
    return StandardScaler().fit_transform(x), y


def probabilities(
    x: Any, y: Any, rows: Any, held_out: Any, n_classes: int, class_weight: str | None
) -> Any:
    """The predictions of a logistic regression that knows the true labels of some rows."""
    model = LogisticRegression(C=0.1, max_iter=200, class_weight=class_weight)
    model.fit(x[rows], y[rows])
    found = np.full((len(held_out), n_classes), 1e-6)
    found[:, model.classes_] += model.predict_proba(x[held_out])
    return found / found.sum(1, keepdims=True)


def draw(origin: str, x: Any, y: Any, weak: Any, rng: Any) -> Any:
    """A 0/1 matrix of candidates, (rows, classes)."""
    n, n_classes = weak.shape
    true = np.arange(n_classes) == y[:, None]
    if origin.startswith("independent") or origin == "missing":
        rate = 0.3 if origin == "missing" else float(origin.split()[1])
        sets = rng.random((n, n_classes)) < rate * (10 / n_classes if n_classes > 10 else 1)
        if origin != "missing":
            return sets | true
        lost = (rng.random(n) < 0.1)[:, None]
        sets = np.where(lost, sets & ~true, sets | true)
        sets[~sets.any(1), (y[~sets.any(1)] + 1) % n_classes] = True
        return sets
    if origin == "look-alikes":
        present = np.unique(y)
        means = np.stack([x[y == c].mean(0) for c in present])
        far = np.linalg.norm(means[:, None] - means[None], axis=2)
        near = present[far.argsort(1)[:, 1:3]][np.searchsorted(present, y)]
        sets = true.copy()
        for column in near.T:
            joins = rng.random(n) < 0.5
            sets[np.flatnonzero(joins), column[joins]] = True
        return sets
    if origin == "scenes":
        scene = rng.permutation(n) // 3
        union = np.zeros((scene.max() + 1, n_classes), dtype=bool)
        union[scene, y] = True
        return union[scene]
    if origin == "features":
        odds = np.where(true, 0, weak)
        return (rng.random((n, n_classes)) < odds / odds.max(1, keepdims=True)) | true
    best = np.argsort(-weak, axis=1)[:, :3]
    sets = true.copy()
    sets[np.arange(n)[:, None], best] = True
    return sets


def counts(models: list[Any], sets: Candidates, y: Any) -> dict[str, list[int]]:
    """How many pairs each criterion ranks the wrong way round, of how many."""
    right = [found.argmax(1) == y for found in models]
    accuracy = [one.mean() for one in right]
    balanced = [np.mean([one[y == c].mean() for c in np.unique(y)]) for one in right]
    information = [set_information(found, sets).nats for found in models]
    likelihood = [np.log(set_probabilities(found, sets)[0]).mean() for found in models]
    criteria = {
        "accuracy": (information, accuracy),
        "balanced": (information, balanced),
        "likelihood": (likelihood, accuracy),
    }
    result = {}
    for name, (score, truth) in criteria.items():
        pairs = [
            (score[a] - score[b]) * (truth[a] - truth[b]) < 0
            for a, b in itertools.combinations(range(len(models)), 2)
            if abs(truth[a] - truth[b]) >= LEAST
        ]
        result[name] = [int(sum(pairs)), len(pairs)]
    return result


if __name__ == "__main__":
    main()
