"""Measures training again with people's answers: from the start, and from the earlier run.

    python benchmarks/again.py PACK --out results/again

Of each table (see benchmarks/cleaning.py), a fifth of the rows is held out. After `ltpll train`,
the rows that `ltpll review` asks about are answered with the truth, and two more runs are trained:
one with the answers in the folder of the first run, from which it starts, and one with a copy of
them. CPU seconds are those of the whole command. Each table and seed has a record; existing ones
are kept.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from cleaning import problem
from ltpll.cleaning.audit import Answers, store_answers
from ltpll.cleaning.review import choose_questions
from ltpll.cleaning.stored_tables import read_cleaned
from ltpll.runs.environment import environment
from ltpll.runs.run import read_result

TABLES = ("digits, ρ=10, q=0.3", "lost", "birdsong")
ANSWERS = (30, 100)
HELD_OUT = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pack", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tables", nargs="*", default=TABLES)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for seed in range(options.seeds):
        for name in options.tables:
            file = name.replace(", ", "-").replace(" ", "-").replace("=", "")
            out = options.out / f"{file}-{seed}.json"
            if not out.exists():
                out.write_text(json.dumps(measure(options.pack, name, seed), indent=1) + "\n")
                print(out.stem, flush=True)


def measure(pack: Path, name: str, seed: int) -> dict[str, Any]:
    """Train once without answers, and twice with each number of them."""
    x, y, sets = problem(pack, name, seed)
    split = np.full(len(y), "train")
    split[np.random.default_rng(seed).permutation(len(y))[: round(HELD_OUT * len(y))]] = "test"
    table = pd.DataFrame(x, columns=[f"f{k}" for k in range(x.shape[1])])
    table.insert(0, "id", [f"r{i}" for i in range(len(y))])
    table["candidates"] = ["|".join(f"c{c}" for c in np.flatnonzero(row)) for row in sets]
    table["label"], table["split"] = [f"c{c}" for c in y], split
    with TemporaryDirectory() as folder:
        place = Path(folder)
        table.to_csv(place / "table.csv", index=False)
        record: dict[str, Any] = {"table": name, "seed": seed, "rows": len(y)}
        record["first"] = train(place, "first")
        cleaned = read_cleaned(place / "first")
        number = {text: k for k, text in enumerate(cleaned.classes.tolist())}
        for n in ANSWERS:
            asked = choose_questions(cleaned, n)
            true = [(number[f"c{y[i]}"],) for i in asked.rows.tolist()]
            given = Answers(asked.rows, true, asked.asked, asked.probability)
            store_answers(place / "first", cleaned, given)
            shutil.copy(place / "first" / "answers.csv", place / "answers.csv")
            for how, answers in (("again", "first/answers.csv"), ("anew", "answers.csv")):
                record[f"{how}, {n}"] = train(place, f"{how}-{n}", "--reviewed", answers)
    return record | {"environment": environment("cpu")}


def train(place: Path, out: str, *words: str) -> dict[str, float]:
    """Run `ltpll train`, and return its CPU seconds and what it found."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    train = ("train", "table.csv", "--out", out, "--set", "run.threads=1", "--set", "run.workers=1")
    subprocess.run([sys.executable, "-m", "ltpll", *train, *words], cwd=place, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = read_result(place / out)
    by_goal = result["last"]["test"]["by_goal"]
    return {
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "labels": result["recovered"],
        "accuracy": by_goal["accuracy"]["accuracy"],
        "balanced_accuracy": by_goal["balanced"]["balanced_accuracy"],
        "information": result["information"]["nats"],
    }


if __name__ == "__main__":
    main()
