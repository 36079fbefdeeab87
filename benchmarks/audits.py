"""Measures audits: intervals, confidences and flags that learn from the answers of people who are
wrong now and then, and how many wrong labels an answer finds.

    python benchmarks/audits.py fit PACK FITS [--photos FEATURES LABELS]
    python benchmarks/audits.py measure FITS --out results/audits
    python benchmarks/audits.py balanced FITS --out results/balanced

`fit` trains committees on tables in which it is known which sets lack the true label, and leaves
what `ltpll train` would store in FITS: digits at three imbalances, with random wrong labels or the
answers of three annotators; the tables of PACK (see benchmarks/tabular.py); cities and chess, raw
tables (see benchmarks/raw_tables.py); and features of photos (`train` of an .npz file, as
benchmarks/columns.py writes it, and an .npy file of class numbers). Of each table, at most
500 rows are used, and networks take 300 steps to save time. The true label is removed from 0, 2 and 10 % of the sets.

`measure` lets simulated people answer, of whom 0, 5 or 10 % of the answers are wrong classes, drawn
at random. Rows of the random sample whose answer is not the label are asked about twice, as on the
page of `ltpll review`. Each fit has a record; existing ones are kept. If cleanlab is installed, its
ranking of the same labels by the same probabilities is compared.

`balanced` compares the confidences of predictions for equally frequent classes with how often they
are right, by classifiers that were not trained on the row: with the temperature of the goal
"accuracy", and with one of their own. Rows count as if all classes were equally frequent, or all
the same.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from sklearn.metrics import roc_auc_score

from cleaning import problem, remove_truth
from ltpll.candidates import Candidates
from ltpll.cleaner import LabelCleaner
from ltpll.cleaning.audit import Answers, calibrated, with_answers_applied
from ltpll.cleaning.results import STORED, CleanedLabels, CleanedTable
from ltpll.cleaning.review import AUDIT, choose_questions, review_rows
from ltpll.committee import Committee
from ltpll.committee.mixture import floored_shares, inside_sets
from ltpll.errors import InputWarning
from ltpll.evaluation.audit import is_rare
from ltpll.evaluation.missing_labels import balanced_temperature, fit_missing_labels
from ltpll.evaluation.set_predictions import SetPredictions
from ltpll.runs.environment import environment
from ltpll.synthetic import uniform_candidates

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
    "chess",
    "photos",
)
RAW_TABLES = {"cities": "cities", "chess": "kr-vs-k"}  # by their names in benchmarks/raw_tables.py


def fit(
    pack: Path, photos: list[Path] | None, name: str, missing: float, seed: int, out: Path
) -> str:
    """Train on one table, and store its labels, their judgement and the true labels."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", InputWarning)
    if name in RAW_TABLES:
        from raw_tables import TABLES as RAW
        from raw_tables import draw, load

        table = RAW[RAW_TABLES[name]]
        drawn = draw(table, *load(table), seed)
        x, y, sets = drawn.x, drawn.y, drawn.sets
    elif name == "photos":
        assert photos is not None
        with np.load(photos[0]) as stored:
            x, y = stored["train"], np.load(photos[1])
        sets = uniform_candidates(y, n_classes=int(y.max()) + 1, ambiguity=0.3, seed=seed).dense()
        sets = sets.numpy()
    else:
        x, y, sets = problem(pack, name, seed)
    some = np.sort(np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS])
    x, y, sets = x.iloc[some] if name in RAW_TABLES else x[some], y[some], sets[some]
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
    given = options.pack, options.photos
    jobs = [
        (*given, name, missing, seed, options.fits / f"{name}-{missing:g}-{seed}.npz")
        for seed in range(options.seeds)
        for name in options.tables
        for missing in MISSING
        if name != "photos" or options.photos
    ]
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        for done in [pool.submit(fit, *job) for job in jobs if not job[-1].exists()]:
            print(done.result(), flush=True)


# ---- audits by simulated people ----------------------------------------------------------------

PAGES = {30: 30, 100: 50}  # answers, and how many of them are about random rows
WRONG = (0.0, 0.05, 0.1)
DRAWS = 40
PRECISION = 0.7  # of flags, for which `ltpll` aims


def measure_all(options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(options.fits.glob("*.npz")):
        name = path.stem.replace(", ", "-").replace(" ", "-").replace("=", "")
        out = options.out / f"{name}.json"
        if not out.exists():
            record = measure(path)
            lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in record.items()]
            out.write_text("{\n" + ",\n".join(lines) + "\n}\n")
            print(name, flush=True)


