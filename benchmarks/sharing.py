"""Measures the speed of several runs that share one GPU: CUDA graphs on streams, processes, and
processes with MPS.

python benchmarks/sharing.py --out results/bench/sharing-h200.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ltpll.runs.environment import environment
from ltpll.training.trainer import PartialLabelTrainer
from ltpll_research.benchmark import Experiment, build_trainer, draw_problem
from ltpll_research.engine_speed import noise_images

MPS = "nvidia-cuda-mps-control"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--runs", nargs="*", type=int, default=[1, 2, 3], help="numbers of simultaneous runs"
    )
    parser.add_argument("--epochs", type=int, default=20, help="timed epochs per run")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("error: no CUDA device was found.")
    rows: list[dict[str, Any]] = []
    for how in ("streams", "processes", "processes with MPS"):
        for runs in options.runs:
            row: dict[str, Any] = {"how": how, "runs": runs, "views_per_second": None}
            try:
                row["views_per_second"] = (
                    on_streams(runs)
                    if how == "streams"
                    else in_processes(runs, options.epochs, "MPS" in how)
                )
            except Exception as error:  # one failure must not hide the other results
                row["failed"] = f"{type(error).__name__}: {error}"
            rows.append(row)
            print(row, flush=True)
            if options.out:
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(
                    json.dumps({"environment": environment("cuda"), "rows": rows}, indent=1) + "\n"
                )


def trained() -> PartialLabelTrainer:
    """A trainer whose CUDA graphs are recorded."""
    experiment = Experiment("noise", precision="bfloat16")
    problem = draw_problem(experiment, noise_images(500, 100, 100))
    trainer = build_trainer(experiment, problem, device="cuda")
    trainer.prepare(problem.x, problem.candidates)
    for _ in range(3):
        trainer.train_epoch()
    return trainer


def on_streams(runs: int, steps: int = 200) -> float:
    """Replay only the captured steps, one stream per run: the upper bound for several runs inside
    one process.
    """
    trainers = [trained() for _ in range(runs)]
    graphs = [
        list(trainer._runner.graphed_step.recordings.values())[-1].graph for trainer in trainers
    ]
    streams = [torch.cuda.Stream() for _ in graphs]
    for timed in (False, True):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(steps if timed else 10):
            for graph, stream in zip(graphs, streams, strict=True):
                with torch.cuda.stream(stream):
                    graph.replay()
        torch.cuda.synchronize()
    return runs * steps * 512 / (time.perf_counter() - started)


def in_processes(runs: int, epochs: int, with_mps: bool) -> float:
    """Train whole epochs, timed from the start of the first process to the end of the last."""
    with mps_server() if with_mps else no_server():
        context = multiprocessing.get_context("spawn")
        start, results = context.Barrier(runs), context.Queue()
        processes = [
            context.Process(target=one_process, args=(epochs, start, results)) for _ in range(runs)
        ]
        for process in processes:
            process.start()
        times = [results.get(timeout=120) for _ in processes]
        for process in processes:
            process.join()
    return sum(views for views, *_ in times) / (
        max(end for *_, end in times) - min(begin for _, begin, _ in times)
    )


def one_process(epochs: int, start: Any, results: Any) -> None:
    trainer = trained()
    torch.cuda.synchronize()
    start.wait()
    began = time.time()
    for _ in range(epochs):
        trainer.train_epoch()
    torch.cuda.synchronize()
    results.put((trainer.views_per_epoch * epochs, began, time.time()))


@contextmanager
def no_server() -> Iterator[None]:
    yield


@contextmanager
def mps_server() -> Iterator[None]:
    """Start NVIDIA's MPS server, which lets the kernels of several processes run at the same
    time.
    """
    if shutil.which(MPS) is None:
        raise RuntimeError(f"{MPS} is not installed")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = folder
        subprocess.run([MPS, "-d"], check=True, timeout=20)
        try:
            yield
        finally:
            subprocess.run([MPS], input="quit\n", text=True, timeout=20)
            del os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"]


if __name__ == "__main__":
    main()
