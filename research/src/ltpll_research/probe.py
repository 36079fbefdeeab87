"""The features of a finished run: how well linear classifiers do on them, and t-SNE pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ltpll.errors import InputError
from ltpll.evaluation.metrics import evaluate
from ltpll.training.trainer import PartialLabelTrainer
from ltpll_research.image_sets.prepared import ImageSet
from ltpll_research.plotting import save_figure


def image_features(trainer: PartialLabelTrainer, x: npt.NDArray[np.uint8]) -> Tensor:
    """Compute the features of images, (N, dim), on the trainer's device."""
    images = torch.from_numpy(np.ascontiguousarray(x)).permute(0, 3, 1, 2)
    return trainer.outputs(images).features[0]


# The paper's recipe for the linear classifier: the learning rate decays exponentially.
EPOCHS = 500
BATCH_SIZE = 1000
MOMENTUM = 0.7
WEIGHT_DECAY = 5e-4
FIRST_LR, LAST_LR = 1e-2, 1e-6


def balanced_rows(
    labels: npt.NDArray[np.int64], shots: int | None, seed: int
) -> npt.NDArray[np.int64]:
    """Draw `shots` rows of every class; None means as many as the smallest class has."""
    sizes = np.bincount(labels)
    n = int(sizes.min()) if shots is None else shots
    if n > sizes.min():
        raise InputError(
            f"The probe needs {n} examples of every class, but class {int(sizes.argmin())} has "
            f"{int(sizes.min())}."
        )
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [rng.choice(np.flatnonzero(labels == c), n, replace=False) for c in range(len(sizes))]
    )


def fit_probe(
    x: Tensor,
    y: Tensor,
    n_classes: int,
    seed: int,
    epochs: int = EPOCHS,
    on_epoch: Callable[[], None] = lambda: None,
) -> nn.Linear:
    """Train a linear classifier on fixed features."""
    generator = torch.Generator(x.device).manual_seed(seed)
    # The default initialisation would draw from torch's global random state.
    head: nn.Linear = nn.utils.skip_init(nn.Linear, x.shape[1], n_classes, device=x.device)
    with torch.no_grad():
        head.weight.normal_(0, 0.01, generator=generator)
        head.bias.zero_()
    optimizer = torch.optim.SGD(
        head.parameters(), lr=FIRST_LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    for epoch in range(epochs):
        share = epoch / max(epochs - 1, 1)
        optimizer.param_groups[0]["lr"] = FIRST_LR * (LAST_LR / FIRST_LR) ** share
        order = torch.randperm(len(x), generator=generator, device=x.device)
        for rows in order.split(BATCH_SIZE):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(head(x[rows]), y[rows]).backward()
            optimizer.step()
        on_epoch()
    return head


@torch.no_grad()
def top_accuracies(head: nn.Linear, x: Tensor, y: Tensor) -> dict[str, float]:
    """The top-1 and top-5 accuracy of a linear classifier; with up to five classes, top-5 is 1."""
    found = evaluate(head(x), y)
    return {"top1": found.accuracy, "top5": 1.0 if found.top5 is None else found.top5}


def probe(
    trainer: PartialLabelTrainer,
    images: ImageSet,
    shots: Sequence[int | None],
    *,
    seed: int = 0,
    epochs: int = EPOCHS,
    on_epoch: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Train linear classifiers on a run's features with balanced labels, and test them.

    Args:
        trainer: The trainer of a finished run, see `reopen_trainer`.
        images: The image set that the run was trained on.
        shots: The number of training examples per class, one entry per classifier; None uses as
            many as the smallest class has.
        seed: Draws the examples, the initial weights and the order of the batches.
        epochs: How long each classifier is trained; the paper's number by default.
        on_epoch: Called after every epoch of every classifier.

    Returns:
        One dictionary per entry of `shots`, with the keys `shots`, `examples`, `top1` and `top5`.

    Raises:
        InputError: If a class has fewer examples than asked for.
    """
    n_classes = len(images.classes)
    x_test = image_features(trainer, images.x_test)
    y_test = torch.from_numpy(images.y_test).to(trainer.device)
    results = []
    for n in shots:
        rows = balanced_rows(images.y_train, n, seed)
        x = image_features(trainer, images.x_train[rows])
        y = torch.from_numpy(images.y_train[rows]).to(trainer.device)
        head = fit_probe(x, y, n_classes, seed, epochs, on_epoch)
        results.append({"shots": n, "examples": len(rows), **top_accuracies(head, x_test, y_test)})
    return results


def draw_tsne(
    trainer: PartialLabelTrainer, images: ImageSet, path: Path, *, most: int = 2000, seed: int = 0
) -> None:
    """Draw the features of at most `most` test images in two dimensions, one colour per class."""
    from matplotlib.figure import Figure
    from sklearn.manifold import TSNE

    figure = Figure(figsize=(6, 6), layout="constrained")
    rows = np.random.default_rng(seed).permutation(len(images.y_test))[:most]
    features = image_features(trainer, images.x_test[rows]).cpu().numpy()
    perplexity = min(30, max((len(rows) - 1) // 3, 1))
    tsne = TSNE(init="pca", random_state=seed, perplexity=perplexity)
    places = tsne.fit_transform(features)
    panel = figure.subplots()
    labels = images.y_test[rows]
    has_legend = len(images.classes) <= 20
    for c, name in enumerate(images.classes):
        points = places[labels == c]
        colour = f"C{c}" if len(images.classes) <= 10 else None
        panel.scatter(
            points[:, 0], points[:, 1], s=5, color=colour, label=name if has_legend else None
        )
    panel.set(xticks=[], yticks=[])
    if has_legend:
        figure.legend(loc="outside lower center", ncols=5, fontsize=8, markerscale=3)
    save_figure(figure, path)
