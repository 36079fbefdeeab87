"""Measures training on candidate sets some of which lack the true label, with and without
`truth_missing`.

    python benchmarks/missing.py --out results/missing [--data digits
    cifar10-lt=FEATURES.npy,TABLE.csv pll_tabular=FILE.npz]

The label is removed from a share of the sets; a set that would be empty gets a random wrong label.
FEATURES are embeddings in the order of TABLE, which needs the columns label and split (`ltpll
embed`); their first 128 principal components are used, to save time. The sets of digits-top-k are
the three likeliest classes of a logistic regression that was trained on 40 other rows; they lack
the label where this model does not know it. digits-pixels are the digits as pictures, for a
convolutional network. Each training has a record, and existing ones are kept, so that the command
can be interrupted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.csv as csv
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

from ltpll import Candidates, PartialLabelClassifier
from ltpll.runs.environment import environment
from ltpll_research.set_origins import remove_labels

SHARES = (0.0, 0.1, 0.3)
COMPONENTS = 128
TEST_ROWS = 0.2
WEAK_ROWS = 40
AMBIGUITY = {"digits": 0.3, "digits-pixels": 0.3, "cifar10-lt": 0.5, "cifar100": 0.05}


class Problem(NamedTuple):
    x: npt.NDArray[Any]
    y: npt.NDArray[np.int64]
    sets: npt.NDArray[np.bool_]
    x_test: npt.NDArray[Any]
    y_test: npt.NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", nargs="*", default=["digits"])
    parser.add_argument("--how", nargs="*", default=["never", "auto"])
    parser.add_argument("--shares", nargs="*", type=float, default=SHARES)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        for name, files in (one.partition("=")[::2] for one in options.data):
            for data, problem in problems(name, files, seed):
                for share in options.shares if data != "digits-top-k" else (0.0,):
                    for how in options.how:
                        path = options.out / f"{data}-{share:g}-{how}-{seed}.json"
                        if not path.exists():
                            record = measure(data, problem, share, how, seed, options.threads)
                            path.write_text(json.dumps(record, indent=1) + "\n")
                            print(
                                path.stem,
                                record["accuracy"],
                                record["balanced_accuracy"],
                                record["recovery"],
                                flush=True,
                            )


def problems(name: str, files: str, seed: int) -> Iterator[tuple[str, Problem]]:
    """The data sets of one source, with candidate sets that hold the true label."""
    rng = np.random.default_rng(seed)
    if name == "pll_tabular":
        stored = np.load(files)
        for table in ("lost", "msrcv2", "birdsong"):
            x, y = stored[f"{table}_X"].astype(np.float32), stored[f"{table}_y"].astype(np.int64)
            sets = np.unpackbits(stored[f"{table}_S"], axis=1)[
                :, : int(stored[f"{table}_C"])
            ].astype(bool)
            test = rng.random(len(y)) < TEST_ROWS
            yield table, Problem(x[~test], y[~test], sets[~test], x[test], y[test])
        return
    if name.startswith("digits"):
        digits = load_digits()
        x, y, train = (
            digits.data.astype(np.float32),
            digits.target,
            rng.random(len(digits.target)) >= TEST_ROWS,
        )
        if name == "digits-pixels":
            x = (x * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    else:
        features, table_file = files.split(",")
        table = csv.read_csv(table_file)
        y = np.unique(table.column("label").to_numpy(), return_inverse=True)[1]
        train = np.asarray(table.column("split").to_pylist()) == "train"
        x = np.load(features)
        x = PCA(COMPONENTS, random_state=0).fit(x[train]).transform(x).astype(np.float32)
    y_train = y[train].astype(np.int64)
    if name == "digits-top-k":
        weak = LogisticRegression(max_iter=1000).fit(x[train][:WEAK_ROWS], y_train[:WEAK_ROWS])
        x_train, y_train = x[train][WEAK_ROWS:], y_train[WEAK_ROWS:]
        sets = np.zeros((len(y_train), 10), dtype=bool)
        np.put_along_axis(
            sets,
            weak.classes_[np.argsort(-weak.predict_proba(x_train), axis=1)[:, :3]],
            True,
            axis=1,
        )
        yield name, Problem(x_train, y_train, sets, x[~train], y[~train])
        return
    sets = rng.random((len(y_train), y.max() + 1)) < AMBIGUITY[name]
    sets[np.arange(len(y_train)), y_train] = True
    yield name, Problem(x[train], y_train, sets, x[~train], y[~train])


def measure(
    data: str, problem: Problem, share: float, how: str, seed: int, threads: int
) -> dict[str, Any]:
    """Train once, and return the record of the benchmark."""
    sets, y = (
        remove_labels(Candidates.from_matrix(problem.sets), problem.y, share, seed=1000 + seed)
        .dense()
        .numpy(),
        problem.y,
    )
    started = time.perf_counter()
    views = "crop" if problem.x.ndim == 4 else "auto"  # mirrored digits are others
    opening = share if how == "share" else how
    classifier = PartialLabelClassifier(
        truth_missing=opening, views=views, random_state=seed, device="cpu", threads=threads
    )
    classifier.fit(problem.x, Candidates.from_matrix(sets))
    seconds = time.perf_counter() - started
    labels = classifier.transduced_.labels
    holds = sets[np.arange(len(y)), y]
    left = ~sets[np.arange(len(y)), labels]
    figures = {
        "accuracy": (classifier.predict(problem.x_test) == problem.y_test).mean(),
        "balanced_accuracy": balanced_accuracy_score(
            problem.y_test, classifier.set_params(goal="balanced").predict(problem.x_test)
        ),
        "recovery": (labels == y).mean(),
        "recovery_of_lacking": (labels == y)[~holds].mean() if not holds.all() else None,
        "left": left.mean(),
        "left_by_mistake": left[holds].mean(),
        "estimated_share": classifier.truth_missing_,
    }
    return {
        "data": data,
        "removed": share,
        "lacking": round(float(1 - holds.mean()), 5),
        "how": how,
        "seed": seed,
        "rows": len(y),
        **{
            name: None if value is None else round(float(value), 5)
            for name, value in figures.items()
        },
        "seconds": round(seconds, 1),
        "environment": environment("cpu"),
    }


if __name__ == "__main__":
    main()
