"""Small photos, and a network that takes no time."""

import numpy as np
import torch
from PIL import Image

from ltpll.backbones import Backbone, Preprocessing

SIDE = 8


class FakeEmbedder:
    """Five numbers per picture that depend on its pixels; `broken` is the number of a picture for
    which one of them is NaN.
    """

    n_features, batch_size = 5, 16

    def __init__(self, *_, broken=None, on_call=lambda: None):
        self.n_pictures, self.broken, self.on_call = 0, broken, on_call

    def __call__(self, pictures):
        self.on_call()
        x = pictures.reshape(len(pictures), -1).astype(np.float64) / 255
        features = np.stack([x.mean(1), x.std(1), x[:, 0], x[:, 50], x[:, -1]], 1).astype(
            np.float32
        )
        if self.broken is not None and self.n_pictures <= self.broken < self.n_pictures + len(x):
            features[self.broken - self.n_pictures, 2] = np.nan
        self.n_pictures += len(x)
        return features


def fake_backbone(seed=0):
    torch.manual_seed(seed)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIDE * SIDE, 5))
    return Backbone(network, Preprocessing(SIDE, fit="crop"), name="fake")


def write_photos(folder, n, size=(12, 10)):
    """Different noise in every picture; the paths."""
    rng = np.random.default_rng(0)
    for i in range(n):
        Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(
            folder / f"{i:03d}.jpg"
        )
    return [f"{i:03d}.jpg" for i in range(n)]
