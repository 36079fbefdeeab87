"""Measures neighbour pruning: which labels it removes, and what the default training gains or loses
by it.

    python benchmarks/pruning.py PACK --photos voc=voc.csv:voc.npy
    cifar10=cifar10-lt.csv:cifar10-lt.npy --out results/pruning

PACK holds small real tables (see benchmarks/tabular.py). A photo set is a table with the columns
candidates, label and split, and the features of its pictures from `ltpll embed`, in its order. Each
draw has a record; existing figures are kept. Draws differ in the rows: 80 % of a table are trained
on and the rest is held out, and of photos --photo-rows training rows, with the table's test rows
held out. Sets called "independent" are drawn anew as well. Plain votes are compared at the
threshold at which they remove as many labels. The last way of training decides by the sets before
pruning how class shares are held.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.csv as csv
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from ltpll.candidates import Candidates
from ltpll.errors import InputWarning
from ltpll.estimator import PartialLabelClassifier
from ltpll.pruning import (
    NEIGHBOURS,
    THRESHOLD,
    Pruned,
    directions,
    nearest_neighbours,
    prune_candidates,
    relative_votes,
    remove_marked_labels,
)
from ltpll.rebalancers import Auto
from ltpll.rebalancers.auto import choose
from ltpll.runs.environment import environment
from ltpll.synthetic import long_tail_subset, uniform_candidates
from ltpll_research.set_origins import crowd_candidates

TABLES = ("lost", "msrcv2", "birdsong")
WAYS = ("given", "pruned", "pruned, shares before")
DIGITS = ("independent 0.3", "independent 0.5", "crowd")


class Problem(NamedTuple):
    x: Any
    y: Any
    sets: Candidates
    x_test: Any
    y_test: Any


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pack", type=Path)
    parser.add_argument("--photos", nargs="*", default=[], metavar="NAME=TABLE:FEATURES")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--photo-rows", type=int, default=4000)
    parser.add_argument("--only", nargs="*", help="data sets, such as digits")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", InputWarning)  # about classes that no training row has
    photos = {
        name: paths.split(":") for name, _, paths in (one.partition("=") for one in options.photos)
    }
    every = [("digits", origin) for origin in DIGITS] + [(name, "own") for name in TABLES]
    every += [(name, "independent 0.5" if name.startswith("cifar") else "own") for name in photos]
    for seed in options.seeds:
        for data, origin in every:
            path = options.out / f"{data}-{origin.replace(' ', '_')}-{seed}.json"
            if options.only and data not in options.only:
                continue
            earlier = json.loads(path.read_text())["trained"] if path.exists() else {}
            if all(way in earlier for way in WAYS):
                continue
            record = measure(
                problem(options.pack, photos, data, origin, seed, options.photo_rows), seed, earlier
            )
            path.write_text(
                json.dumps({"data": data, "origin": origin, "seed": seed, **record}, indent=1)
                + "\n"
            )
            print(
                path.stem,
                record["votes"],
                record["trained"],
                f"{record['seconds']:.0f} s",
                flush=True,
            )


def measure(given: Problem, seed: int, earlier: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    pruned = prune_candidates(given.x, given.sets)
    index = nearest_neighbours(directions(torch.from_numpy(given.x)), NEIGHBOURS).numpy()
    plain = relative_votes(index, given.sets, frequency_power=0)
    # Singletons have relative votes of 1, like the best candidates, so a threshold that removes as
    # many labels always exists.
    limit = np.sort(plain)[int(pruned.removed.sum())]
    votes = {
        "plain": shares(remove_marked_labels(given.sets, plain < limit), given.y),
        "sqrt": shares(pruned, given.y),
    }
    shares_before = shares_of(given.sets)
    trained = dict(earlier)
    for way, sets, prior in zip(
        WAYS, (given.sets, *(pruned.candidates,) * 2), (None, None, shares_before), strict=True
    ):
        if way == WAYS[-1] and prior is None:
            trained[way] = trained[WAYS[1]]  # it is the same
        elif way not in trained:
            trained[way] = figures(given._replace(sets=sets), seed, prior)
    return {
        "n": len(given.x),
        "features": given.x.shape[1],
        "classes": given.sets.n_classes,
        "set_size": [len(sets.labels) / len(sets) for sets in (given.sets, pruned.candidates)],
        "neighbours": NEIGHBOURS,
        "threshold": THRESHOLD,
        "votes": votes,
        "trained": trained,
        "seconds": round(time.perf_counter() - started, 1),
        "environment": environment("cpu"),
    }


def shares(pruned: Pruned, y: Any) -> dict[str, float]:
    """Shares of the wrong labels that were removed, of the true labels that were lost, and of those
    of the rarest third of classes.
    """
    true = torch.as_tensor(y)
    before = pruned.given.contains(true).numpy()
    gone = before & ~pruned.candidates.contains(true).numpy()
    counts = np.bincount(y[before], minlength=pruned.given.n_classes)
    order = np.argsort(counts, kind="stable")
    order = order[counts[order] > 0]
    rare = before & np.isin(y, order[: max(1, len(order) // 3)])
    found = {
        "wrong_removed": (int(pruned.removed.sum()) - gone.sum())
        / (len(pruned.removed) - before.sum()),
        "true_lost": gone.sum() / before.sum(),
        "rare_lost": (gone & rare).sum() / rare.sum(),
    }
    return {name: round(value, 5) for name, value in found.items()}


def shares_of(candidates: Candidates) -> dict[str, list[float]] | None:
    """Bounds of the class shares that "auto" would hold during training on these sets, if any."""
    auto = Auto()
    prior = auto.estimate(candidates)
    bounds = choose(prior, auto.bounds_of(prior)).bounds
    if bounds is None:
        return None
    shares = zip(candidates.classes, *bounds, strict=True)
    return {str(name): [float(low), float(high)] for name, low, high in shares}


def figures(given: Problem, seed: int, prior: Any) -> dict[str, Any]:
    rebalancer = Auto() if prior is None else Auto(prior=prior)
    model = PartialLabelClassifier(
        rebalancer=rebalancer, random_state=seed, device="cpu", threads=1
    ).fit(given.x, given.sets)
    predicted = {
        goal: model.set_params(goal=goal).predict(given.x_test) for goal in ("accuracy", "balanced")
    }
    right = predicted["balanced"] == given.y_test
    found = {
        "accuracy": float((predicted["accuracy"] == given.y_test).mean()),
        "balanced_accuracy": float(
            np.mean([right[given.y_test == label].mean() for label in np.unique(given.y_test)])
        ),
        "recovery": float((model.transduce().labels == given.y).mean()),
    }
    return {**{name: round(value, 5) for name, value in found.items()}, "choice": model.choice_}


def problem(
    pack: Path, photos: dict[str, list[str]], data: str, origin: str, seed: int, photo_rows: int
) -> Problem:
    if data in photos:
        x, y, matrix, training = read_photos(*map(Path, photos[data]))
        # Neighbouring rows with the same set are mostly of the same picture, and stay together.
        starts = np.concatenate([[True], (matrix[1:] != matrix[:-1]).any(axis=1)])
        order = np.random.default_rng(seed).permutation(int(starts.sum()))[np.cumsum(starts) - 1]
        train = np.flatnonzero(training)[np.argsort(order[training], kind="stable")][:photo_rows]
        test = np.flatnonzero(~training)
    elif data == "digits":
        x, y = load_digits(return_X_y=True)
        pool, test = train_test_split(
            np.arange(len(y)), test_size=500, stratify=y, random_state=seed
        )
        train, matrix = (
            pool[long_tail_subset(y[pool], 20, seed=seed, largest=120)],
            np.zeros((0, 10)),
        )
    else:
        with np.load(pack) as tables:
            x, y, n_classes = (
                tables[f"{data}_X"],
                tables[f"{data}_y"].astype(np.int64),
                int(tables[f"{data}_C"]),
            )
            matrix = np.unpackbits(tables[f"{data}_S"], axis=1)[:, :n_classes]
        train, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed)
    train, n_classes = (
        np.sort(train),
        matrix.shape[1],
    )  # in the order of the file, from which "auto" tells how the sets arose
    if origin == "own":
        sets = Candidates.from_matrix(matrix[train])
    elif origin == "crowd":
        sets = crowd_candidates(y[train], n_classes, seed=seed)
    else:
        sets = uniform_candidates(y[train], n_classes, float(origin.split()[1]), seed=seed)
    return Problem(x[train].astype(np.float32), y[train], sets, x[test].astype(np.float32), y[test])


def read_photos(table: Path, features: Path) -> tuple[Any, Any, Any, Any]:
    """Features, class numbers, candidate matrix, and which rows are for training."""
    columns = csv.read_csv(table).to_pydict()
    named = [cell.split("|") for cell in columns["candidates"]]
    classes = sorted({name for names in named for name in names})
    matrix = np.asarray(
        [[name in names for name in classes] for names in map(set, named)], dtype=np.uint8
    )
    labels = np.asarray([classes.index(name) for name in columns["label"]])
    return np.load(features), labels, matrix, np.asarray(columns["split"]) == "train"


if __name__ == "__main__":
    main()
