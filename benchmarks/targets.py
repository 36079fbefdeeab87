"""Measures the memory of candidates and targets, and the time to read and write a batch, as
examples and classes grow.

    python benchmarks/targets.py --out results/bench/targets-cpu.json

The dense form for comparison is a boolean and a float matrix, indexed; times are medians.
"""

from __future__ import annotations

import argparse
import json
import math
import mmap
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.runs.environment import environment
from ltpll.runs.run import Record
from ltpll.targets import CandidateTargets

INATURALIST = (437_513, 8_142)  # examples and classes of iNaturalist 2018
MOST_DENSE_BYTES = 10**9  # the largest dense form that is built for comparison
MOST_BATCHES = 400  # drawn before timing
OTHER_VALUES = (
    1 << 21
)  # changed between two timings, so that no rows stay in the cache, as during training


def bench_targets(
    examples: Sequence[int],
    classes: Sequence[int],
    *,
    size: int,
    batch: int,
    device: str,
    seconds: float,
    inaturalist: bool = True,
) -> Record:
    """Measure a grid of sizes; each row takes about `seconds`."""
    also_n, also_classes = INATURALIST if inaturalist else (math.inf, math.inf)
    _check(min([*examples, also_n]), min([*classes, also_classes]), size, batch)

    def row(n: int, n_classes: int, *, uneven: bool = False) -> Record:
        return _row(
            draw_sets(n, n_classes, size, uneven=uneven),
            n_classes,
            batch,
            torch.device(device),
            seconds,
        )

    # First, since the growth of the process only shows what something takes while no freed memory
    # is reused.
    large = row(*INATURALIST) if inaturalist else None
    grid = [row(n, n_classes) for n in examples for n_classes in classes]
    uneven = [row(n, min(classes), uneven=True) for n in examples]
    for measured in (*grid, *uneven):
        del measured["resident_bytes"]
    return {
        "environment": environment(device),
        "batch": batch,
        "candidates": size,
        "grid": grid,
        "uneven": uneven,
        "inaturalist": large,
        "exponents": {
            "memory": exponents(grid, lambda row: row["bytes"]),
            "read": exponents(grid, lambda row: row["milliseconds"]["read"]),
            "write": exponents(grid, lambda row: row["milliseconds"]["write"]),
        },
    }


def _check(fewest: float, fewest_classes: float, size: int, batch: int) -> None:
    if fewest < batch:
        raise InputError(
            f"A batch of {batch} is more than {fewest} examples: choose a smaller batch."
        )
    if fewest_classes < 2 * size:
        raise InputError(
            f"Sets of up to {2 * size - 1} candidates need {2 * size} classes or more, not "
            f"{fewest_classes}."
        )


def exponents(rows: Sequence[Record], value: Callable[[Record], float]) -> dict[str, float | None]:
    """Fit p and q of value ≈ a · Nᵖ · C^q by least squares of logarithms; None for a size that does
    not vary.
    """
    names = ("examples", "classes")
    varying = [name for name in names if len({row[name] for row in rows}) > 1]
    known = np.asarray([[1.0, *(math.log(row[name]) for name in varying)] for row in rows])
    found = np.linalg.lstsq(known, np.log([value(row) for row in rows]), rcond=None)[0][1:]
    fitted = {name: round(float(power), 4) for name, power in zip(varying, found, strict=True)}
    return {name: fitted.get(name) for name in names}


# ---- one row -------------------------------------------------------------------------------------


class Times(NamedTuple):
    """Seconds per batch, for every timed batch."""

    read: list[float]
    write: list[float]

    def milliseconds(self) -> dict[str, float]:
        """The median over batches, since other processes may use the machine."""
        return {
            name: round(1000 * statistics.median(values), 5)
            for name, values in self._asdict().items()
        }


def _row(
    sets: tuple[Any, Any], n_classes: int, batch: int, device: torch.device, seconds: float
) -> Record:
    _built(
        draw_sets(batch, n_classes, 1, uneven=False), n_classes, device
    )  # loads libraries, which must not count
    before = _resident(device)
    candidates, targets = _built(sets, n_classes, device)
    after = _resident(device)
    n = len(candidates)
    dense_bytes = n * n_classes * (torch.bool.itemsize + torch.float32.itemsize)
    dense = _dense(candidates) if dense_bytes <= MOST_DENSE_BYTES else None

    def read(index: Tensor) -> None:
        candidates[index], targets[index]

    forms: dict[str, tuple[Callable[[Tensor], Any], Callable[[Tensor, Tensor], Any]]] = {
        "ours": (read, targets.__setitem__)
    }
    if dense is not None:
        mask, values = dense
        forms["dense"] = (lambda index: (mask[index], values[index]), values.__setitem__)
        forms["selected"] = (
            lambda index: (mask.index_select(0, index), values.index_select(0, index)),
            lambda index, new: values.index_copy_(0, index, new),
        )
    found = {
        name: times.milliseconds()
        for name, times in _timed(forms, n, n_classes, batch, device, seconds).items()
    }
    return {
        "examples": n,
        "classes": n_classes,
        "set_sizes": [int(candidates.sizes.min()), candidates.max_size],
        "bytes": tensor_bytes(candidates, targets),
        "resident_bytes": None if before is None or after is None else after - before,
        "milliseconds": found["ours"],
        "dense_bytes": dense_bytes,
        "dense_milliseconds": found.get("dense"),  # matrix[index]
        "selected_milliseconds": found.get(
            "selected"
        ),  # index_select and index_copy_, the fastest equivalent
    }


