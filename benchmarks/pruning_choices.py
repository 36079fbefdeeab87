"""Measures the choices of neighbour pruning: how rows are compared, whether equal sets vote, how
many neighbours, which threshold.

    python benchmarks/pruning_choices.py PACK --photos voc=voc.csv:voc.npy --out
    results/bench/pruning-cpu.json

The data are those of benchmarks/pruning.py, with all training rows, and one draw of each kind of
digits. Ways of comparing rows are judged by the share of wrong labels that is removed at the
threshold at which 3 % of the true labels are lost.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pruning import DIGITS, TABLES, read_photos, shares
from sklearn.datasets import load_digits
from torch.nn.functional import normalize

from ltpll.candidates import Candidates
from ltpll.priors.distinct_sets import distinct_sets
from ltpll.pruning import (
    NEIGHBOURS,
    directions,
    nearest_neighbours,
    relative_votes,
    remove_marked_labels,
)
from ltpll.runs.environment import environment
from ltpll.synthetic import long_tail_subset, uniform_candidates
from ltpll.views import FeatureViews
from ltpll_research.set_origins import crowd_candidates

LOST = 0.03
THRESHOLDS, NUMBERS = (0.1, 0.2, 0.3, 0.4, 0.5), (10, 20, 30)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pack", type=Path)
    parser.add_argument("--photos", nargs="*", default=[], metavar="NAME=TABLE:FEATURES")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for name, (x, y, sets) in problems(options.pack, options.photos).items():
        found[name] = measure(torch.from_numpy(x), y, sets)
        print(name, json.dumps(found[name]), flush=True)
    record = {
        "neighbours": NEIGHBOURS,
        "lost": LOST,
        "data": found,
        "environment": environment("cpu"),
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n")


def measure(x: Any, y: Any, sets: Candidates) -> dict[str, Any]:
    ways = {
        "standardised": FeatureViews.of(x).plain(x),
        "angle, raw": normalize(x, dim=1),
        "angle, standardised": directions(x),
    }
    equal = distinct_sets(sets).of_row
    runs = np.concatenate([[0], np.cumsum(equal[1:] != equal[:-1])])
    index = {
        way: nearest_neighbours(features, NEIGHBOURS).numpy() for way, features in ways.items()
    }
    for what, groups in (("without runs of equal sets", runs), ("without equal sets", equal)):
        index[what] = nearest_neighbours(
            directions(x), NEIGHBOURS, groups=torch.from_numpy(groups)
        ).numpy()
    compared = {
        way: at_equal_loss(relative_votes(rows, sets), sets, y) for way, rows in index.items()
    }
    grid = []
    for k in NUMBERS:
        votes = relative_votes(nearest_neighbours(directions(x), k).numpy(), sets)
        grid += [
            {"neighbours": k, "threshold": t, **shares(remove_marked_labels(sets, votes < t), y)}
            for t in THRESHOLDS
        ]
    return {"rows": len(x), "compared": compared, "grid": grid}


def at_equal_loss(votes: Any, sets: Candidates, y: Any) -> float:
    """The share of wrong labels that is removed where the given share of true labels is."""
    true = sets.labels.numpy() == np.repeat(y, sets.sizes.numpy())
    limit = np.sort(votes[true])[int(LOST * true.sum())]
    return round(float((votes[~true] < limit).mean()), 5)


def problems(pack: Path, photos: list[str]) -> dict[str, tuple[Any, Any, Candidates]]:
    """Features, true labels and sets of each data set."""
    found: dict[str, tuple[Any, Any, Candidates]] = {}
    for name, _, paths in (one.partition("=") for one in photos):
        x, y, matrix, training = read_photos(*map(Path, paths.split(":")))
        found[name] = (
            x[training].astype(np.float32),
            y[training],
            Candidates.from_matrix(matrix[training]),
        )
    for name in TABLES:
        with np.load(pack) as tables:
            matrix = np.unpackbits(tables[f"{name}_S"], axis=1)[:, : int(tables[f"{name}_C"])]
            found[name] = (
                tables[f"{name}_X"].astype(np.float32),
                tables[f"{name}_y"].astype(np.int64),
                Candidates.from_matrix(matrix),
            )
    x, y = load_digits(return_X_y=True)
    rows = long_tail_subset(y, 20, seed=0, largest=170)
    for origin in DIGITS:
        sets = (
            crowd_candidates(y[rows], 10, seed=0)
            if origin == "crowd"
            else uniform_candidates(y[rows], 10, float(origin.split()[1]), seed=0)
        )
        found[f"digits, {origin}"] = x[rows].astype(np.float32), y[rows], sets
    return found


if __name__ == "__main__":
    main()
