"""Writes the files of this version into tests/formats/VERSION, for the tests of later versions: `python tests/formats/write.py`."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from ltpll import PartialLabelClassifier, __version__
from ltpll.data.synthetic import four_squares, uniform_candidates
from ltpll.data.writers import write_table

HERE = Path(__file__).parent
NAMES = np.asarray(["ant", "bee", "cat", "fox"])


def points():
    """Small tables: points in four squares, and names as candidates."""
    x, y = four_squares([6, 8, 10, 16], seed=0)
    sets = uniform_candidates(y, 4, 0.3, seed=0)
    return x, ["|".join(NAMES[sets.row(row)]) for row in range(len(y))]


def write(folder):
    """A saved classifier and a run on a table, with what they answered."""
    x, sets = points()
    classifier = PartialLabelClassifier(method="proden", steps=60, device="cpu", threads=1).fit(x, sets)
    classifier.save(folder / "classifier.safetensors")
    table = {"id": list(range(len(x))), "candidates": sets, "width": x[:, 0], "height": x[:, 1]}
    write_table(folder / "table.csv", table)
    options = ["--epochs", "5", "--folds", "2", "--rebalancer", "mean-target", "--out", "run"]
    subprocess.run([sys.executable, "-m", "ltpll", "train", "table.csv", *options], cwd=folder, check=True)
    answers = {"classes": classifier.classes_.tolist(), "probabilities": classifier.predict_proba(x).round(5).tolist()}
    (folder / "answers.json").write_text(json.dumps(answers) + "\n", encoding="utf-8")


if __name__ == "__main__":
    target = HERE / __version__
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    write(target)
    (target / "run" / "checkpoint.previous.safetensors").unlink(missing_ok=True)
