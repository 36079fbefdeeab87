"""Likely labels: the probabilities of a small network that was trained on true labels, cached."""

from __future__ import annotations

import hashlib
import math
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from ltpll.candidates import Candidates
from ltpll.files import cache_folder, write_when_complete
from ltpll.methods import PRODEN
from ltpll.models import build_model
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.views import ImageViews

STEPS, EPOCHS, WIDTH, BATCH = 500, 10, 16, 128  # the least number of steps and of epochs
RECIPE = f"small-cnn {WIDTH}, {EPOCHS} epochs, {STEPS} steps of {BATCH}, lr 0.05, crops, seed 0"


def likely_labels(
    x: npt.NDArray[np.uint8], y: npt.NDArray[np.int64], n_classes: int, device: str = "auto"
) -> npt.NDArray[np.float32]:
    """The probability of each class for each image, for `instance_candidates`.

    The network is trained once for the same images and labels; the result is kept in the cache
    folder (LTPLL_CACHE), under a hash of them. Another device gives slightly other figures, so
    copy the file where several machines are to draw the same sets.

    Returns:
        (N, C) probabilities for the images x, (N, H, W, 3), and their true labels y.
    """
    digest = hashlib.sha256(f"{RECIPE} {x.shape} {n_classes}".encode())
    for array in (x, y):
        digest.update(np.ascontiguousarray(array).data)
    path = cache_folder("LTPLL_CACHE") / "likely-labels" / f"{digest.hexdigest()[:16]}.npy"
    if path.is_file():
        kept: npt.NDArray[np.float32] = np.load(path, allow_pickle=False)
        if kept.shape == (len(x), n_classes):
            return kept
    images = torch.from_numpy(np.ascontiguousarray(x)).permute(0, 3, 1, 2)
    mean, std = (tuple((f(x, axis=(0, 1, 2)) / 255).tolist()) for f in (np.mean, np.std))
    batch = min(BATCH, len(x))
    trainer = PartialLabelTrainer(
        build_model("small-cnn", 0, n_classes=n_classes, n_channels=3, width=WIDTH),
        PRODEN(),  # cross-entropy, where every set has one label
        views=ImageViews("crop", mean, std),
        epochs=max(EPOCHS, math.ceil(STEPS / (len(x) // batch))),
        batch_size=batch,
        lr=0.05,
        device=device,
    )
    trainer.fit(images, Candidates.from_flat(np.arange(len(y) + 1), y, n_classes))
    found = trainer.outputs(images).logits[0].float().softmax(1).cpu().numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_when_complete(path, partial(np.save, arr=found, allow_pickle=False))
    return found
