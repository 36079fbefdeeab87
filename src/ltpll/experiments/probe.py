"""Features: what a finished run's network has learned, seen by a linear probe and by t-SNE."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ltpll.data.benchmarks.image_sets import ImageSet
from ltpll.errors import InputError
from ltpll.experiments.benchmark import Experiment, build_trainer, draw_problem
from ltpll.experiments.drawing import new_figure
from ltpll.files import parse_json, write_atomically
from ltpll.runs.run import Run
from ltpll.training.trainer import PartialLabelTrainer


def open_run(folder: Path) -> Run:
    """The run of a folder that still has its checkpoint."""
    try:
        config = parse_json((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        config = None
    if not isinstance(config, dict) or not isinstance(config.get("data"), str):
        raise InputError(f"{folder} is no run's folder: it has no config.json that can be read.")
    run = Run(folder.parent, config)
    if not (folder / "checkpoint.safetensors").exists():
        raise InputError(f"The run {folder} has no checkpoint: only a folder that was trained in has one, results alone do not.")
    return run


def reopened(run: Run, images: ImageSet, device: str) -> PartialLabelTrainer:
    """The trainer of a run as its checkpoint left it."""
    experiment = Experiment.from_config(run.config)
    problem = draw_problem(experiment, images)
    trainer = build_trainer(experiment, problem, device=device, engine="eager")
    trainer.prepare(problem.x, problem.candidates)
    trainer.load(run.folder / "checkpoint.safetensors")
    return trainer


def features_of(trainer: PartialLabelTrainer, x: npt.NDArray[np.uint8]) -> Tensor:
    """The features of images, (N, dim), on the trainer's device."""
    return trainer.outputs(torch.from_numpy(np.ascontiguousarray(x)).permute(0, 3, 1, 2)).features[0]


# ---- linear probing ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Probe:
    """The paper's recipe for the linear classifier: SGD, with a learning rate that falls exponentially."""

    epochs: int = 500
    batch_size: int = 1000
    momentum: float = 0.7
    weight_decay: float = 5e-4
    lr: float = 1e-2
    final_lr: float = 1e-6


def balanced_rows(labels: npt.NDArray[np.int64], shots: int | None, seed: int) -> npt.NDArray[np.int64]:
    """As many rows of every class: `shots`, or for None as many as the smallest class has."""
    sizes = np.bincount(labels)
    n = int(sizes.min()) if shots is None else shots
    if n > sizes.min():
        raise InputError(f"{n} examples of every class are asked for, but class {int(sizes.argmin())} has {int(sizes.min())}.")
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.choice(np.flatnonzero(labels == c), n, replace=False) for c in range(len(sizes))])


def fit_probe(
    x: Tensor, y: Tensor, n_classes: int, seed: int, recipe: Probe | None = None, on_epoch: Callable[[], None] = lambda: None
) -> nn.Linear:
    """A linear classifier on fixed features."""
    recipe = recipe or Probe()
    generator = torch.Generator(x.device).manual_seed(seed)
    head: nn.Linear = nn.utils.skip_init(nn.Linear, x.shape[1], n_classes, device=x.device)  # its own would draw from torch's state
    with torch.no_grad():
        head.weight.normal_(0, 0.01, generator=generator)
        head.bias.zero_()
    optimizer = torch.optim.SGD(head.parameters(), lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    for epoch in range(recipe.epochs):
        optimizer.param_groups[0]["lr"] = recipe.lr * (recipe.final_lr / recipe.lr) ** (epoch / max(recipe.epochs - 1, 1))
        for rows in torch.randperm(len(x), generator=generator, device=x.device).split(recipe.batch_size):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(head(x[rows]), y[rows]).backward()
            optimizer.step()
        on_epoch()
    return head


@torch.no_grad()
def top_accuracies(head: nn.Linear, x: Tensor, y: Tensor) -> dict[str, float]:
    """Shares of examples whose class is predicted first, and among the first five."""
    ranked = head(x).topk(min(5, head.out_features), dim=1).indices
    hits = ranked == y[:, None]
    return {"top1": float(hits[:, 0].float().mean()), "top5": float(hits.any(1).float().mean())}


def probe(
    trainer: PartialLabelTrainer,
    images: ImageSet,
    shots: Sequence[int | None],
    *,
    seed: int = 0,
    recipe: Probe | None = None,
    on_epoch: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Accuracies of linear classifiers on the run's features, trained on balanced labels."""
    n_classes = len(images.classes)
    x_test = features_of(trainer, images.x_test)
    y_test = torch.from_numpy(images.y_test).to(trainer.device)
    found = []
    for n in shots:
        rows = balanced_rows(images.y_train, n, seed)
        x = features_of(trainer, images.x_train[rows])
        y = torch.from_numpy(images.y_train[rows]).to(trainer.device)
        head = fit_probe(x, y, n_classes, seed, recipe, on_epoch)
        found.append({"shots": n, "examples": len(rows), **top_accuracies(head, x_test, y_test)})
    return found


# ---- t-SNE ------------------------------------------------------------------------------------------------------------


def draw_tsne(trainer: PartialLabelTrainer, images: ImageSet, path: Path, *, most: int = 2000, seed: int = 0) -> None:
    """A picture of the test set's features in the plane, a colour for each class."""
    from sklearn.manifold import TSNE

    figure = new_figure(figsize=(6, 6), layout="constrained")
    rows = np.random.default_rng(seed).permutation(len(images.y_test))[:most]
    features = features_of(trainer, images.x_test[rows]).cpu().numpy()
    places = TSNE(init="pca", random_state=seed, perplexity=min(30, max((len(rows) - 1) // 3, 1))).fit_transform(features)
    panel = figure.subplots()
    labels = images.y_test[rows]
    few = len(images.classes) <= 20
    for c, name in enumerate(images.classes):
        own = places[labels == c]
        panel.scatter(own[:, 0], own[:, 1], s=5, color=f"C{c}" if len(images.classes) <= 10 else None, label=name if few else None)
    panel.set(xticks=[], yticks=[])
    if few:
        figure.legend(loc="outside lower center", ncols=5, fontsize=8, markerscale=3)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InputError(f"The picture {path} cannot be written ({error.strerror}): choose another path.") from error


def write_probe(run: Run, trainer: PartialLabelTrainer, results: list[dict[str, Any]], *, epochs: int, seed: int) -> Path:
    """Write the results of `probe` to the run folder, and return their path."""
    record = {"run": run.key, "epoch": trainer.epoch, "probe_epochs": epochs, "seed": seed, "results": results}
    path = run.folder / "probe.json"
    write_atomically(path, (json.dumps(record, indent=1) + "\n").encode())
    return path
