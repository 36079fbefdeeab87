"""Measures flags and confidences on tables in which it is known which sets lack the true label.

    python benchmarks/cleaning.py PACK --out results/bench/cleaning-cpu.json

It uses digits at three imbalances, with random wrong labels or with those of three simulated
annotators, and the tables of PACK (see benchmarks/tabular.py) with their own sets. The true label
is removed from 0, 2, 10 and 30 % of the sets of digits, and from 0 and 10 % of the others. Five
folds of the default classifier predict all rows, and `ltpll.cleaning` judges them as `ltpll train`
does.
"""

from __future__ import annotations

import argparse
import json
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from ltpll.candidates import Candidates
from ltpll.cleaning.judgement import judge
from ltpll.cleaning.results import FALSE_DISCOVERIES, flagged_sets
from ltpll.errors import InputWarning
from ltpll.estimator import PartialLabelClassifier
from ltpll.evaluation.metrics import calibration_figures
from ltpll.evaluation.set_predictions import SetPredictions, predict_sets
from ltpll.folds import fold_splits
from ltpll.rebalancers.auto import AVERAGE, PLAIN, Auto
from ltpll.runs.environment import environment
from ltpll.synthetic import long_tail_subset, uniform_candidates
from ltpll_research.set_origins import crowd_candidates

