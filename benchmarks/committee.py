"""Measures the CPU time of the default fit of a table, beside another version of ltpll.

    git worktree add /tmp/before COMMIT
    python benchmarks/committee.py --before /tmp/before --out results/bench/committee-cpu.json

The versions take turns, each fit in a process of its own with one thread. Rows are Gaussian clusters
of ten classes, the most frequent one twenty times as frequent as the rarest; each wrong label joins
a set with probability 0.3. CPU time counts the fit alone, without imports.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

CLASSES = 10
HERE = Path(__file__).resolve().parents[1]


def fit(n: int, features: int, seed: int) -> dict[str, float]:
    """The CPU seconds of a fit, and the share of labels that it recovers."""
    from sklearn.datasets import make_classification

    from ltpll import Committee
    from ltpll.synthetic import uniform_candidates

    shares = np.geomspace(1, 0.05, CLASSES)
    x, y = make_classification(
        n,
        features,
        n_informative=max(6, features // 3),
        n_redundant=features // 5,
        n_classes=CLASSES,
        class_sep=1.2,
        weights=shares / shares.sum(),
        random_state=seed,
    )
    sets = uniform_candidates(y, n_classes=CLASSES, ambiguity=0.3, seed=seed)
    Committee(folds=2, steps=5, device="cpu").fit(x[:200], sets.select(np.arange(200)))
    began = time.process_time()
    found = Committee(device="cpu").fit(x, sets)
    seconds = time.process_time() - began
    return {"seconds": seconds, "labels": float((found.transduce().labels == y).mean())}


def measured(tree: Path, n: int, features: int, seed: int) -> dict[str, float]:
    """What `fit` returns with the version of ltpll in a working tree."""
    own = {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--fit", str(n), str(features), str(seed)]
    done = subprocess.run(
        command, env=os.environ | own, stdout=subprocess.PIPE, check=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, default=HERE)
    parser.add_argument("--shapes", nargs="+", default=["1000x10", "5000x10", "5000x100"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--fit", type=int, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        print(json.dumps(fit(*options.fit)))
        return
    rows = []
    for shape in options.shapes:
        n, features = map(int, shape.split("x"))
        found: dict[str, list[dict[str, float]]] = {"before": [], "now": []}
        for seed in range(options.repeats):
            found["before"].append(measured(options.before, n, features, seed))
            found["now"].append(measured(HERE, n, features, seed))
        row = {"rows": n, "features": features} | {
            f"{when}_{name}": [round(one[name], 4) for one in own]
            for when, own in found.items()
            for name in ("seconds", "labels")
        }
        ratios = [b / a for b, a in zip(row["before_seconds"], row["now_seconds"], strict=True)]
        print(row, f"{statistics.mean(ratios):.2f} times as fast", flush=True)
        rows.append(row)
    if options.out:
        from ltpll.runs.environment import environment

        record = {"environment": environment("cpu") | {"threads": 1}, "classes": CLASSES}
        options.out.write_text(json.dumps(record | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
