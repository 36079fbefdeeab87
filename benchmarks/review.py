"""Measures what answers help most: those for the rows of the review queue, for the least confident,
or for random rows.

    python benchmarks/review.py PACK --out results/review

The tables are scikit-learn's digits (long-tailed, with and without sets that lack the true label)
and those of PACK (see benchmarks/tabular.py). A run with five folds labels the table, some rows are
answered with the truth, and the table is trained on again. Accuracies are those of held-out rows,
for the goals "accuracy" and "balanced"; recovery is the share of training rows, answered ones
included, whose label is right. Each draw has a record; existing ones are kept.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cleaning import remove_truth
from ltpll.candidates import Candidates
from ltpll.cleaning.dataset import Examples, TableSource
from ltpll.cleaning.pipeline import (
    Execution,
    TrainingSettings,
    table_run,
    train_table_run,
)
from ltpll.cleaning.results import CleanedTable
from ltpll.cleaning.review import review_rows
from ltpll.cleaning.stored_tables import read_cleaned
from ltpll.errors import InputWarning
from ltpll.runs.environment import environment
from ltpll.synthetic import load_digits_split, long_tail_subset, uniform_candidates
from ltpll.tables.read_tables import LabelTable
from ltpll.tables.reviewed import with_answers

DIGITS = {"digits": 0.0, "digits, 10 % lack it": 0.1}
IMBALANCE, AMBIGUITY = 20.0, 0.5
HELD_OUT = 0.3  # of the rows of other tables
ANSWERED = 0.05  # of the training rows
QUEUES = ("none", "random", "least confident", "queue")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pack", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with np.load(options.pack) as tables:
        names = [
            *DIGITS,
            *sorted(key.removesuffix("_X") for key in tables.files if key.endswith("_X")),
        ]
    names = sorted(names, key=lambda name: "lack" in name)
    draws = {
        (name, seed): options.out / f"{name.split(' %')[0].replace(', ', '-')}-{seed}.json"
        for name in names
        for seed in range(options.seeds)
    }
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        waiting = {
            pool.submit(measure, options.pack, *draw): path
            for draw, path in draws.items()
            if not path.exists()
        }
        for done in as_completed(waiting):
            record = done.result()
            waiting[done].write_text(json.dumps(record, indent=1) + "\n")
            print(record["table"], record["seed"], f"{record['seconds']:.0f} s", flush=True)
            for row in record["rows"]:
                print("  ", row, flush=True)


def problem(pack: Path, name: str, seed: int) -> Examples:
    """A table with sets and true labels, and rows that are held out."""
    if name in DIGITS:
        data = load_digits_split(seed=seed)
        kept = long_tail_subset(data.y_pool, IMBALANCE, seed=seed)
        y = np.concatenate([data.y_pool[kept], data.y_test])
        x = np.concatenate([data.x_pool[kept], data.x_test]).reshape(len(y), -1)
        sets = uniform_candidates(y, 10, AMBIGUITY, seed=seed)[torch.arange(len(y))].numpy()
        test = np.arange(len(y)) >= len(kept)
        sets[~test] = remove_truth(sets[~test], y[~test], DIGITS[name], seed)
    else:
        with np.load(pack) as tables:
            sets = np.unpackbits(tables[f"{name}_S"], axis=1)[:, : int(tables[f"{name}_C"])].astype(
                bool
            )
            x, y = tables[f"{name}_X"].astype(np.float32), tables[f"{name}_y"].astype(np.int64)
        test = np.random.default_rng(seed).random(len(y)) < HELD_OUT
    ids = np.asarray([str(i + 1) for i in range(len(y))], dtype=object)
    offsets, labels = np.append(0, np.cumsum(sets.sum(1))), np.nonzero(sets)[1]
    candidates = Candidates.from_flat(
        offsets, labels, sets.shape[1], tuple(str(c) for c in range(sets.shape[1]))
    )
    splits = np.where(test, "test", "train").astype(object)
    return Examples(LabelTable(ids, candidates, y, splits, None, None, (), None), x, [])


def measure(pack: Path, name: str, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", InputWarning)  # about classes that no training row has
    started = time.perf_counter()
    examples = problem(pack, name, seed)
    y, training = examples.table.labels, examples.training()
    n = round(ANSWERED * int(training.sum()))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        first = train(Path(folder) / "first", examples, name, seed, folds=5)
        cleaned = read_cleaned(Path(folder) / "first")
        chosen = queues(cleaned, n, seed)
        for queue in QUEUES:
            answers = {str(examples.table.ids[i]): (int(y[i]),) for i in chosen[queue]}
            answered = (
                replace(examples, table=with_answers(examples.table, answers))
                if answers
                else examples
            )
            record = (
                first
                if answered is examples
                else train(Path(folder) / queue, answered, name, seed, folds=0)
            )
            known = np.bincount(
                y[training & (cleaned.labels.label == y)], minlength=len(cleaned.classes)
            )
            asked = chosen[queue]
            rows.append(
                {
                    "queue": queue,
                    "trust": 0.0,  # in the first run's labels: training starts from scratch
                    "wrong": int((cleaned.labels.label[asked] != y[asked]).sum()),
                    "classes": len(set(y[asked].tolist())),
                    "rare": int((known[y[asked]] < np.median(known)).sum()),
                    **figures(record),
                }
            )
    return {
        "table": name,
        "seed": seed,
        "n": int(training.sum()),
        "held_out": int((~training).sum()),
        "answers": n,
        "seconds": round(time.perf_counter() - started, 1),
        "environment": environment("cpu"),
        "rows": rows,
    }


def train(out: Path, examples: Examples, name: str, seed: int, folds: int) -> dict[str, Any]:
    # The file of Lost hides that rows share their sets (docs/own-data.md); a user would say so.
    settings = TrainingSettings(
        folds=folds, seed=seed, prior="average" if name == "lost" else "auto"
    )
    run = table_run(out, settings, examples)
    train_table_run(
        run,
        TableSource(Path(f"{name}.csv")),
        examples,
        settings,
        execution=Execution("cpu", threads=1, workers=1),
    )
    return dict(run.result())


def figures(record: dict[str, Any]) -> dict[str, Any]:
    last = record["last"]
    return {
        "accuracy": last["test"]["by_goal"]["accuracy"]["accuracy"],
        "balanced_accuracy": last["test"]["by_goal"]["balanced"]["balanced_accuracy"],
        "recovery": record["recovered"],
        "choice": record["choice"],
    }


def queues(cleaned: CleanedTable, n: int, seed: int) -> dict[str, Any]:
    """The rows that each way to choose asks about, by its name."""
    trained = np.flatnonzero(cleaned.labels.judged_by == "folds")
    confidence = cleaned.labels.confidence.astype(np.float64)
    return {
        "none": trained[:0],
        "random": np.random.default_rng(seed).permutation(trained)[:n],
        "least confident": trained[np.argsort(confidence[trained], kind="stable")][:n],
        "queue": review_rows(cleaned, n),
    }


if __name__ == "__main__":
    main()
