"""Compares the accuracy of bfloat16 with CUDA graphs and of eager float32 in short runs.

    python benchmarks/precision.py cifar100 --data-root DIR --out results/bench/precision-h200.json

Both runs of a seed share images, candidates and initial weights, so the difference is taken per
seed.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from scipy import stats

from ltpll.evaluation.during_training import Evaluate
from ltpll.runs.environment import environment
from ltpll_research.benchmark import Experiment, build_trainer, draw_problem
from ltpll_research.image_sets.prepared import load_image_set

WAYS = {"float32, eager": ("float32", "eager"), "bfloat16, captured": ("bfloat16", "captured")}
FIGURES = {
    "accuracy": lambda record: record["test"]["balanced_accuracy"],
    "target recovery": lambda record: record["target_recovery"],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    images = load_image_set(options.data, options.data_root)
    runs: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        experiment = Experiment(options.data, epochs=options.epochs, seed=seed)
        problem = draw_problem(experiment, images)
        for way, (precision, engine) in WAYS.items():
            if options.device == "cpu":
                engine = "eager"
            trainer = build_trainer(
                replace(experiment, precision=precision),
                problem,
                device=options.device,
                engine=engine,
            )
            truth = Evaluate(problem.x_test, problem.y_test, problem.y)
            trainer.fit(problem.x, problem.candidates, callbacks=[truth])
            figures = {
                name: float(100 * read(trainer.history[-1])) for name, read in FIGURES.items()
            }
            runs.append({"seed": seed, "way": way, **figures})
            print(runs[-1], flush=True)
            del trainer
            torch.cuda.empty_cache()
        if options.out and seed > 0:
            record = {
                "environment": environment(options.device),
                "experiment": experiment.config(),
                "runs": runs,
                **compare(runs),
            }
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(compare(runs))


def compare(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The means of both variants, their difference over seeds, and half the width of its 95 %
    confidence interval.
    """
    exact, fast = ([run for run in runs if run["way"] == way] for way in WAYS)
    found: dict[str, Any] = {"n": len(fast)}
    for name in FIGURES:
        differences = [b[name] - a[name] for a, b in zip(exact, fast, strict=True)]
        half = (
            stats.t.ppf(0.975, len(fast) - 1) * statistics.stdev(differences) / math.sqrt(len(fast))
        )
        found[name] = {
            "exact": statistics.mean(run[name] for run in exact),
            "exact_deviation": statistics.stdev(run[name] for run in exact),
            "fast": statistics.mean(run[name] for run in fast),
            "difference": statistics.mean(differences),
            "interval": half,
        }
    return found


if __name__ == "__main__":
    main()
