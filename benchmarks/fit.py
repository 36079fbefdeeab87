"""Measures `fit` on 100,000 × 512 features with 100 classes: epoch time compared with a DataLoader,
and memory relative to the features.

python benchmarks/fit.py --out results/bench/fit-cpu.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ltpll.candidates import Candidates
from ltpll.estimator import PartialLabelClassifier
from ltpll.interfaces import Outputs
from ltpll.methods import METHODS
from ltpll.models import build_model
from ltpll.runs.environment import environment

ROWS, FEATURES, CLASSES, SET_SIZE, BATCH = 100_000, 512, 100, 5, 512


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    rows = []
    for how in ("ours", "loader of single rows", "loader of single rows, 2 workers"):
        for method in ("proden", "corr"):
            rows.append(alone(measure, how, method, options.epochs))
            print(rows[-1], flush=True)
    rows.append(
        {
            "how": "the network alone, on a single batch",
            "method": "proden",
            "seconds": alone(network_alone, options.epochs),
        }
    )
    rows += [
        {
            "how": f"{how}, without the network",
            "method": "corr",
            "seconds": alone(feeding, how, options.epochs),
        }
        for how in ("ours", "loader of single rows")
    ]
    for row in rows[-3:]:
        print(row, flush=True)
    if options.out:
        made = environment("cpu") | {"threads": torch.get_num_threads()}
        record = {
            "rows": rows,
            "n": ROWS,
            "features": FEATURES,
            "classes": CLASSES,
            "set_size": SET_SIZE,
            "batch": BATCH,
        }
        options.out.write_text(json.dumps({"environment": made, **record}, indent=1) + "\n")


def alone(work: Any, *arguments: Any) -> Any:
    """Run in a separate process, so that its memory can be measured."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def problem() -> tuple[Any, Candidates]:
    rng = np.random.default_rng(0)
    x = np.empty((ROWS, FEATURES), dtype=np.float32)
    for start in range(
        0, ROWS, 1000
    ):  # in parts, since random numbers are drawn in double precision
        x[start : start + 1000] = rng.standard_normal((1000, FEATURES))
    sizes = rng.integers(1, 2 * SET_SIZE, ROWS)
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    return x, Candidates.from_flat(indptr, rng.integers(0, CLASSES, indptr[-1]), CLASSES)


def measure(how: str, method: str, epochs: int) -> dict[str, Any]:
    # The first training loads libraries, which must not count.
    few = np.random.default_rng(0).normal(size=(50, 3))
    PartialLabelClassifier(epochs=2, device="cpu").fit(few, np.arange(50) % 3)
    before = resident()
    x, candidates = problem()
    peak = Peak()
    times: list[float] = []
    if how == "ours":
        last = time.perf_counter()

        def tick(_: Any) -> None:
            nonlocal last
            now = time.perf_counter()
            times.append(now - last)
            last = now

        PartialLabelClassifier(
            method, "none", epochs=epochs, batch_size=BATCH, device="cpu", on_epoch=tick
        ).fit(x, candidates)
    else:
        times = loader_epochs(x, candidates, method, epochs, workers=2 if "workers" in how else 0)
    used = peak.stop() - before
    return {
        "how": how,
        "method": method,
        "seconds": [round(value, 3) for value in times],
        "memory_over_features": round(used / x.nbytes, 3),
    }


class Rows(Dataset[tuple[Any, ...]]):
    """Single examples, as in most datasets: views, candidates and index."""

    def __init__(self, x: Any, allowed: Tensor, n_views: int) -> None:
        self.x, self.allowed, self.n_views = torch.from_numpy(x), allowed, n_views
        self.mean, self.std = self.x.mean(0), self.x.std(0)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Any, ...]:
        plain = (self.x[i] - self.mean) / self.std
        views = [plain]
        if self.n_views == 2:
            views.append((plain + 0.2 * torch.randn(FEATURES)) * (torch.rand(FEATURES) >= 0.2))
        return (*views, self.allowed[i], i)


def loader_epochs(
    x: Any, candidates: Candidates, method: str, epochs: int, workers: int
) -> list[float]:
    """Train the same network with the same loss and targets, through a DataLoader that collates
    single rows.
    """
    torch.manual_seed(0)
    model = build_model("mlp", 0, n_inputs=FEATURES, n_classes=CLASSES)
    part = METHODS[method]()
    allowed = candidates.dense()
    targets = allowed.float() / allowed.sum(1, keepdim=True)
    loader = DataLoader(
        Rows(x, allowed, part.n_views),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    times = []
    for _ in range(epochs):
        started = time.perf_counter()
        for *views, sets, index in loader:
            logits, features = model(torch.cat(views))
            outputs = Outputs(logits.split(len(index)), features.split(len(index)))
            loss = part.loss(outputs, targets[index], sets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                targets[index] = part.disambiguate(outputs.detach(), targets[index], sets)
        times.append(time.perf_counter() - started)
    return times


def network_alone(epochs: int) -> list[float]:
    """The lower bound: the network without any data loading."""
    model = build_model("mlp", 0, n_inputs=FEATURES, n_classes=CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    x, targets = torch.randn(BATCH, FEATURES), torch.full((BATCH, CLASSES), 1 / CLASSES)
    times = []
    for _ in range(epochs + 1):
        started = time.perf_counter()
        for _ in range(ROWS // BATCH):
            loss = torch.nn.functional.cross_entropy(model(x)[0], targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        times.append(round(time.perf_counter() - started, 3))
    return times[1:]


def feeding(how: str, epochs: int) -> list[float]:
    """Load the views, candidates and targets of every batch, without the network."""
    x, candidates = problem()
    model = PartialLabelClassifier("corr", "none", epochs=epochs, batch_size=BATCH, device="cpu")
    inputs = model.checked_inputs(x, reset=True)
    trainer = model._trainer(inputs, candidates)
    trainer.prepare(inputs, candidates)
    allowed = candidates.dense()
    loader = DataLoader(Rows(x, allowed, 2), batch_size=BATCH, shuffle=True, drop_last=True)
    targets = allowed.float()
    times = []
    for _ in range(epochs + 1):
        started = time.perf_counter()
        if how == "ours":
            trainer.state.batches.restart()
            for index, _ in trainer.state.batches.batches(trainer._runner.draw):
                trainer.targets[index] = trainer.targets[index] * trainer.candidates[index]
        else:
            for *_, sets, index in loader:
                targets[index] = targets[index] * sets
        times.append(round(time.perf_counter() - started, 3))
    return times[1:]


def resident() -> int:
    """The resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class Peak:
    """The peak memory of the process, sampled a hundred times per second."""

    def __init__(self) -> None:
        self.most, self._going = resident(), True
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while self._going:
            self.most = max(self.most, resident())
            time.sleep(0.01)

    def stop(self) -> int:
        self._going = False
        self._thread.join()
        return self.most


if __name__ == "__main__":
    main()