def _built(
    sets: tuple[Any, Any], n_classes: int, device: torch.device
) -> tuple[Candidates, CandidateTargets]:
    candidates = Candidates.from_flat(*sets, n_classes).to(device)
    return candidates, CandidateTargets(candidates)


def draw_sets(n: int, n_classes: int, size: int, *, uneven: bool) -> tuple[Any, Any]:
    """Offsets and labels of `n` sets with `size` distinct labels each, or with 1 to 2·`size` − 1
    labels if `uneven`.
    """
    rng = np.random.default_rng(0)
    width = 2 * size - 1 if uneven else size
    # Steps from label to label that are too short to come back to the first one, so that labels are
    # distinct.
    steps = rng.integers(1, max(n_classes // width, 2), (n, width), dtype=np.int32)
    steps[:, 0] = rng.integers(0, n_classes, n)
    numbers = np.cumsum(steps, axis=1, dtype=np.int32) % n_classes
    if not uneven:
        return np.arange(n + 1) * size, numbers.ravel()
    sizes = rng.integers(1, width + 1, n)
    return np.concatenate([[0], np.cumsum(sizes)]), numbers[np.arange(width) < sizes[:, None]]


def _dense(candidates: Candidates) -> tuple[Tensor, Tensor]:
    """Candidates and uniform targets as a boolean and a float matrix."""
    shape = len(candidates), candidates.n_classes
    mask = torch.zeros(shape, dtype=torch.bool, device=candidates.device)
    values = torch.zeros(shape, device=candidates.device)
    for index in candidates.row_blocks(candidates.n_classes):
        mask[index] = candidates[index]
        values[index] = mask[index] / candidates.sizes[index][:, None]
    return mask, values


def _timed(
    forms: dict[str, tuple[Callable[[Tensor], Any], Callable[[Tensor, Tensor], Any]]],
    n: int,
    n_classes: int,
    batch: int,
    device: torch.device,
    seconds: float,
) -> dict[str, Times]:
    """Time all forms in turn on the same random batches, so that other work on the machine affects
    them equally.
    """
    generator = torch.Generator(device).manual_seed(0)
    other = torch.zeros(OTHER_VALUES, device=device)
    new = torch.rand(batch, n_classes, generator=generator, device=device)
    times = {name: Times([], []) for name in forms}
    until = math.inf
    for step, index in enumerate(_batches(n, batch, generator)):
        if step == 2:  # after the warm-up
            times = {name: Times([], []) for name in forms}
            until = time.perf_counter() + seconds
        for name, (read, write) in forms.items():
            other.add_(1)
            started = _now(device)
            read(index)
            times[name].read.append(_now(device) - started)
            other.add_(1)
            started = _now(device)
            write(index, new)
            times[name].write.append(_now(device) - started)
        if step > 2 and time.perf_counter() >= until:
            break
    return times


def _batches(n: int, batch: int, generator: torch.Generator) -> Iterator[Tensor]:
    order = torch.randperm(n, generator=generator, device=generator.device)[: MOST_BATCHES * batch]
    batches = [index for index in order.split(batch) if len(index) == batch]
    while True:
        yield from batches


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


# ---- memory --------------------------------------------------------------------------------------


def tensor_bytes(*objects: Any) -> int:
    """The bytes of all tensors that the objects hold; shared storage counts once."""
    storages: dict[int, int] = {}

    def walk(value: Any) -> None:
        if isinstance(value, Tensor):
            storages[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        elif isinstance(value, (tuple, list)):
            for item in value:
                walk(item)

    for owner in objects:
        walk(list(vars(owner).values()))
    return sum(storages.values())


def _resident(device: torch.device) -> int | None:
    """Bytes that the process uses on the device; None for a CPU if the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * mmap.PAGESIZE if statm.exists() else None


def cells(row: Record) -> str:
    """One line of the printed table."""
    low, high = row["set_sizes"]
    ours, dense = row["milliseconds"], row["dense_milliseconds"]
    line = (
        f"{row['examples']:>9,} × {row['classes']:>6,}, sets of "
        f"{low if low == high else f'{low}–{high}'}: {row['bytes'] / 1e6:,.1f} MB"
    )
    line += (
        f" (dense {row['dense_bytes'] / 1e6:,.0f} MB), read {ours['read']:.3f} ms, write "
        f"{ours['write']:.3f} ms"
    )
    if dense is None:
        return line
    return line + (
        f", {(ours['read'] + ours['write']) / (dense['read'] + dense['write']):.2f} times "
        "the dense form"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", nargs="+", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--classes", nargs="+", type=int, default=[100, 1_000, 10_000])
    parser.add_argument("--candidates", type=int, default=5, help="candidates per set")
    parser.add_argument("--batch", type=int, default=256, help="examples read and written at once")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds per combination")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    how: Record = {
        "size": options.candidates,
        "batch": options.batch,
        "device": options.device,
        "seconds": options.seconds,
    }
    found = bench_targets(options.examples, options.classes, **how)
    for row in (*found["grid"], *found["uneven"], found["inaturalist"]):
        print(cells(row))
    print(json.dumps(found["exponents"]))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
