"""Writes the files of this version into tests/formats/VERSION, for tests of later versions."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from ltpll import PartialLabelClassifier, __version__
from ltpll.synthetic import four_squares, uniform_candidates
from ltpll.tables.writers import write_table

HERE = Path(__file__).parent
NAMES = np.asarray(["ant", "bee", "cat", "fox"])
OPTIONS = ["--epochs", "5", "--folds", "2", "--rebalancer", "mean-target", "--device", "cpu"]
SMALL_BATCHES = ["--set", "training.batch_size=8"]
# Runs that were interrupted in the middle of an epoch: in the 13th of 25 steps on all rows, and in
# the 6th of 10 steps of the second fold.
INTERRUPTED = {"training": 13, "folds": 41}


def points():
    """Small tables: points in four squares, and names as candidates."""
    x, y = four_squares([6, 8, 10, 16], seed=0)
    sets = uniform_candidates(y, 4, 0.3, seed=0)
    return x, ["|".join(NAMES[sets.row(row)]) for row in range(len(y))]


def write(folder):
    """A saved classifier, a run on a table, with what they answered, and two interrupted runs."""
    x, sets = points()
    classifier = PartialLabelClassifier(method="proden", steps=60, device="cpu", threads=1).fit(
        x, sets
    )
    classifier.save(folder / "classifier.safetensors")
    table = {"id": list(range(len(x))), "candidates": sets, "width": x[:, 0], "height": x[:, 1]}
    write_table(folder / "table.csv", table)
    subprocess.run(
        [sys.executable, "-m", "ltpll", "train", "table.csv", *OPTIONS, "--out", "run"],
        cwd=folder,
        check=True,
    )
    for name, step in INTERRUPTED.items():
        arguments = ["train", "table.csv", *OPTIONS, *SMALL_BATCHES, "--out", f"interrupted-{name}"]
        call = f"signalled_at({step}, {int(signal.SIGINT)}, 'command', *{arguments})"
        code = f"from support.interrupted_runs import signalled_at; {call}"
        path = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
        ended = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": path},
            check=False,
        )
        assert ended.returncode == 130, ended
    answers = {
        "classes": classifier.classes_.tolist(),
        "probabilities": classifier.predict_proba(x).round(5).tolist(),
    }
    (folder / "answers.json").write_text(json.dumps(answers) + "\n", encoding="utf-8")


if __name__ == "__main__":
    target = HERE / __version__
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    write(target)
    for path in (*target.glob("*/checkpoint*.previous.safetensors"), *target.glob(".*.lock")):
        path.unlink()