def table_of(found: dict[str, Any], draw: int) -> CleanedTable:
    """The results of a fit as a table, whose ids decide which rows are drawn."""
    n, owners = (
        len(found["true"]),
        np.repeat(np.arange(len(found["true"])), np.diff(found["offsets"])),
    )
    inside = found["probabilities"].astype(np.float64)[owners, found["candidates"]]
    columns = {name: found[f"label_{name}"] for name in STORED}
    columns["judged_by"] = columns["judged_by"].astype(object)
    contradiction = np.clip(1 - np.bincount(owners, weights=inside), 0, 1).astype(np.float32)
    names = [str(c) for c in range(int(found["n_classes"]))]
    return CleanedTable(
        record={"classes": names, "source": {}},
        ids=np.asarray([f"{draw}-{i}" for i in range(n)], dtype=object),
        paths=None,
        splits=None,
        offsets=found["offsets"],
        candidates=found["candidates"],
        true=np.full(n, None),
        labels=CleanedLabels(**columns, contradiction=contradiction),
    )


def replies(true: Any, wrong: float, n_classes: int, rng: np.random.Generator) -> Any:
    """What somebody answers who is wrong now and then."""
    other = (true + rng.integers(1, n_classes, len(true))) % n_classes
    return np.where(rng.random(len(true)) < wrong, other, true)


def measure(path: Path) -> dict[str, Any]:
    """Many audits of one fit."""
    with np.load(path) as stored:
        found = dict(stored)
    true, started = found["true"], time.process_time()
    table = table_of(found, 0)
    labels, n_classes = table.labels, int(found["n_classes"])
    right, rare = labels.label == true, is_rare(labels.label)
    holds = np.zeros(len(true), dtype=bool)
    holds[table.owners[table.candidates == true[table.owners]]] = True
    name, missing, seed = path.stem.rsplit("-", 2)
    return {
        "table": name,
        "missing": float(missing),
        "seed": int(seed),
        "rows": len(true),
        "lacking": int((~holds).sum()),
        "right": int(right.sum()),
        "rare": {"rows": int(rare.sum()), "right": int(right[rare].sum())},
        "without_answers": {
            "confidence": float(labels.confidence.mean()),
            "rare_confidence": float(labels.confidence[rare].mean()) if rare.any() else None,
            "estimated_missing": float(found["missing"]),
            "flagged": int(labels.issue.sum()),
            "flagged_right": int((labels.issue & ~holds).sum()),
            "ranking": {
                "suspicion": _ranking(labels.suspicion, ~holds),
                "contradiction": _ranking(labels.contradicted, ~holds),
            },
        },
        "reachable": int((~holds)[_reachable(labels.contradicted, ~holds)].sum()),
        "audits": [
            audits(found, n, sample, wrong, right, rare, holds, n_classes)
            for n, sample in PAGES.items()
            for wrong in WRONG
        ],
        "wrong_labels_found": {str(n): wrong_found(table, found, right, n) for n in PAGES},
        "seconds": round(time.process_time() - started, 1),
        "environment": environment("cpu"),
    }


def _ranking(score: Any, lacks: Any) -> float | None:
    return float(roc_auc_score(lacks, score)) if lacks.any() else None


def _reachable(score: Any, lacks: Any) -> Any:
    """The first rows of a ranking, as many as can be flagged with the precision aimed for."""
    order = np.argsort(-score, kind="stable")
    within = np.flatnonzero(np.cumsum(lacks[order]) >= PRECISION * np.arange(1, len(order) + 1))
    return order[: within[-1] + 1 if len(within) else 0]


def audits(
    found: Any, n: int, sample: int, wrong: float, right: Any, rare: Any, holds: Any, n_classes: int
) -> dict[str, Any]:
    """Means over the draws of an audit."""
    rows = []
    for draw in range(DRAWS):
        table, rng = table_of(found, draw), np.random.default_rng(draw)
        asked = choose_questions(table, n, sample)
        first = replies(found["true"][asked.rows], wrong, n_classes, rng)
        again = replies(found["true"][asked.rows], wrong, n_classes, rng)
        doubted = (asked.asked == AUDIT) & (first != table.labels.label[asked.rows])
        audit, once = (
            Answers(asked.rows, [(int(c),) for c in given], asked.asked, asked.probability)
            for given in (np.where(doubted, again, first), first)
        )
        new, left = calibrated(table, audit), ~np.isin(np.arange(len(right)), asked.rows)
        told = with_answers_applied(table, audit).audit
        rare_left = left & rare
        rows.append(
            {
                "covered": _holds(told.right, right.mean()),
                "covered_once": _holds(with_answers_applied(table, once).audit.right, right.mean()),
                "width": told.right.upper - told.right.lower,
                "error": abs(told.right.share - right.mean()),
                "covered_rare": None
                if told.rare is None
                else _holds(told.rare, right[rare].mean()),
                "covered_lacking": _holds(told.lacking, 1 - holds.mean()),
                "gap_before": float(table.labels.confidence[left].mean() - right[left].mean()),
                "gap": float(new.confidence[left].mean() - right[left].mean()),
                "rare_gap_before": _gap(table.labels.confidence, right, rare_left),
                "rare_gap": _gap(new.confidence, right, rare_left),
                "flagged": int(new.issue.sum()),
                "flagged_right": int((new.issue & ~holds).sum()),
                "covered_flags": None
                if told.flagged is None or not new.issue.any()
                else _holds(told.flagged, (~holds)[new.issue].mean()),
                "asked_twice": int(doubted.sum()),
            }
        )
    means = {name: [row[name] for row in rows if row[name] is not None] for name in rows[0]}
    about = {"answers": n, "sample": sample, "wrong": wrong, "draws": DRAWS}
    return about | {k: round(float(np.mean(v)), 5) if v else None for k, v in means.items()}


