"""Embedding in a stream: the rows of a plain loop, whoever decodes, whatever is cached, and whatever cannot be read."""

import hashlib
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from ltpll.backbones import Preprocessing
from ltpll.pictures import decoding
from ltpll.pictures.cache import EmbeddingCache
from ltpll.pictures.embedding import chosen_workers, embedded_blocks, embedded_pictures
from ltpll.pictures.files import Geometry, read_pictures
from support.photos import SIDE, FakeEmbedder, fake_backbone, write_photos
from support.processes import environment_of_tests
from support.refusals import refusal


def plain_loop(folder, paths):
    """Every picture by itself."""
    return np.concatenate(
        [
            FakeEmbedder()(read_pictures(folder, [path], Preprocessing(SIDE, fit="crop")).images)
            for path in paths
        ]
    )


def stream_of(embed, workers=0, cache=None):
    return lambda files: embedded_blocks(
        files, Geometry(SIDE, "crop"), embed, workers=workers, cache=cache
    )


@pytest.fixture
def photos(tmp_path):
    return tmp_path, write_photos(tmp_path, 75)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_rows_are_those_of_a_plain_loop_and_problems_are_listed(photos, workers):
    folder, paths = photos
    (folder / "bad.jpg").write_bytes(b"no picture")
    listed = [*paths[:40], "none.jpg", *paths[40:], "bad.jpg"]
    seen = []
    found = embedded_pictures(
        folder,
        listed,
        fake_backbone(),
        on_error="skip",
        on_progress=lambda *p: seen.append(p),
        stream=stream_of(FakeEmbedder(), workers),
    )
    np.testing.assert_array_equal(found.features, plain_loop(folder, paths))
    assert found.features.dtype == np.float32
    assert found.kept.tolist() == [*range(40), *range(41, 76)]
    assert found.problems == [
        ("none.jpg", "does not exist"),
        ("bad.jpg", "is not in a supported format"),
    ]
    assert seen == [(64, 77), (77, 77)]


def test_by_default_the_backbone_embeds_with_its_own_preprocessing(photos, monkeypatch):
    folder, paths = photos
    monkeypatch.setattr(
        "ltpll.backbones.embedder._exported", lambda *_: None
    )  # exporting takes seconds
    backbone = fake_backbone()
    found = embedded_pictures(folder, paths[:10], backbone, device="cpu", cache=folder / "cache")
    pixels = torch.from_numpy(
        read_pictures(folder, paths[:10], backbone.preprocessing).images
    ).permute(0, 3, 1, 2)
    with torch.no_grad():
        expected = backbone(backbone.preprocessing.normalise(pixels)).numpy()
    np.testing.assert_allclose(found.features, expected, rtol=1e-4, atol=1e-5)
    # Another backbone does not find these in the cache.
    other = embedded_pictures(
        folder, paths[:10], fake_backbone(1), device="cpu", cache=folder / "cache"
    )
    assert abs(other.features - expected).max() > 0.1


def test_a_picture_that_cannot_be_read_stops_the_job_and_a_call_that_cannot_succeed_is_refused(
    photos,
):
    folder, paths = photos
    stream = stream_of(FakeEmbedder())
    message = refusal(
        lambda: embedded_pictures(folder, [*paths, "none.jpg"], fake_backbone(), stream=stream)
    )
    assert message.startswith("The picture 'none.jpg'")
    assert "(row 76) does not exist" in message
    assert "None of the 2" in refusal(
        lambda: embedded_pictures(
            folder, ["x", "y"], fake_backbone(), on_error="skip", stream=stream
        )
    )
    assert "leads out of" in refusal(
        lambda: embedded_pictures(folder, ["../x"], fake_backbone(), on_error="skip", stream=stream)
    )
    assert "on_error is 'ignore'" in refusal(
        lambda: embedded_pictures(folder, paths, fake_backbone(), on_error="ignore", stream=stream)
    )


def test_features_that_are_not_numbers_are_refused(photos):
    folder, paths = photos
    embed = FakeEmbedder(broken=35)
    assert f"infinite features for {paths[35]!r}" in refusal(
        lambda: embedded_pictures(folder, paths, fake_backbone(), stream=stream_of(embed))
    )


def test_a_process_that_dies_is_reported_and_the_others_end(photos, monkeypatch):
    folder, paths = photos
    started = []
    original = decoding._Worker.__init__

    def start(self, *arguments):
        original(self, *arguments)
        started.append(self.process)
        if len(started) == 2:
            os.kill(started[0].pid, signal.SIGKILL)

    monkeypatch.setattr(decoding._Worker, "__init__", start)
    message = refusal(
        lambda: embedded_pictures(
            folder, paths, fake_backbone(), stream=stream_of(FakeEmbedder(), workers=2)
        )
    )
    assert "ended with status -9" in message
    assert not any(process.is_alive() for process in started)