MISSING = (0.0, 0.02, 0.1, 0.3)
FOLDS = 5
DIGITS = [
    f"digits, ρ={imbalance}, {sets}"
    for sets in ("q=0.3", "three annotators")
    for imbalance in (1, 10, 50)
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pack", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="problems whose name starts so")
    options = parser.parse_args()
    with np.load(options.pack) as tables:
        names = DIGITS + sorted(
            key.removesuffix("_X") for key in tables.files if key.endswith("_X")
        )
    settings = [
        (name, missing)
        for name in names
        for missing in MISSING
        if name in DIGITS or missing in (0.0, 0.1)
    ]
    # An interrupted benchmark leaves what it has, and goes on from there.
    rows: list[dict[str, Any]] = (
        json.loads(options.out.read_text())["rows"] if options.out and options.out.exists() else []
    )
    done = {(row["problem"], row["missing"], row["seed"]) for row in rows}
    jobs = [
        (*setting, seed)
        for seed in range(options.seeds)
        for setting in settings
        if setting[0].startswith(options.only)
    ]
    made = environment("cpu")
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        for finished in as_completed(
            [pool.submit(measure, options.pack, *job) for job in jobs if job not in done]
        ):
            rows.append(finished.result())
            print(f"{len(rows)} of {len(jobs)}", rows[-1], flush=True)
            rows.sort(key=lambda row: (names.index(row["problem"]), row["missing"], row["seed"]))
            if options.out:
                found = {
                    "environment": made,
                    "folds": FOLDS,
                    "false_discoveries": FALSE_DISCOVERIES,
                    "rows": rows,
                }
                options.out.write_text(json.dumps(found, indent=1) + "\n")


def problem(pack: Path, name: str, seed: int) -> tuple[Any, Any, Any]:
    """Features, true labels, and sets that hold them."""
    if not name.startswith("digits"):
        with np.load(pack) as tables:
            sets = np.unpackbits(tables[f"{name}_S"], axis=1)[:, : int(tables[f"{name}_C"])].astype(
                bool
            )
            return (
                tables[f"{name}_X"].astype(np.float32),
                tables[f"{name}_y"].astype(np.int64),
                sets,
            )
    _, imbalance, how = name.split(", ")
    x, y = load_digits(return_X_y=True)
    kept = long_tail_subset(y, float(imbalance.removeprefix("ρ=")), seed=seed)
    x, y = x[kept].astype(np.float32), y[kept]
    found = (
        uniform_candidates(y, 10, 0.3, seed=seed)
        if how.startswith("q")
        else crowd_candidates(y, 10, seed=seed)
    )
    return x, y, found[torch.arange(len(y))].numpy()


def remove_truth(sets: Any, y: Any, share: float, seed: int) -> Any:
    """Remove the true label from some sets; a set that becomes empty gets a wrong label, drawn by
    how often labels are candidates.
    """
    rng = np.random.default_rng(100 + seed)
    changed = sets.copy()
    chosen = np.flatnonzero(rng.random(len(y)) < share)
    changed[chosen, y[chosen]] = False
    frequency = changed.sum(0) + 1.0
    for i in np.flatnonzero(~changed.any(1)):
        others = np.where(np.arange(sets.shape[1]) == y[i], 0, frequency)
        changed[i, rng.choice(sets.shape[1], p=others / others.sum())] = True
    return changed


def measure(pack: Path, name: str, missing: float, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", InputWarning)
    x, y, sets = problem(pack, name, seed)
    sets = remove_truth(sets, y, missing, seed)
    candidates = Candidates.from_matrix(torch.as_tensor(sets))
    fitted = PartialLabelClassifier(random_state=seed, device="cpu", threads=1).fit(x, candidates)
    transduced = fitted.transduce()
    predictions = out_of_fold(x, candidates, fitted, seed)
    judgement = judge(predictions, sets.shape[1])
    flagged = flagged_sets(
        judgement.suspicion,
        judgement.judged_sets(predictions) & (predictions.outside >= 0),
        predictions.inside,
    )
    own = predict_sets(fitted.predict_proba, x, candidates)
    shares = [found.candidate_shares(judgement.temperature) for found in (predictions, own)]
    inside = predictions.most_probable((shares[0] + shares[1]) / 2)
    lacks = ~sets[np.arange(len(y)), y]
    counts = np.bincount(y, minlength=sets.shape[1])
    present = [c for c in np.argsort(-counts, kind="stable") if counts[c]]
    third = max(1, len(present) // 3)
    right = inside.label == y
    return {
        "problem": name,
        "missing": missing,
        "seed": seed,
        "rows": len(y),
        "lack": int(lacks.sum()),
        "estimated": judgement.missing,
        "flagged": int(flagged.sum()),
        "flagged_right": int((flagged & lacks).sum()),
        "suggested_right": int((flagged & lacks & (predictions.outside == y)).sum()),
        "contradicted": int(
            (~predictions.supported).sum()
        ),  # what was flagged before: the likeliest class is not a candidate
        "contradicted_right": int((~predictions.supported & lacks).sum()),
        "ranking": float(roc_auc_score(lacks, judgement.suspicion))
        if 0 < lacks.sum() < len(y)
        else None,
        **{
            f"{which}_{what}": int((rows & np.isin(y, classes) & ~lacks).sum())
            for which, classes in (("largest", present[:third]), ("rarest", present[-third:]))
            for what, rows in (
                ("fine", np.ones(len(y), dtype=bool)),
                ("flagged", flagged),
                ("contradicted", ~predictions.supported),
            )
        },
        "judged_classes": int(judgement.judged[present].sum()),
        "classes": len(present),
        "calibrated": calibration_figures((1 - judgement.suspicion) * inside.share, right),
        "targets": calibration_figures(transduced.confidence, transduced.labels == y),
    }


def out_of_fold(
    x: Any, candidates: Candidates, fitted: PartialLabelClassifier, seed: int
) -> SetPredictions:
    """Predictions by classifiers that hold class shares as the one on all rows does."""
    average = "average of the sets, because that gave" in fitted.choice_
    found = SetPredictions.empty(candidates)
    for others, rows in fold_splits(candidates, FOLDS, seed):
        classifier = PartialLabelClassifier(random_state=seed, device="cpu", threads=1)
        fitting = classifier.prepare_training(x[others], candidates.select(others))
        if isinstance(fitting.trainer.rebalancer, Auto):
            fitting.trainer.rebalancer.scores = {AVERAGE: float(average), PLAIN: float(not average)}
        classifier.run_training(fitting)
        found.put(rows, predict_sets(classifier.predict_proba, x[rows], candidates.select(rows)))
    return found


if __name__ == "__main__":
    main()
