"""Measures rebalancers in every column of the RECORDS paper's Table 1 and its NU setting, on
features of a pretrained network.

    python benchmarks/columns.py --data-root DATA --features FOLDER --out results/columns

DATA holds the prepared image sets cifar10, cifar100 and voc2007 (`ltpll-research data prepare`).
Their images are enlarged, embedded with EfficientNet-Lite0 and reduced to 128 principal components,
once; FOLDER keeps the result. Subsets and candidate sets are those of `ltpll-research benchmark`
with the same seed, and the classifier, or the committee, has its defaults. This takes minutes on a CPU, where training
a ResNet-18 from scratch takes days; it is how photos are used, but not the paper's protocol. Each
training has a record; existing ones are kept.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.decomposition import PCA
from sklearn.metrics import balanced_accuracy_score

from ltpll.backbones import Backbone
from ltpll.backbones.embedder import Embedder
from ltpll.committee import Committee
from ltpll.estimator import PartialLabelClassifier
from ltpll.runs.environment import environment
from ltpll_research.benchmark import Experiment, draw_problem
from ltpll_research.image_sets.prepared import load_image_set

REBALANCERS = ("mean-target", "records", "set-evidence", "auto", "committee")
COMPONENTS = 128
AT_ONCE = 256  # pictures


def columns() -> Iterator[dict[str, Any]]:
    for data, ambiguities in (("cifar10", (0.3, 0.5, 0.7)), ("cifar100", (0.03, 0.05, 0.07))):
        for imbalance in (50.0, 100.0):
            for ambiguity in ambiguities:
                yield {
                    "data": data,
                    "imbalance": imbalance,
                    "ambiguity": ambiguity,
                    "superclass": False,
                }
    for ambiguity in (0.03, 0.05, 0.07):
        yield {"data": "cifar100", "imbalance": 100.0, "ambiguity": ambiguity, "superclass": True}
    yield {"data": "voc2007"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--trained-with", nargs="*", default=REBALANCERS)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    for folder in (options.features, options.out):
        folder.mkdir(parents=True, exist_ok=True)
    for data in sorted({column["data"] for column in columns()}):
        embed(data, options.data_root, options.features / f"{data}.npz")
    missing = {}
    for seed in options.seeds:
        for column in columns():
            for rebalancer in options.trained_with:
                name = (
                    "-".join(map(str, [*column.values(), rebalancer, seed]))
                    .replace("-True", "-nu")
                    .replace("-False", "")
                )
                if not (path := options.out / f"{name}.json").exists():
                    missing[path] = (column, rebalancer, seed)
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        waiting = {
            pool.submit(measure, options.data_root, options.features, *what): path
            for path, what in missing.items()
        }
        for done in as_completed(waiting):
            record = done.result()
            waiting[done].write_text(json.dumps(record, indent=1) + "\n")
            print(
                waiting[done].stem,
                record["balanced_accuracy"],
                record["uncorrected"],
                record["recovery"],
                flush=True,
            )


def embed(data: str, root: Path, path: Path) -> None:
    if path.exists():
        return
    images, embedder = (
        load_image_set(data, root),
        Embedder(Backbone.from_pretrained("efficientnet-lite0")),
    )

    def embedded(pictures: Any) -> Any:
        parts = []
        for first in range(0, len(pictures), AT_ONCE):
            some = [
                Image.fromarray(one).resize((embedder.side,) * 2, Image.Resampling.BICUBIC)
                for one in pictures[first : first + AT_ONCE]
            ]
            parts.append(embedder(np.stack([np.asarray(one) for one in some])))
        return np.concatenate(parts)

    train, test = embedded(images.x_train), embedded(images.x_test)
    reduced = PCA(COMPONENTS, random_state=0).fit(train)
    np.savez(
        path,
        train=reduced.transform(train).astype(np.float32),
        test=reduced.transform(test).astype(np.float32),
    )


def measure(
    root: Path, features: Path, column: dict[str, Any], rebalancer: str, seed: int
) -> dict[str, Any]:
    """Train once, and return the record of the benchmark."""
    torch.set_num_threads(1)
    images = load_image_set(column["data"], root, mmap=True)
    numbers = np.arange(len(images.y_train)).reshape(
        -1, 1, 1, 1
    )  # instead of images, so that the draw says which rows it has
    problem = draw_problem(
        Experiment(**column, seed=seed), images._replace(x_train=numbers, x_test=images.x_test[:1])
    )  # type: ignore[arg-type]
    with np.load(features / f"{column['data']}.npz") as stored:
        x, x_test = stored["train"][problem.x.flatten().numpy()], stored["test"]
    started = time.perf_counter()
    how: dict[str, Any] = {"random_state": seed, "device": "cpu", "threads": 1}
    if rebalancer == "committee":
        model: Any = Committee(**how)
    else:
        model = PartialLabelClassifier(rebalancer=rebalancer, **how)
    model.fit(x, problem.candidates)
    seconds = time.perf_counter() - started
    number = {name: place for place, name in enumerate(problem.candidates.classes)}

    def numbers_of(labels: Any) -> Any:
        return np.asarray([number[label] for label in labels])

    figures = {
        "balanced_accuracy": balanced_accuracy_score(
            images.y_test, numbers_of(model.set_params(goal="balanced").predict(x_test))
        ),
        "uncorrected": balanced_accuracy_score(
            images.y_test, numbers_of(model.set_params(goal="accuracy").predict(x_test))
        ),
        "recovery": (numbers_of(model.transduce().labels) == problem.y).mean(),
    }
    return {
        **column,
        "rebalancer": rebalancer,
        **({"steps": model.steps} if rebalancer == "committee" else {}),
        "seed": seed,
        "rows": len(x),
        **{name: round(float(value), 5) for name, value in figures.items()},
        "choice": model.choice_,
        "seconds": round(seconds, 1),
        "environment": environment("cpu"),
    }


if __name__ == "__main__":
    main()
