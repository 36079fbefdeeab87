"""Measures methods with rebalancers on the pixels of scikit-learn's digits, small enough for a CPU.

    python benchmarks/methods.py --out results/methods

Candidate sets are drawn in three ways: wrong labels join independently (uniform), likelier ones join
more often (instance-dependent), or some sets lack the true label (lacking). Every run of a setting
has its own record; existing records are kept.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from ltpll.candidates import Candidates
from ltpll.errors import InputWarning
from ltpll.estimator import PartialLabelClassifier
from ltpll.methods import ALIM, CORR, DEACON, DIRK, HTC, POP, PRODEN, PaPi
from ltpll.runs.environment import environment
from ltpll.synthetic import load_digits_split, long_tail_subset, uniform_candidates
from ltpll_research.set_origins import remove_labels

EPOCHS = 100
N_CLASSES = 10
LARGEST = {1: 30, 20: 100}  # examples of the most frequent class, by imbalance
MISSING = 0.2  # the share of sets that lack the true label
RATE = 0.4  # of wrong labels that join, before probabilities are capped at 1
# Schedules that count epochs are shortened with the training (published: 500 to 1,000 epochs).
METHODS: dict[str, Any] = {
    "proden": PRODEN(),
    "corr": CORR(),
    "pop": POP(first_epoch=5),
    "papi": PaPi(ramp_epochs=2),
    "dirk": DIRK(),
    "dirk-ref": DIRK(contrast=1.0),
    "alim": ALIM(estimate_from=8),
    "htc": HTC(ramp_epochs=6),
    "deacon": DEACON(ramp_epochs=6, contrast_from=(9, 12)),
}
LACKING: dict[str, tuple[Any, dict[str, float]]] = {
    "proden": (PRODEN(), {}),
    "proden, open sets": (PRODEN(), {"truth_missing": MISSING}),
    "alim-onehot": (ALIM(missing=MISSING, estimate_from=8), {}),
    "alim-scale": (ALIM(missing=MISSING, estimate_from=8, form="scale"), {}),
}
# Where labels join independently, "auto" is the anchor.
REBALANCERS = {
    "uniform": ("none", "records", "anchor"),
    "instance-dependent": ("none", "records", "anchor", "auto"),
    "lacking": ("none", "auto"),
}


class Setting(NamedTuple):
    """One run."""

    sets: str
    imbalance: int
    method: str
    rebalancer: str
    seed: int

    @property
    def file(self) -> str:
        return "-".join(map(str, self)).replace(", ", "_").replace(" ", "_") + ".json"


def settings(seeds: list[int]) -> list[Setting]:
    ways = {"uniform": METHODS, "instance-dependent": METHODS, "lacking": LACKING}
    return [
        Setting(sets, imbalance, method, rebalancer, seed)
        for seed in seeds
        for sets, methods in ways.items()
        for imbalance in LARGEST
        for method in methods
        for rebalancer in REBALANCERS[sets]
        if rebalancer == "none" or method not in METHODS or not METHODS[method].why_no_rebalancer
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    missing = [one for one in settings(options.seeds) if not (options.out / one.file).exists()]
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(measure, one): one for one in missing}
        for done in as_completed(waiting):
            setting, record = waiting[done], done.result()
            (options.out / setting.file).write_text(json.dumps(record, indent=1) + "\n")
            print(*setting, record["balanced_accuracy"], record["recovery"], flush=True)


def measure(setting: Setting) -> dict[str, Any]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", InputWarning)
    started = time.process_time()
    split = load_digits_split(seed=setting.seed)
    imbalance, seed = setting.imbalance, setting.seed
    chosen = long_tail_subset(split.y_pool, imbalance, seed=seed, largest=LARGEST[imbalance])
    x, y = split.x_pool[chosen].reshape(len(chosen), -1), split.y_pool[chosen]
    sets = candidate_sets(setting, x, y)
    known: dict[str, float] = {}
    method = METHODS.get(setting.method)
    if setting.sets == "lacking":
        method, known = LACKING[setting.method]
    how: dict[str, Any] = {"epochs": EPOCHS, "goal": "balanced", "device": "cpu", "threads": 1}
    model = PartialLabelClassifier(method, setting.rebalancer, random_state=seed, **how, **known)
    predicted = model.fit(x, sets).predict(split.x_test.reshape(len(split.x_test), -1))
    right = predicted == split.y_test
    return {
        **setting._asdict(),
        "n": len(x),
        "set_size": round(float(sets.sizes.double().mean()), 3),
        "epochs": EPOCHS,
        "options": method.get_params(),
        "balanced_accuracy": round(
            float(np.mean([right[split.y_test == k].mean() for k in range(N_CLASSES)])), 5
        ),
        "recovery": round(float((model.transduce().labels == y).mean()), 5),
        "seconds": round(time.process_time() - started, 2),
        "environment": environment("cpu"),
    }


def candidate_sets(setting: Setting, x: Any, y: Any) -> Candidates:
    if setting.sets == "instance-dependent":
        return instance_dependent_candidates(x, y, setting.seed)
    if setting.sets == "uniform":
        return uniform_candidates(y, N_CLASSES, 0.5, seed=setting.seed)
    return remove_labels(
        uniform_candidates(y, N_CLASSES, 0.3, seed=setting.seed), y, MISSING, seed=setting.seed
    )


def instance_dependent_candidates(x: Any, y: Any, seed: int) -> Candidates:
    """Wrong labels join in proportion to the probabilities of a classifier of the true labels."""
    model = LogisticRegression(C=0.01, max_iter=300).fit(x, y)
    rates = np.zeros((len(x), N_CLASSES))
    rates[:, model.classes_] = model.predict_proba(x)
    rows = np.arange(len(x))
    rates[rows, y] = 0.0
    rates /= rates.max(1, keepdims=True)
    rates *= RATE / rates.mean(1, keepdims=True)
    joined = np.random.default_rng(seed).random(rates.shape) < rates
    joined[rows, y] = True
    return Candidates.from_matrix(joined)


if __name__ == "__main__":
    main()
