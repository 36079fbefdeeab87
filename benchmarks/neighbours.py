"""Measures the exact search for nearest neighbours: ours, scikit-learn's, and blocks of products
with a `topk` of each.

    python benchmarks/neighbours.py --out results/bench/neighbours-cpu.json

All three find the neighbours of every row. The others are measured on fewer rows, since time grows
with their square. Each turn runs in a process of its own, and turns alternate. On a machine that
others use, too, the time of the processor says more than that of the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from ltpll.pruning import NEIGHBOURS, nearest_neighbours
from ltpll.runs.environment import environment

FEATURES = 512
BLOCK = 2048  # rows
SCIKIT_LEARN, TOPK, OURS = (
    "scikit-learn, `NearestNeighbors`",
    "blocks of products, `topk` of each",
    "ours",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--compared", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    turns = [(how, options.compared) for how in (SCIKIT_LEARN, TOPK, OURS)] + [(OURS, options.rows)]
    found: dict[tuple[str, int], list[dict[str, float]]] = {turn: [] for turn in turns}
    for _ in range(options.repeats):
        for turn in turns:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                found[turn].append(pool.submit(measure, *turn).result())
            print(*turn, found[turn][-1], flush=True)
        rows = [{"how": how, "rows": n, "turns": every} for (how, n), every in found.items()]
        record = {
            "features": FEATURES,
            "neighbours": NEIGHBOURS,
            "rows": rows,
            "environment": environment("cpu"),
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")


def measure(how: str, n: int) -> dict[str, float]:
    """Seconds of the clock and of the processor, the memory that was needed beside the features,
    and how busy the machine was before.
    """
    x = torch.randn(n, FEATURES, generator=torch.Generator().manual_seed(0))
    load = os.getloadavg()[0]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clock, processor = time.perf_counter(), time.process_time()
    if how == SCIKIT_LEARN:
        NearestNeighbors(n_neighbors=NEIGHBOURS, algorithm="brute").fit(x.numpy()).kneighbors()
    elif how == TOPK:
        by_topk(x)
    else:
        nearest_neighbours(x, NEIGHBOURS)
    seconds, cpu_seconds = time.perf_counter() - clock, time.process_time() - processor
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "mib": round(memory),
        "load": round(load, 1),
    }


def by_topk(x: Tensor) -> Any:
    """Each block of rows with all others, in blocks of columns, of which `topk` keeps the
    nearest.
    """
    half = x.square().sum(1) / 2
    found = []
    for rows in torch.arange(len(x)).split(BLOCK):
        best = torch.full((len(rows), 0), np.inf)
        index = torch.empty((len(rows), 0), dtype=torch.int64)
        for columns in torch.arange(len(x)).split(BLOCK):
            distances = torch.addmm(half[columns], x[rows], x[columns].T, alpha=-1)
            distances[rows[:, None] == columns] = torch.inf
            near, where = distances.topk(min(NEIGHBOURS, len(columns)), dim=1, largest=False)
            best, chosen = torch.cat([best, near], dim=1).topk(NEIGHBOURS, dim=1, largest=False)
            index = torch.cat([index, columns[where]], dim=1).gather(1, chosen)
        found.append(index)
    return torch.cat(found)


if __name__ == "__main__":
    main()
