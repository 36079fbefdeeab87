"""Measures `estimate_prior` on candidate sets of many origins, and writes
results/priors/origins.json.

Usage: python tools/measure_priors.py [--seeds N] [--real FOLDER], where FOLDER holds
    pll_tabular.npz, voc_pll_128.npz, cifar10_lt_pool.npz
and cifar100_lt_pool.npz. Without it, the figures of real sets that the record has already are kept.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ltpll.candidates import Candidates
from ltpll.priors import estimate_prior
from ltpll.priors.distinct_sets import distinct_sets
from ltpll.priors.regime import SIZE, pairs_test, sizes_test
from ltpll.runs.environment import environment
from ltpll.synthetic import (
    long_tail_subset,
    superclass_candidates,
    top_k_candidates,
    uniform_candidates,
)
from ltpll_research.set_origins import crowd_candidates, grouped_candidates, neighbour_candidates

RECORD = Path(__file__).resolve().parents[1] / "results" / "priors" / "origins.json"
Array = np.ndarray
Drawn = tuple[Candidates, Array]
Draw = Callable[[np.random.Generator], Drawn]


def prior(n_classes: int, imbalance: float) -> Array:
    shares = imbalance ** -np.linspace(0, 1, n_classes)
    return shares / shares.sum()


def seed_of(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def around(
    n: int,
    n_classes: int,
    imbalance: float,
    draw: Callable[[Array, int, np.random.Generator], Candidates],
) -> Draw:
    """Sets that are drawn around random labels."""

    def drawn(rng: np.random.Generator) -> Drawn:
        labels = rng.choice(n_classes, n, p=prior(n_classes, imbalance))
        return draw(labels, n_classes, rng), labels

    return drawn


def with_own_rates(
    labels: Array, n_classes: int, rng: np.random.Generator, ambiguity: float
) -> Candidates:
    """Sets which each wrong label joins with a probability of its own."""
    joined = rng.random((len(labels), n_classes)) < 2 * ambiguity * rng.random(n_classes)
    joined[np.arange(len(labels)), labels] = True
    return Candidates.from_matrix(joined)


def pictures(
    n_groups: int, n_classes: int, objects: float, repeats: float, *, by_class: bool
) -> Draw:
    """Pictures without their groups; the number of objects of a class depends on the class or
    not.
    """

    def drawn(rng: np.random.Generator) -> Drawn:
        times = repeats * np.exp(rng.normal(0, 0.8, n_classes)) if by_class else repeats
        shares = prior(n_classes, 30)
        candidates, labels = grouped_candidates(
            n_groups, shares, seed=seed_of(rng), objects=objects, repeats=times
        )
        return candidates.with_groups(None), labels

    return drawn


def settings() -> dict[str, Draw]:
    found: dict[str, Draw] = {}
    for n_classes, q, imbalance, n in [
        (4, 0.3, 10, 500),
        (10, 0.1, 100, 2000),
        (10, 0.5, 100, 2000),
        (10, 0.7, 100, 12_000),
        (50, 0.05, 50, 3000),
        (200, 0.02, 100, 3000),
        (30, 0.3, 20, 300),
    ]:
        found[f"uniform, {n_classes} classes, q={q}, imbalance {imbalance}, n={n}"] = around(
            n,
            n_classes,
            imbalance,
            lambda y, c, rng, q=q: uniform_candidates(y, c, q, seed=seed_of(rng)),
        )
    for n_classes, q, n in [(10, 0.2, 2000), (50, 0.05, 3000)]:
        found[f"rates by label, {n_classes} classes, n={n}"] = around(
            n, n_classes, 20, lambda y, c, rng, q=q: with_own_rates(y, c, rng, q)
        )
    for q, n in [(0.01, 2000), (0.05, 12_000)]:
        found[f"superclass, 100 classes, q={q}, n={n}"] = around(
            n,
            100,
            50,
            lambda y, c, rng, q=q: superclass_candidates(
                y, np.arange(c) // 5, q, seed=seed_of(rng)
            ),
        )
    for name, accuracies in (
        ("good", (0.95, 0.9, 0.85)),
        ("mixed", (0.9, 0.75, 0.6)),
        ("bad", (0.6, 0.5, 0.4)),
    ):
        for n_classes, n in [(10, 10_000), (60, 3000)]:
            found[f"crowd, {name} annotators, {n_classes} classes, n={n}"] = around(
                n,
                n_classes,
                20,
                lambda y, c, rng, a=accuracies: crowd_candidates(
                    y, c, seed=seed_of(rng), accuracies=a
                ),
            )
    found["neighbours, 70 classes, 14 rows each"] = lambda rng: (
        neighbour_candidates(
            labels := rng.permutation(np.repeat(np.arange(70), 14)), 70, seed=seed_of(rng)
        ),
        labels,
    )
    for n_classes, reach, n in [(78, 3, 2000), (10, 1, 5000)]:
        found[f"neighbours, {n_classes} classes, n={n}"] = around(
            n,
            n_classes,
            20,
            lambda y, c, rng, reach=reach: neighbour_candidates(
                y, c, seed=seed_of(rng), reach=reach
            ),
        )
    for n_classes, k, n in [(10, 3, 5000), (50, 5, 3000)]:
        found[f"top {k} of a model, {n_classes} classes, n={n}"] = around(
            n, n_classes, 20, lambda y, c, rng, k=k: top_k_candidates(y, c, k, seed=seed_of(rng))
        )
    for n_classes, groups, objects, repeats in [
        (6, 200, 2, 1),
        (13, 250, 3.5, 4),
        (20, 2000, 2.5, 1.5),
        (23, 550, 3, 0.3),
        (100, 1000, 4, 0.5),
    ]:
        for by_class in (False, True):
            name = "multiplicities by class" if by_class else "exchangeable"
            found[f"grouped, {n_classes} classes, {groups} pictures, {name}"] = pictures(
                groups, n_classes, objects, repeats, by_class=by_class
            )
    return found


# ---- orders of the rows --------------------------------------------------------------------------


def orders(name: str) -> list[str]:
    some = ["as drawn", "by class", "by set"]
    return (
        [*some, "80 %", "shuffled", "shuffled, 80 %"]
        if name.startswith(("grouped", "real"))
        else some
    )


def reorder(candidates: Candidates, labels: Array, order: str, rng: np.random.Generator) -> Drawn:
    rows = np.arange(len(labels))
    if order.endswith("80 %"):
        rows = np.sort(rng.choice(rows, int(0.8 * len(rows)), replace=False))
    if order.startswith("shuffled"):
        rows = rng.permutation(rows)
    elif order == "by class":
        rows = np.argsort(labels, kind="stable")
    elif order == "by set":
        keys = [tuple(candidates.row(i)) for i in range(len(labels))]
        rows = np.asarray(sorted(rows, key=keys.__getitem__))
    return candidates.select(rows), labels[rows]


def measure(draws: Iterator[Drawn]) -> dict[str, Any]:
    """Frequencies of the regimes, and means of the L1 errors, of the share of classes within bounds
    and of the sum of their widths.
    """
    regimes: Counter[str] = Counter()
    rows = []
    for candidates, labels in draws:
        found = estimate_prior(candidates)
        truth = np.bincount(labels, minlength=candidates.n_classes) / len(labels)
        inside = (truth >= found.lower - 1e-12) & (truth <= found.upper + 1e-12)
        errors = [
            np.abs(values - truth).sum() for values in (found.em, found.average, found.estimate)
        ]
        regimes[found.regime] += 1
        rows.append([*errors, inside[found.seen].mean(), (found.upper - found.lower).sum()])
    means = np.mean(rows, axis=0).round(3).tolist()
    return {
        "regimes": dict(regimes),
        **dict(zip(("em", "average", "estimate", "within_bounds", "width"), means, strict=True)),
    }


def measure_setting(name: str, draw: Draw, seeds: int) -> list[dict[str, Any]]:
    def drawn(order: str) -> Iterator[Drawn]:
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            yield reorder(*draw(rng), order, rng)

    return [{"setting": name, "order": order, **measure(drawn(order))} for order in orders(name)]


# ---- size of the test of independence ------------------------------------------------------------


def measure_size(draws: int) -> dict[str, Any]:
    """How often independent wrong labels are rejected, over random settings."""
    rejected = 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        n_classes, n = (
            int(np.exp(rng.uniform(np.log(4), np.log(200)))),
            int(np.exp(rng.uniform(np.log(200), np.log(20_000)))),
        )
        q, imbalance = (
            float(np.exp(rng.uniform(np.log(0.02), np.log(0.8)))),
            float(np.exp(rng.uniform(0, np.log(100)))),
        )
        n = min(n, int(4_000_000 / (1 + q * n_classes)))
        labels = rng.choice(n_classes, n, p=prior(n_classes, imbalance))
        sets = distinct_sets(uniform_candidates(labels, n_classes, q, seed=seed))
        results = [pairs_test(sets), sizes_test(sets)]
        rejected += min(result.p for result in results if result is not None) < SIZE / 2
    return {"draws": draws, "nominal": SIZE, "rejected": rejected}


# ---- real sets -----------------------------------------------------------------------------------


def real_sets(folder: Path) -> Iterator[tuple[str, Candidates, Array]]:
    tables = np.load(folder / "pll_tabular.npz")
    for name in ("lost", "msrcv2", "birdsong"):
        matrix = np.unpackbits(tables[f"{name}_S"], axis=1)[:, : int(tables[f"{name}_C"])]
        yield name, Candidates.from_matrix(matrix), tables[f"{name}_y"].astype(int)
    voc = np.load(folder / "voc_pll_128.npz")
    yield "voc2007", Candidates.from_matrix(voc["candidates"]), voc["y_train"].astype(int)
    for name, rates in (("cifar10", (0.1, 0.3, 0.5, 0.7)), ("cifar100", (0.05,))):
        images = np.load(folder / f"{name}_lt_pool.npz")
        labels = images["y_train"].astype(int)
        labels = labels[long_tail_subset(labels, 100, seed=0)]
        for q in rates:
            yield (
                f"{name}-lt, q={q}",
                uniform_candidates(labels, labels.max() + 1, q, seed=0),
                labels,
            )
        if name == "cifar100":
            yield (
                "cifar100-lt-nu, q=0.05",
                superclass_candidates(labels, images["coarse_of_fine"], 0.05, seed=0),
                labels,
            )


def measure_real(folder: Path) -> list[dict[str, Any]]:
    rows = []
    for name, candidates, labels in real_sets(folder):
        for order in orders("real"):
            drawn = reorder(candidates, labels, order, np.random.default_rng(0))
            rows.append(
                {"setting": name, "order": order, "n": len(labels), **measure(iter([drawn]))}
            )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="draws of each setting")
    parser.add_argument(
        "--size-draws",
        type=int,
        default=1000,
        help="draws for the size of the test of independence",
    )
    parser.add_argument("--real", type=Path, help="folder of the real sets")
    options = parser.parse_args()
    kept = json.loads(RECORD.read_text(encoding="utf-8"))["real"] if RECORD.is_file() else []
    record = {
        "environment": environment("cpu"),
        "seeds": options.seeds,
        "size": measure_size(options.size_draws),
        "synthetic": [
            row
            for name, draw in settings().items()
            for row in measure_setting(name, draw, options.seeds)
        ],
        "real": measure_real(options.real) if options.real else kept,
    }
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for row in [*record["synthetic"], *record["real"]]:
        print(row)
    print(record["size"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
