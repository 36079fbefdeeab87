"""Measures a training step on a share of a batch, for smaller and smaller shares: captured and
eager, with and without communication.

    python benchmarks/shares.py --out results/bench/shares-h200.json

With one GPU nothing is really sent, so this is a lower bound for several processes: their work and
the launching of messages.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from ltpll.runs.environment import environment
from ltpll.training.distributed import World
from ltpll_research.benchmark import Experiment, build_trainer, draw_problem
from ltpll_research.engine_speed import noise_images


class SelfMessaging(World):
    """A single process that communicates as if it were one of several."""

    alone = False


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--rows",
        nargs="*",
        type=int,
        default=[256, 128, 64, 32],
        help="rows per process, each with two views",
    )
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("error: no CUDA device was found.")
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29577",
        "RANK": "0",
        "WORLD_SIZE": "1",
    }
    dist.init_process_group("nccl")
    several = SelfMessaging(0, 1, dist.new_group(backend="gloo"))
    experiment = Experiment(
        "noise", method="corr", rebalancer="records", precision="bfloat16", epochs=100
    )
    problem = draw_problem(experiment, noise_images(500, 100, 10))
    rows: list[dict[str, Any]] = []
    for size in options.rows:
        for engine in ("captured", "eager"):
            for world in (None, several):
                with patch(
                    "ltpll.training.trainer.current_world", lambda world=world: world or World()
                ):
                    trainer = build_trainer(
                        replace(experiment, batch_size=size), problem, device="cuda", engine=engine
                    )
                trainer.prepare(problem.x, problem.candidates)
                epochs = 2 if engine == "captured" else 1
                for _ in range(epochs + 1):  # the first steps record CUDA graphs
                    trainer.train_epoch()
                torch.cuda.synchronize()
                began = time.perf_counter()
                for _ in range(epochs):
                    trainer.train_epoch()
                torch.cuda.synchronize()
                step = (time.perf_counter() - began) / (epochs * trainer.views_per_epoch) * 2 * size
                rows.append(
                    {
                        "rows": size,
                        "engine": engine,
                        "messages": world is not None,
                        "step_milliseconds": 1000 * step,
                    }
                )
                print(rows[-1], flush=True)
                if engine == "captured":
                    trainer._runner.graphed_step.clear()  # NCCL cannot shut down while they exist
                if options.out:
                    options.out.parent.mkdir(parents=True, exist_ok=True)
                    options.out.write_text(
                        json.dumps({"environment": environment("cuda"), "rows": rows}, indent=1)
                        + "\n"
                    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