# ---- predictions for equally frequent classes --------------------------------------------------


def balanced_all(options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(options.fits.glob("*.npz")):
        out = (
            options.out / f"{path.stem.replace(', ', '-').replace(' ', '-').replace('=', '')}.json"
        )
        if not out.exists():
            out.write_text(json.dumps(balanced(path), indent=1) + "\n")


def balanced(path: Path) -> dict[str, Any]:
    """Confidences for the goal "balanced" of one fit."""
    with np.load(path) as stored:
        found = dict(stored)
    true, shape = found["true"], (len(found["true"]), int(found["n_classes"]))
    matrix = np.zeros(shape, dtype=bool)
    matrix[np.repeat(np.arange(len(true)), np.diff(found["offsets"])), found["candidates"]] = True
    sets, shares = Candidates.from_matrix(matrix), found["probabilities"].astype(np.float64)
    prior = floored_shares(inside_sets(shares, sets).mean(0), len(true))
    unseen = SetPredictions.of(torch.from_numpy(shares).float(), sets)
    fitted = fit_missing_labels(unseen, shape[1], np.zeros(len(true), dtype=np.int64))
    own = balanced_temperature(unseen, prior, float(fitted.shares[0]))
    logs = np.log(np.maximum(shares, 1e-7))
    ways = {
        "before": logs / fitted.temperature - np.log(prior),
        "after": (logs - np.log(prior)) / own,
    }
    name, missing, seed = path.stem.rsplit("-", 2)
    about = {"table": name, "missing": float(missing), "seed": int(seed), "rows": len(true)}
    about |= {"temperature": fitted.temperature, "balanced_temperature": own}
    even = 1 / np.bincount(true)[true]
    for way, logits in ways.items():
        probabilities = softmax(logits, axis=1)
        confidence, right = probabilities.max(1), probabilities.argmax(1) == true
        for rows, weights in (("even", even), ("rows", np.ones(len(true)))):
            gaps = weights / weights.sum() * (confidence - right)
            bins = np.bincount((10 * confidence).astype(int).clip(0, 9), gaps)
            about[f"{way}, {rows}"] = {
                "gap": round(float(gaps.sum()), 5),
                "calibration_error": round(float(np.abs(bins).sum()), 5),
                "right": round(float(weights / weights.sum() @ right), 5),
            }
    return about | {"environment": environment("cpu")}


def _holds(estimate: Any, truth: float) -> bool:
    return bool(estimate.lower - 1e-9 <= truth <= estimate.upper + 1e-9)


def _gap(confidence: Any, right: Any, rows: Any) -> float | None:
    return float(confidence[rows].mean() - right[rows].mean()) if rows.any() else None


def wrong_found(table: CleanedTable, found: Any, right: Any, n: int) -> dict[str, float]:
    """How many of n answers are about wrong labels, by how the rows are chosen."""
    orders = {
        "page": choose_questions(table, n, PAGES[n]).rows,
        "page without random rows": choose_questions(table, n, 0).rows,
        "queue": review_rows(table, n),
    }
    found_wrong = {name: float((~right[rows]).sum()) for name, rows in orders.items()}
    found_wrong["random"] = round(n * float((~right).mean()), 3)
    try:
        from cleanlab.rank import get_label_quality_scores
    except ImportError:
        return found_wrong
    shares = found["probabilities"].astype(np.float64)
    shares /= shares.sum(1, keepdims=True)
    for method in ("self_confidence", "normalized_margin"):
        score = get_label_quality_scores(table.labels.label, shares, method=method)
        worst = np.argsort(score, kind="stable")[:n]
        found_wrong[f"cleanlab, {method}"] = float((~right[worst]).sum())
    return found_wrong


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    fitting = commands.add_parser("fit")
    fitting.add_argument("pack", type=Path)
    fitting.add_argument("fits", type=Path)
    fitting.add_argument("--photos", type=Path, nargs=2, metavar=("FEATURES", "LABELS"))
    fitting.add_argument("--tables", nargs="*", choices=TABLES, default=TABLES)
    fitting.add_argument("--seeds", type=int, default=5)
    fitting.add_argument("--workers", type=int, default=2)
    fitting.set_defaults(run=fit_all)
    measuring = commands.add_parser("measure")
    measuring.add_argument("fits", type=Path)
    measuring.add_argument("--out", type=Path, required=True)
    measuring.set_defaults(run=measure_all)
    of_goal = commands.add_parser("balanced")
    of_goal.add_argument("fits", type=Path)
    of_goal.add_argument("--out", type=Path, required=True)
    of_goal.set_defaults(run=balanced_all)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
