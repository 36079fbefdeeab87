"""Measures what `KeepBestEpoch` gains: test accuracy at the last, the best and the chosen epoch.

    python benchmarks/stopping.py --out results/stopping

scikit-learn's digits are made long-tailed (the rarest class has a twentieth of the rows of the most
frequent), and each wrong label joins with probability q. A tenth of the training rows are held out
for the choice; the last epoch is also that of a network that was trained on the other nine tenths.
The networks see rows of 64 features, or pictures of 8 × 8 pixels. Existing records are kept.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from ltpll import CandidateKFold, KeepBestEpoch, PartialLabelClassifier
from ltpll.runs.environment import environment
from ltpll.synthetic import long_tail_subset, uniform_candidates
from ltpll.training.callbacks import Callback

SETTINGS = [
    (kind, rebalancer, ambiguity)
    for kind in ("features", "pixels")
    for rebalancer in ("records", "mean-target")
    for ambiguity in (0.3, 0.5, 0.7)
]
EPOCHS = {"features": 320, "pixels": 100}
IMBALANCE = 20


class TestAccuracy(Callback):
    """Keeps the accuracy on balanced test rows of every epoch."""

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = torch.from_numpy(x), y
        self.by_epoch: list[float] = []

    def on_epoch_end(self, trainer: Any, record: dict[str, Any]) -> None:
        predicted = trainer.logits(self.x).argmax(1).cpu().numpy()
        self.by_epoch.append(float((predicted == self.y).mean()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for seed in range(options.seeds):
        for kind, rebalancer, ambiguity in SETTINGS:
            path = options.out / f"{kind}-{rebalancer}-{ambiguity}-{seed}.json"
            if not path.exists():
                record = measure(kind, rebalancer, ambiguity, seed)
                path.write_text(json.dumps(record, indent=1) + "\n")
                print(path.stem, {name: record[name] for name in ("last", "best", "chosen")})


def measure(kind: str, rebalancer: str, ambiguity: float, seed: int) -> dict[str, Any]:
    """The record of one training run."""
    began = time.process_time()
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    if kind == "pixels":
        x = (255 * x).astype(np.uint8).reshape(-1, 8, 8, 1).repeat(3, axis=3)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.3, random_state=seed, stratify=y)
    chosen = long_tail_subset(y, IMBALANCE, seed=seed)
    x, y = x[chosen], y[chosen]
    sets = uniform_candidates(y, n_classes=10, ambiguity=ambiguity, seed=seed)
    train, held_out = next(CandidateKFold(10, random_state=seed).split(x, sets))
    classifier = PartialLabelClassifier(
        rebalancer=rebalancer,
        epochs=EPOCHS[kind],
        batch_size=32,
        goal="balanced",
        random_state=seed,
        device="cpu",
        threads=1,
    )
    pictures = (0, 3, 1, 2) if kind == "pixels" else (0, 1)
    keep = KeepBestEpoch(x[held_out].transpose(pictures), sets.select(held_out))
    test = TestAccuracy(x_test.transpose(pictures), y_test)
    classifier.run_training(classifier.prepare_training(x[train], sets.select(train)), [keep, test])
    return {
        "kind": kind,
        "rebalancer": rebalancer,
        "ambiguity": ambiguity,
        "imbalance": IMBALANCE,
        "seed": seed,
        "rows": len(train),
        "held_out": len(held_out),
        "epochs": EPOCHS[kind],
        # The callback has already put the best weights back when the last epoch is tested.
        "last": test.by_epoch[-2],
        "best": max(test.by_epoch[:-1]),
        "chosen": test.by_epoch[-1],
        "chosen_epoch": keep.epoch,
        "cpu_seconds": round(time.process_time() - began, 1),
        "environment": environment("cpu"),
    }


if __name__ == "__main__":
    main()
