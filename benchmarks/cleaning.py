"""Measures how well `clean` finds candidate sets that lack the true label, with in-sample and with out-of-fold predictions.

    python benchmarks/cleaning.py PACK --out results/bench/cleaning-cpu.json

It uses digits (long-tailed, with random wrong labels) and the tables of PACK (see benchmarks/tabular.py), and removes the true label from
a tenth of the sets. A row is flagged if the classifier prefers a label outside its set.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold

from ltpll.data.synthetic import long_tail_subset, uniform_candidates
from ltpll.errors import InputWarning
from ltpll.estimator import PartialLabelClassifier
from ltpll.runs.environment import environment

MISSING = 0.1
FOLDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", InputWarning)
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for name, x, y, sets in problems(options.pack, seed):
            without = remove_truth(sets, y, seed)
            missing = ~without[np.arange(len(y)), y]
            for rebalancer in ("none", "records"):
                fitted = PartialLabelClassifier(rebalancer=rebalancer, random_state=seed).fit(x, without)
                recovered = float((fitted.transduce().labels == y)[~missing].mean())
                for how, probabilities in (("own", fitted.predict_proba(x)), ("folds", out_of_fold(x, without, rebalancer, seed))):
                    row = {"problem": name, "seed": seed, "rebalancer": rebalancer, "opinion": how, "n": len(y), "recovered": recovered}
                    rows.append(row | detection_figures(probabilities, without, missing, y))
                    print(rows[-1], flush=True)
    if options.out:
        found = {"environment": environment("cpu"), "missing": MISSING, "folds": FOLDS, "rows": rows}
        options.out.write_text(json.dumps(found, indent=1) + "\n")


def problems(pack: Path, seed: int) -> Iterator[tuple[str, Any, Any, Any]]:
    x, y = load_digits(return_X_y=True)
    kept = long_tail_subset(y, 20, seed=seed)
    candidates = uniform_candidates(y[kept], 10, 0.3, seed=seed)
    yield "digits", x[kept].astype(np.float32), y[kept], candidates[torch.arange(len(kept))].numpy()
    with np.load(pack) as tables:
        for name in sorted(key.removesuffix("_X") for key in tables.files if key.endswith("_X")):
            sets = np.unpackbits(tables[f"{name}_S"], axis=1)[:, : int(tables[f"{name}_C"])].astype(bool)
            yield name, tables[f"{name}_X"].astype(np.float32), tables[f"{name}_y"].astype(np.int64), sets


def remove_truth(sets: Any, y: Any, seed: int) -> Any:
    """Remove the true label from a tenth of the sets; a set that becomes empty gets a wrong label."""
    rng = np.random.default_rng(seed)
    changed = sets.copy()
    chosen = np.flatnonzero(rng.random(len(y)) < MISSING)
    changed[chosen, y[chosen]] = False
    for i in np.flatnonzero(~changed.any(1)):
        changed[i, rng.choice(np.delete(np.arange(sets.shape[1]), y[i]))] = True
    return changed


def out_of_fold(x: Any, sets: Any, rebalancer: str, seed: int) -> Any:
    probabilities = np.zeros(sets.shape, dtype=np.float32)
    for train, test in KFold(FOLDS, shuffle=True, random_state=seed).split(x):
        fitted = PartialLabelClassifier(rebalancer=rebalancer, random_state=seed).fit(x[train], sets[train])
        probabilities[test] = fitted.predict_proba(x[test])
    return probabilities


def detection_figures(probabilities: Any, sets: Any, missing: Any, y: Any) -> dict[str, Any]:
    flagged = ~sets[np.arange(len(y)), probabilities.argmax(1)]
    outside, inside = np.where(sets, 0, probabilities).max(1), np.where(sets, probabilities, 0).max(1)
    return {
        "flagged": int(flagged.sum()),
        "precision": float(missing[flagged].mean()) if flagged.any() else None,
        "recall": float(flagged[missing].mean()),
        "suggested_right": float((probabilities.argmax(1) == y)[flagged & missing].mean()) if (flagged & missing).any() else None,
        "ranking": float(roc_auc_score(missing, outside - inside)),
    }


if __name__ == "__main__":
    main()
