"""Checks the cost model of docs/cluster.md: the CPU time of a step in one, two and four processes.

    python benchmarks/processes.py --out results/bench/processes.json

The model is fitted to one process, which trains on the whole batch, a half and a quarter of it, and
to a sum over two processes that do nothing else. It predicts the CPU time of each of K processes
that train together on a table with many classes. CPU time is measured, since the processes may
share cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ltpll.candidates import Candidates
from ltpll.methods import CORR
from ltpll.models import build_model
from ltpll.rebalancers import RECORDS
from ltpll.runs.environment import environment
from ltpll.training.distributed import World
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.views import FeatureViews

ROWS, FEATURES, CLASSES, BATCH = 8_192, 64, 10_000, 512
STEPS, SUMS = 10, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(*options.child)))
        return
    seconds: dict[str, list[float]] = {}
    for _ in range(options.repeats):
        for size, batch in ((1, BATCH), (1, BATCH // 2), (1, BATCH // 4), (2, BATCH), (4, BATCH)):
            seconds.setdefault(f"{size} × {batch}", []).append(together(size, batch, "steps"))
        seconds.setdefault("sum", []).append(together(2, BATCH, "sums"))
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    found: dict[str, Any] = {"environment": environment("cpu"), "seconds": seconds, "rows": []}
    for size in (2, 4):
        # A ring sends 2 (K - 1) / K of the gradients, and two processes send them once.
        predicted = middle[f"1 × {BATCH // size}"] + middle["sum"] * 2 * (size - 1) / size
        actual = middle[f"{size} × {BATCH}"]
        row = {"processes": size, "predicted": predicted, "measured": actual}
        found["rows"].append(row | {"ratio": actual / predicted})
        print(found["rows"][-1], flush=True)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


def together(size: int, batch: int, what: str) -> float:
    """The mean over the processes of the median CPU time of a step, or of a sum of gradients."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child"]
        given = [f"{folder}/store", str(size), str(batch)]
        how: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True}
        how["env"] = {**os.environ, "OMP_NUM_THREADS": "1", "WHAT": what}
        started = [
            subprocess.Popen([*command, given[0], str(rank), *given[1:]], **how)
            for rank in range(size)
        ]
        said = [process.communicate()[0] for process in started]
    return statistics.mean(json.loads(text) for text in said)


def measured(store: str, rank: str, size: str, batch: str) -> float:
    """What one process measures."""
    torch.set_num_threads(1)
    world = World()
    if int(size) > 1:
        how = {"rank": int(rank), "world_size": int(size), "init_method": f"file://{store}"}
        dist.init_process_group("gloo", **how)
        world = World(int(rank), int(size), dist.new_group(backend="gloo"))
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, ROWS)
    x = torch.from_numpy(rng.normal(size=(ROWS, FEATURES)).astype(np.float32))
    labels = np.concatenate([y[:, None], rng.integers(0, CLASSES, (ROWS, 4))], axis=1)
    sets = Candidates.from_flat(np.arange(ROWS + 1) * 5, labels.ravel(), CLASSES)
    trainer = PartialLabelTrainer(
        build_model("mlp", 0, n_inputs=FEATURES, n_classes=CLASSES),
        CORR(),
        RECORDS(),
        views=FeatureViews.of(x),
        epochs=5,
        warmup_epochs=0,
        batch_size=int(batch),
        device="cpu",
        threads=1,
        world=world,
    )
    trainer.prepare(x, sets)
    times = [time.process_time()]

    def after() -> bool:
        times.append(time.process_time())
        return len(times) > STEPS

    if os.environ["WHAT"] == "sums":
        for parameter in trainer.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        for _ in range(SUMS):
            world.average_gradients(trainer.model.parameters())
            times.append(time.process_time())
    else:
        trainer.train_epoch(after)
    return float(np.median(np.diff(times)[2:]))


if __name__ == "__main__":
    main()
