"""Measures the training step of each system, compared with CORR and RECORDS on the same data, batch
size and engine.

python benchmarks/systems.py --out results/bench/systems-h200.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from ltpll.runs.environment import environment
from ltpll.validation import chosen_device
from ltpll_research.benchmark import Experiment, build_trainer, draw_problem
from ltpll_research.engine_speed import noise_images, time_milliseconds

SYSTEMS: list[tuple[str, str, tuple[str, ...]]] = [
    ("corr", "records", ()),
    ("corr", "none", ()),
    ("proden", "records", ()),
    ("lw", "records", ()),
    ("cavl", "records", ()),
    ("corr", "records", ("mixup",)),
    ("corr", "none", ("sfn",)),
    ("corr", "none", ("ldd",)),
    ("corr", "oracle-la", ("bcl",)),
    ("corr", "oracle-la", ("paco",)),
    ("pico", "none", ()),
    ("solar", "none", ()),
    ("htc", "none", ()),
    ("deacon", "none", ()),
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--width", type=int, default=64, help="width of the ResNet-18")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for method, rebalancer, extras in SYSTEMS:
        row: dict[str, Any] = {
            "method": method,
            "rebalancer": rebalancer,
            "extras": list(extras),
            "milliseconds": None,
        }
        try:
            row["milliseconds"], row["gib"] = measure(
                method, rebalancer, extras, options.width, options.device
            )
        except Exception as error:  # one failure must not hide the other results
            row["failed"] = f"{type(error).__name__}: {error}"
        rows.append(row)
        print(row, flush=True)
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(
                json.dumps(
                    {
                        "environment": environment(str(chosen_device(options.device))),
                        "batch": 256,
                        "rows": rows,
                    },
                    indent=1,
                )
                + "\n"
            )


def measure(
    method: str, rebalancer: str, extras: tuple[str, ...], width: int, device: str
) -> tuple[float, float | None]:
    """Milliseconds per step as late in training, with refined targets and full queues, and the peak
    memory.
    """
    experiment = Experiment(
        "noise",
        method=method,
        rebalancer=rebalancer,
        extras=extras,
        ambiguity=0.5,
        width=width,
        precision="bfloat16",
        epochs=10,
    )
    problem = draw_problem(experiment, noise_images(1000, 10, 10))
    trainer = build_trainer(experiment, problem, device=device)
    on_cuda = trainer.device.type == "cuda"
    if on_cuda:
        torch.cuda.reset_peak_memory_stats()
    trainer.prepare(problem.x, problem.candidates)
    for _ in range(4):
        trainer.train_epoch()
    rows = torch.arange(experiment.batch_size, device=trainer.device)
    views = trainer.draw(rows)
    milliseconds = time_milliseconds(
        trainer, lambda: trainer._runner.step(rows, views), repeats=30 if on_cuda else 1
    )
    return milliseconds, torch.cuda.max_memory_allocated() / 2**30 if on_cuda else None


if __name__ == "__main__":
    main()