def test_a_script_without_a_guard_is_not_run_again_by_the_processes(photos):
    folder, paths = photos
    script = folder / "script.py"
    script.write_text(
        "import sys\nfrom ltpll.pictures.files import Geometry\nfrom ltpll.pictures.decoding import decoded_blocks\n"
        "print('once')\nfor block in decoded_blocks(sys.argv[1:], Geometry(8), block=4, workers=1):\n    print(block.outcomes)\n"
    )
    command = [sys.executable, str(script), str(folder / paths[0]), str(folder / "none.jpg")]
    found = subprocess.run(
        command, env=environment_of_tests(), capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines() == [
        "once",
        str([decoding.Outcome(), decoding.Outcome(problem="does not exist")]),
    ]
    assert not found.stderr


def test_processes_are_started_only_for_many_pictures():
    assert chosen_workers(None, 10) == 0
    assert chosen_workers(None, 10_000) >= 1
    assert chosen_workers(3, 10) == 3
    assert "workers is -1" in refusal(lambda: chosen_workers(-1, 10))


# ---- the cache --------------------------------------------------------------------------------------------------------


def test_cached_pictures_are_not_embedded_again_whatever_they_are_called(photos):
    folder, paths = photos
    cache = folder / "cache"
    first = embedded_pictures(
        folder,
        paths[:50],
        fake_backbone(),
        stream=stream_of(FakeEmbedder(), cache=EmbeddingCache(cache, 5)),
    )
    embed = FakeEmbedder()
    (folder / "renamed.jpg").write_bytes((folder / paths[3]).read_bytes())
    (folder / paths[7]).write_bytes(
        (folder / paths[60]).read_bytes()
    )  # another picture under a known name
    listed = [*paths, "renamed.jpg"]
    second = embedded_pictures(
        folder, listed, fake_backbone(), stream=stream_of(embed, cache=EmbeddingCache(cache, 5))
    )
    assert embed.n_pictures == 26  # 25 new ones, and the one that changed
    np.testing.assert_array_equal(second.features, plain_loop(folder, listed))
    np.testing.assert_array_equal(second.features[75], first.features[3])


def test_processes_that_decode_know_the_cached_pictures(photos, monkeypatch):
    folder, paths = photos
    cache = folder / "cache"
    expected = embedded_pictures(
        folder,
        paths,
        fake_backbone(),
        stream=stream_of(FakeEmbedder(), cache=EmbeddingCache(cache, 5)),
    ).features
    embed = FakeEmbedder()
    found = embedded_pictures(
        folder,
        paths,
        fake_backbone(),
        stream=stream_of(embed, workers=1, cache=EmbeddingCache(cache, 5)),
    ).features
    assert embed.n_pictures == 0
    np.testing.assert_array_equal(found, expected)


def digests(n, start=0):
    return [hashlib.sha256(str(start + i).encode()).digest() for i in range(n)]


def test_the_remains_of_an_interrupted_process_are_ignored_and_overwritten(tmp_path):
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    cache = EmbeddingCache(tmp_path, 3)
    cache.add(digests(4), rows)
    cache.flush()
    for name, size in (("rows-3.f32", 4 * 3 * 4 - 5), ("hashes.bin", 32 * 3 + 7)):
        with (tmp_path / name).open("r+b") as file:
            file.truncate(size)
    cache = EmbeddingCache(tmp_path, 3)
    assert len(cache) == 3
    cache.add(digests(2, start=10), -rows[:2])
    cache.flush()
    again = EmbeddingCache(tmp_path, 3)
    np.testing.assert_array_equal(
        again.rows([*digests(3), *digests(2, start=10)]), np.concatenate([rows[:3], -rows[:2]])
    )
    assert len(again) == 5


def test_two_processes_may_append_to_one_cache(tmp_path):
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    one, other = EmbeddingCache(tmp_path, 3), EmbeddingCache(tmp_path, 3)
    one.add(digests(2), rows[:2])
    other.add(digests(2, start=1), rows[2:])  # the second picture is the other's first
    one.flush()
    other.flush()
    found = EmbeddingCache(tmp_path, 3).rows(digests(3))
    np.testing.assert_array_equal(found[[0, 2]], rows[[0, 3]])
    assert any((found[1] == row).all() for row in rows[1:3])


def test_a_cache_that_cannot_be_written_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refusal(lambda: EmbeddingCache(tmp_path / "file" / "cache", 3))
