"""Embedding in a stream: the rows of a plain loop, whatever is cached or cannot be read."""

import hashlib

import numpy as np
import pytest
import torch

from ltpll.backbones import Preprocessing
from ltpll.pictures.cache import EmbeddingCache
from ltpll.pictures.embedding import embedded_pictures
from ltpll.pictures.reading import read_pictures
from support.photos import SIDE, FakeEmbedder, fake_backbone, write_photos
from support.refusals import refusal


def plain_loop(folder, paths):
    """Every picture by itself."""
    how = Preprocessing(SIDE, fit="crop")
    alone = [FakeEmbedder()(read_pictures(folder, [path], how).x) for path in paths]
    return np.concatenate(alone)


@pytest.fixture
def photos(tmp_path):
    return tmp_path, write_photos(tmp_path, 75)


@pytest.fixture
def embed(monkeypatch, tmp_path):
    """`embedded_pictures` with another embedder."""

    def embed(folder, paths, embedder=None, **how):
        chosen = embedder or FakeEmbedder()
        monkeypatch.setattr("ltpll.backbones.embedder.Embedder", lambda *_, **__: chosen)
        return embedded_pictures(folder, paths, fake_backbone(), cache=tmp_path / "cache", **how)

    return embed


def test_the_rows_are_those_of_a_plain_loop_and_problems_are_listed(photos, embed):
    folder, paths = photos
    (folder / "bad.jpg").write_bytes(b"no picture")
    listed = [*paths[:40], "none.jpg", *paths[40:], "bad.jpg"]
    seen = []
    found = embed(folder, listed, on_error="skip", on_progress=lambda *p: seen.append(p))
    np.testing.assert_array_equal(found.x, plain_loop(folder, paths))
    assert found.x.dtype == np.float32
    assert found.kept.tolist() == [*range(40), *range(41, 76)]
    assert found.problems == [
        ("none.jpg", "does not exist"),
        ("bad.jpg", "is not in a supported format"),
    ]
    assert seen == [(64, 77), (77, 77)]


def test_by_default_the_backbone_embeds_with_its_own_preprocessing(photos, monkeypatch):
    folder, paths = photos
    # Exporting takes seconds.
    monkeypatch.setattr("ltpll.backbones.embedder._exported", lambda *_: None)
    backbone, how = fake_backbone(), {"device": "cpu", "cache": folder / "cache"}
    found = embedded_pictures(folder, paths[:10], backbone, **how)
    pixels = read_pictures(folder, paths[:10], backbone.preprocessing).x
    with torch.no_grad():
        pixels = torch.from_numpy(pixels).permute(0, 3, 1, 2)
        expected = backbone(backbone.preprocessing.normalise(pixels)).numpy()
    np.testing.assert_allclose(found.x, expected, rtol=1e-4, atol=1e-5)
    # Another backbone does not find these in the cache.
    other = embedded_pictures(folder, paths[:10], fake_backbone(1), **how)
    assert abs(other.x - expected).max() > 0.1


def test_a_picture_that_cannot_be_read_stops_the_job_and_a_call_that_cannot_succeed_is_refused(
    photos, embed
):
    folder, paths = photos
    message = refusal(lambda: embed(folder, [*paths, "none.jpg"]))
    assert message.startswith("The picture 'none.jpg'")
    assert "(row 76) does not exist" in message
    assert "None of the 2" in refusal(lambda: embed(folder, ["x", "y"], on_error="skip"))
    assert "leads out of" in refusal(lambda: embed(folder, ["../x"], on_error="skip"))
    assert "on_error is 'ignore'" in refusal(lambda: embed(folder, paths, on_error="ignore"))


def test_features_that_are_not_numbers_are_refused(photos, embed):
    folder, paths = photos
    assert f"infinite features for {paths[35]!r}" in refusal(
        lambda: embed(folder, paths, FakeEmbedder(broken=35))
    )


# ---- the cache -----------------------------------------------------------------------------------


def test_cached_pictures_are_not_embedded_again_whatever_they_are_called(photos, embed):
    folder, paths = photos
    first = embed(folder, paths[:50])
    (folder / "renamed.jpg").write_bytes((folder / paths[3]).read_bytes())
    # Another picture under a known name.
    (folder / paths[7]).write_bytes((folder / paths[60]).read_bytes())
    listed, embedder = [*paths, "renamed.jpg"], FakeEmbedder()
    second = embed(folder, listed, embedder)
    assert embedder.n_pictures == 26  # 25 new ones, and the one that changed
    np.testing.assert_array_equal(second.x, plain_loop(folder, listed))
    np.testing.assert_array_equal(second.x[75], first.x[3])


def digests(n, start=0):
    return [hashlib.sha256(str(start + i).encode()).digest() for i in range(n)]


def test_two_processes_may_add_to_one_cache(tmp_path):
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    one, other = EmbeddingCache(tmp_path, 3), EmbeddingCache(tmp_path, 3)
    one.store_features(digests(2), rows[:2])
    other.store_features(digests(2, start=1), rows[2:])  # the second picture is the other's first
    again = EmbeddingCache(tmp_path, 3)
    assert all(digest in again for digest in digests(3))
    np.testing.assert_array_equal(again.stored_features(digests(3)), rows[[0, 1, 3]])


def test_a_cache_that_cannot_be_used_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refusal(lambda: EmbeddingCache(tmp_path / "file" / "cache", 3))
    (tmp_path / "embeddings.sqlite").write_bytes(b"no database" * 100)
    assert "cannot be used (file is not a database): set LTPLL_CACHE" in refusal(
        lambda: EmbeddingCache(tmp_path, 3)
    )
