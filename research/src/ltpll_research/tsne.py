"""t-SNE pictures of the features that a finished run has learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ltpll.training.trainer import PartialLabelTrainer
from ltpll_research.image_sets.prepared import ImageSet
from ltpll_research.plotting import new_figure, save_figure
from ltpll_research.probe import image_features


def draw_tsne(
    trainer: PartialLabelTrainer, images: ImageSet, path: Path, *, most: int = 2000, seed: int = 0
) -> None:
    """Draw the features of at most `most` test images in two dimensions, one colour per class."""
    from sklearn.manifold import TSNE

    figure = new_figure(figsize=(6, 6), layout="constrained")
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
        panel.scatter(*points.T, s=5, color=colour, label=name if has_legend else None)
    panel.set(xticks=[], yticks=[])
    if has_legend:
        figure.legend(loc="outside lower center", ncols=5, fontsize=8, markerscale=3)
    save_figure(figure, path)
