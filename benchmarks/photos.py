"""Measures trainings on a folder of pictures with a pretrained network, with the commands that a
user would type.

    python benchmarks/photos.py NAME TABLE --images DIR --out results/photos [--finetune all]
    [--device cuda]

TABLE needs the columns path, candidates, label and split (train and test). Each training has a
record; existing ones are kept. The row "supervised" is trained on the true labels. One more
training with the default folds and an empty cache measures the time of everything.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.csv as csv

from ltpll.runs.environment import environment

REBALANCERS = ("auto", "none", "records")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name")
    parser.add_argument("table", type=Path)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--finetune", default="none")
    parser.add_argument(
        "--trained-with", nargs="*", default=[*REBALANCERS, "supervised", "everything"]
    )
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--option",
        nargs="*",
        default=[],
        help="further options of `ltpll train`, such as --option=--epochs=8",
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        for what in options.trained_with:
            path = (
                options.out
                / f"{options.name}-{options.backbone}-{options.finetune}-{what}-{seed}.json"
            )
            if path.exists() or (what == "everything" and seed != options.seeds[0]):
                continue
            record = measure(options, what, seed)
            path.write_text(json.dumps(record, indent=1) + "\n")
            print(
                path.stem,
                f"{record['seconds']:.0f} s",
                record["by_goal"],
                record["target_recovery"],
                flush=True,
            )


def measure(options: argparse.Namespace, what: str, seed: int) -> dict[str, Any]:
    """Train once, and return the record of the benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        table, run = options.table, Path(folder) / "run"
        environ = dict(os.environ)
        if what == "supervised":
            table = with_true_labels(options.table, Path(folder) / "labels.csv")
        if what == "everything":
            environ["LTPLL_CACHE"] = str(Path(folder) / "cache")
        command = [
            sys.executable,
            "-m",
            "ltpll",
            "train",
            str(table),
            "--images",
            str(options.images),
            "--out",
            str(run),
        ]
        command += [
            "--backbone",
            options.backbone,
            "--finetune",
            options.finetune,
            "--seed",
            str(seed),
            "--device",
            options.device,
        ]
        command += [] if what == "everything" else ["--folds", "0"]
        command += ["--rebalancer", what] if what in REBALANCERS else []
        started = time.perf_counter()
        subprocess.run(
            [*command, *options.option], check=True, env=environ, stdout=subprocess.DEVNULL
        )
        seconds = time.perf_counter() - started
        result = json.loads((run / "result.json").read_text())
    last = result["last"]
    by_goal = last["test"].get("by_goal") or {result["config"]["goal"]: last["test"]}
    figures = ("accuracy", "balanced_accuracy")
    return {
        "data": options.name,
        "backbone": options.backbone,
        "finetune": options.finetune,
        "trained_with": what,
        "seed": seed,
        "rows": result["rows"],
        "seconds": round(seconds, 1),
        "epochs": last["epoch"],
        "by_goal": {
            goal: {name: round(found[name], 5) for name in figures}
            for goal, found in by_goal.items()
        },
        "target_recovery": round(result["recovered"], 5),
        "choice": result["choice"],
        "environment": environment(options.device),
    }


def with_true_labels(table: Path, out: Path) -> Path:
    """A copy of the table whose candidate sets are the true labels."""
    content = csv.read_csv(table)
    csv.write_csv(
        content.set_column(
            content.column_names.index("candidates"), "candidates", content.column("label")
        ),
        out,
    )
    return out


if __name__ == "__main__":
    main()
