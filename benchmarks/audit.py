"""Measures audits: intervals, confidences and flags that learn from the answers of people who are
wrong now and then, and how many wrong labels an answer finds.

    python benchmarks/audit.py fit PACK FITS
    python benchmarks/audit.py measure FITS --out results/audits

`fit` trains committees on tables in which it is known which sets lack the true label, and leaves
what `ltpll train` would store in FITS: digits at three imbalances, with random wrong labels or the
answers of three annotators; the tables of PACK (see benchmarks/tabular.py); and cities, a raw table
(see benchmarks/raw_tables.py; skipped where its package is not installed). Of each table, at most
500 rows are used, and networks take 300 steps to save time. The true label is removed from 0, 2 and 10 % of the sets.

`measure` lets simulated people answer. Each fit has a record; existing ones are kept.
"""

from __future__ import annotations

import argparse
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cleaning import problem, remove_truth
from ltpll.candidates import Candidates
from ltpll.cleaner import LabelCleaner
from ltpll.committee import Committee
from ltpll.errors import InputWarning

MOST_ROWS, STEPS = 500, 300
MISSING = (0.0, 0.02, 0.1)
TABLES = (
    "digits, ρ=10, q=0.3",
    "lost",
    "digits, ρ=50, q=0.3",
    "msrcv2",
    "digits, ρ=1, q=0.3",
    "cities",
    "digits, ρ=10, three annotators",
    "birdsong",
)


def fit(pack: Path, name: str, missing: float, seed: int, out: Path) -> str:
    """Train on one table, and store its labels, their judgement and the true labels."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", InputWarning)
    if name == "cities":
        from raw_tables import TABLES as RAW
        from raw_tables import draw, load

        drawn = draw(RAW[name], *load(RAW[name]), seed)
        x, y, sets = drawn.x, drawn.y, drawn.sets
    else:
        x, y, sets = problem(pack, name, seed)
    some = np.sort(np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS])
    x, y, sets = x.iloc[some] if name == "cities" else x[some], y[some], sets[some]
    sets = remove_truth(sets, y, missing, seed)
    committee = Committee(steps=STEPS, random_state=seed, device="cpu", threads=1)
    cleaner = LabelCleaner(committee).fit(x, Candidates.from_matrix(torch.as_tensor(sets)))
    table = cleaner.table_
    found: dict[str, Any] = {
        "true": y,
        "offsets": table.offsets,
        "candidates": table.candidates,
        "n_classes": sets.shape[1],
        "missing": table.judgement["missing"],
        "recovered": np.asarray(table.judgement["recovered"]),
        "probabilities": cleaner.classifier_.out_of_fold_.astype(np.float16),
    }
    for column in table.labels.__dataclass_fields__:
        found[f"label_{column}"] = np.asarray(getattr(table.labels, column))
    found["label_judged_by"] = found["label_judged_by"].astype(str)
    np.savez_compressed(out, **found)
    return out.stem


def fit_all(options: argparse.Namespace) -> None:
    options.fits.mkdir(parents=True, exist_ok=True)
    jobs = [
        (options.pack, name, missing, seed, options.fits / f"{name}-{missing:g}-{seed}.npz")
        for seed in range(options.seeds)
        for name in TABLES
        for missing in MISSING
    ]
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        for done in [pool.submit(fit, *job) for job in jobs if not job[-1].exists()]:
            print(done.result(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    fitting = commands.add_parser("fit")
    fitting.add_argument("pack", type=Path)
    fitting.add_argument("fits", type=Path)
    fitting.add_argument("--seeds", type=int, default=5)
    fitting.add_argument("--workers", type=int, default=2)
    fitting.set_defaults(run=fit_all)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
