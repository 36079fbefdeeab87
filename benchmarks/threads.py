"""Measures how fast a small network trains on a CPU while other jobs run: with all threads, with
one, and with the number `fit` chooses.

    python benchmarks/threads.py --out results/bench/threads-cpu.json

The other jobs are endless loops. On a shared machine there is further load; the average of the last
minute is recorded.
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
from typing import Any

import numpy as np
import torch

from ltpll.estimator import PartialLabelClassifier
from ltpll.runs.environment import environment
from ltpll.training.cpu_threads import VARIABLES

ROWS, FEATURES, CLASSES, VIEWS = 3000, 64, 10, 2
WAYS = {"all": None, "one": 1, "chosen": "auto"}
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        turns = [{how: speed(how) for how in WAYS} for _ in range(options.repeats)]
        print(json.dumps({how: [turn[how] for turn in turns] for how in WAYS}))
        return
    rows = []
    cores = len(os.sched_getaffinity(0))
    for jobs in (0, cores // 2, cores):
        load = os.getloadavg()[0]
        others = [
            subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())]) for _ in range(jobs)
        ]
        try:
            for waiting in ("spinning", "sleeping"):
                for how, speeds in measured(waiting, options.repeats).items():
                    median = round(statistics.median(speeds))
                    rows.append(
                        {
                            "jobs": jobs,
                            "waiting": waiting,
                            "threads": how,
                            "views_per_second": median,
                            "all": speeds,
                            "load": load,
                        }
                    )
                    print(rows[-1], flush=True)
        finally:
            for other in others:
                other.kill()
                other.wait()
    made = environment("cpu") | {"threads": torch.get_num_threads()}
    found = {
        "environment": made,
        "rows": rows,
        "repeats": options.repeats,
        "shape": [ROWS, FEATURES, CLASSES],
    }
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


def measured(waiting: str, repeats: int) -> dict[str, list[int]]:
    """Run in a separate process, since the waiting policy is fixed when torch is imported."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in (*VARIABLES, "OMP_WAIT_POLICY")
    }
    if waiting == "sleeping":
        variables["OMP_WAIT_POLICY"] = "PASSIVE"
    command = [sys.executable, __file__, "--child", "--repeats", str(repeats)]
    found: dict[str, list[int]] = json.loads(
        subprocess.run(command, env=variables, check=True, stdout=subprocess.PIPE).stdout
    )
    return found


def speed(how: str) -> int:
    """Views per second of three epochs after the first, which loads libraries and chooses the
    number of threads.
    """
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, ROWS)
    x = (rng.normal(size=(CLASSES, FEATURES))[labels] + rng.normal(size=(ROWS, FEATURES))).astype(
        np.float32
    )
    sets = rng.random((ROWS, CLASSES)) < 0.2
    sets[np.arange(ROWS), labels] = True
    ends: list[float] = []

    def tick(_: Any) -> None:
        ends.append(time.perf_counter())

    threads = WAYS[how] or torch.get_num_threads()
    PartialLabelClassifier(epochs=4, threads=threads, device="cpu", on_epoch=tick).fit(x, sets)
    return round(VIEWS * ROWS * 3 / (ends[-1] - ends[0]))


if __name__ == "__main__":
    main()
