"""Measures how many true labels are recovered from the votes of simulated annotators, good and bad
ones.

    python benchmarks/crowds.py --out results/crowds [--pack PACK]

The features and true labels are those of scikit-learn's digits (made long-tailed) and, with PACK,
of its tables (see benchmarks/tabular.py). Labels from the votes alone (majority vote, Dawid–Skene,
our reliabilities) are compared with labels that a classifier has learned from the union of the
votes, without weights and with each kind of weights. Each draw has a record; existing ones are
kept.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

from ltpll import Candidates, candidates_from_votes
from ltpll.candidates.votes import VOTE_WEIGHTS, AnnotatorVotes, vote_likelihoods
from ltpll.errors import InputWarning
from ltpll.estimator import PartialLabelClassifier
from ltpll.runs.environment import environment
from ltpll.synthetic import crowd_votes, long_tail_subset

CROWDS: dict[str, dict[str, Any]] = {
    "three mixed": {"annotators": [0.9, 0.7, 0.4]},
    "with a spammer": {"annotators": [0.9, 0.7, 0.4, "spammer"]},
    "with two who confuse pairs": {"annotators": [0.9, 0.7, "pairs", "pairs"]},
    "with one who always says the same": {"annotators": [0.8, 0.7, 0.5, "constant"]},
    "misleading examples": {"annotators": [0.9, 0.7, 0.5, 0.4], "misleading": 0.2},
    "three of thirty": {
        "annotators": [0.95] * 6 + [0.8] * 8 + [0.6] * 8 + ["spammer"] * 4 + ["pairs"] * 4,
        "per_row": 3,
    },
}
ON_TABLES = ("with a spammer", "misleading examples")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pack", type=Path)
    parser.add_argument(
        "--tables", nargs="*", default=["msrcv2", "birdsong"], help="tables of PACK"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    problems = {"digits": tuple(CROWDS)} | (
        dict.fromkeys(options.tables, ON_TABLES) if options.pack else {}
    )
    draws = [
        (data, crowd, seed)
        for seed in range(options.seeds)
        for data, crowds in problems.items()
        for crowd in crowds
    ]
    missing = {
        draw: path
        for draw in draws
        if not (path := options.out / f"{'-'.join(map(str, draw)).replace(' ', '_')}.json").exists()
    }
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(measure, options.pack, *draw): draw for draw in missing}
        for done in as_completed(waiting):
            record = done.result()
            missing[waiting[done]].write_text(json.dumps(record, indent=1) + "\n")
            print(
                *waiting[done],
                {
                    name: f"{figures['ambiguous']:.3f}"
                    for name, figures in record["figures"].items()
                },
                flush=True,
            )


def measure(pack: Path | None, data: str, crowd: str, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", InputWarning)  # about classes that no row has
    started = time.perf_counter()
    x, y, n_classes = problem(pack, data, seed)
    kinds = [simulated_annotator(kind, n_classes) for kind in CROWDS[crowd]["annotators"]]
    votes = crowd_votes(y, n_classes, seed=seed, **{**CROWDS[crowd], "annotators": kinds})
    sets = {
        how: candidates_from_votes(*votes, n_classes=n_classes, weights=how) for how in VOTE_WEIGHTS
    }
    guesses = {
        "majority": shares_of(sets["counts"]),
        "dawid-skene": dawid_skene(*votes, len(y), n_classes),
        "reliability": with_class_prior(likelihoods(votes, sets["none"])),
    }
    right = {f"{name} alone": share_of_best_guesses(shares, y) for name, shares in guesses.items()}
    choices = {}
    for how, candidates in sets.items():
        model = PartialLabelClassifier(random_state=seed, device="cpu", threads=1).fit(
            x, candidates
        )
        right[f"classifier, {how}"] = (model.transduce().labels == y).astype(np.float64)
        choices[how] = model.choice_
    ambiguous = (sets["none"].sizes > 1).numpy()
    covered = sets["none"].contains(torch.from_numpy(y)).numpy()
    figures = {
        name: {
            "all": round(float(found.mean()), 5),
            "ambiguous": round(float(found[ambiguous].mean()), 5),
            "balanced": round(
                float(np.mean([found[y == label].mean() for label in np.unique(y)])), 5
            ),
        }
        for name, found in right.items()
    }
    return {
        "data": data,
        "crowd": crowd,
        "seed": seed,
        "n": len(y),
        "classes": n_classes,
        "ambiguous": round(
            float(ambiguous.mean()), 5
        ),  # share of the rows on which annotators disagree
        "covered": {
            "all": round(float(covered.mean()), 5),
            "ambiguous": round(float(covered[ambiguous].mean()), 5),
        },  # true label voted for
        "choices": choices,
        "figures": figures,
        "seconds": round(time.perf_counter() - started, 1),
        "environment": environment("cpu"),
    }


def problem(pack: Path | None, data: str, seed: int) -> tuple[Any, Any, int]:
    """Features, true labels and the number of classes."""
    if data == "digits":
        x, y = load_digits(return_X_y=True)
        kept = long_tail_subset(y, 20, seed=seed)
        return x[kept].astype(np.float32), y[kept].astype(np.int64), 10
    assert pack is not None
    with np.load(pack) as tables:
        return (
            tables[f"{data}_X"].astype(np.float32),
            tables[f"{data}_y"].astype(np.int64),
            int(tables[f"{data}_C"]),
        )


def simulated_annotator(kind: float | str, n_classes: int) -> Any:
    """An accuracy, or the probabilities of the labels that an annotator gives each class."""
    if kind == "spammer":
        return np.full((n_classes, n_classes), 1 / n_classes)
    if kind == "constant":
        return np.tile(np.eye(n_classes)[0], (n_classes, 1))
    if kind == "pairs":
        return 0.55 * np.eye(n_classes) + 0.45 * np.roll(np.eye(n_classes), 1, axis=1)
    return kind


# ---- labels from the votes alone -----------------------------------------------------------------


def shares_of(candidates: Candidates) -> Any:
    """The weights of candidates as a dense (N, C) array."""
    assert candidates.weights is not None
    dense = np.zeros((len(candidates), candidates.n_classes))
    dense[
        np.repeat(np.arange(len(candidates)), candidates.sizes.numpy()), candidates.labels.numpy()
    ] = candidates.weights.numpy()
    return dense


def likelihoods(votes: tuple[Any, Any, Any], union: Candidates) -> Any:
    """The likelihoods of the votes that our weights are made of, as a dense (N, C) array."""
    return shares_of(
        union.with_weights(
            vote_likelihoods(AnnotatorVotes(*votes, ()), len(union), union.n_classes) + 1e-12
        )
    )


def with_class_prior(likelihoods: Any, rounds: int = 100) -> Any:
    """Posteriors under the class prior that makes the likelihoods most likely."""
    prior = np.full(likelihoods.shape[1], 1 / likelihoods.shape[1])
    for _ in range(rounds):
        posterior = likelihoods * prior
        posterior /= posterior.sum(1, keepdims=True)
        prior = posterior.mean(0)
    return posterior


def dawid_skene(
    rows: Any, annotators: Any, labels: Any, n_rows: int, n_classes: int, rounds: int = 100
) -> Any:
    """Posteriors of the model of Dawid and Skene (1979): a full confusion matrix for each
    annotator, EM from the shares of the votes.
    """
    posterior = np.zeros((n_rows, n_classes))
    np.add.at(posterior, (rows, labels), 1.0)
    posterior /= posterior.sum(1, keepdims=True)
    for _ in range(rounds):
        confusion = np.full(
            (annotators.max() + 1, n_classes, n_classes), 0.01
        )  # annotator, given label, true label
        np.add.at(confusion, (annotators, labels), posterior[rows])
        confusion /= confusion.sum(1, keepdims=True)
        scores = np.tile(np.log(posterior.mean(0) + 1e-12), (n_rows, 1))
        np.add.at(scores, rows, np.log(confusion[annotators, labels]))
        posterior = np.exp(scores - scores.max(1, keepdims=True))
        posterior /= posterior.sum(1, keepdims=True)
    return posterior


def share_of_best_guesses(shares: Any, y: Any) -> Any:
    """How likely each label is right if ties are broken at random."""
    best = shares >= shares.max(1, keepdims=True) - 1e-6
    return best[np.arange(len(y)), y] / best.sum(1)


if __name__ == "__main__":
    main()
