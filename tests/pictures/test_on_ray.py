"""Embedding on a real local Ray: the same rows and problems as on this machine alone."""

import sys

import numpy as np
import pytest

from ltpll.pictures.embedding import embedded_blocks
from ltpll.pictures.files import Geometry
from ltpll.pictures.on_ray import ray_stream
from ltpll.pictures.output import embed_pictures
from support.photos import SIDE, FakeEmbedder, fake_backbone, write_photos
from support.refusals import refusal


def test_without_ray_the_launcher_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    paths = write_photos(tmp_path, 2)
    stream = ray_stream(fake_backbone())
    assert "pip install 'ltpll[ray]'" in refusal(
        lambda: embed_pictures(tmp_path, paths, fake_backbone(), tmp_path / "e.npy", stream=stream)
    )


@pytest.mark.reliability
def test_the_file_is_that_of_the_local_launcher_and_so_are_the_problems(tmp_path):
    ray = pytest.importorskip("ray")
    folder = tmp_path / "photos"
    folder.mkdir()
    paths = write_photos(folder, 600)
    (folder / paths[300]).write_bytes(b"x")
    (folder / paths[17]).unlink()
    backbone = fake_backbone()

    def written(name, stream):
        found = embed_pictures(
            folder, paths, backbone, tmp_path / name, on_error="skip", stream=stream
        )
        return np.load(tmp_path / name), found

    local, by_local = written(
        "local.npy",
        lambda files: embedded_blocks(files, Geometry(SIDE, "crop"), FakeEmbedder(), workers=0),
    )
    ray.init(
        num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False, logging_level="error"
    )
    try:
        on_ray, by_ray = written(
            "ray.npy", ray_stream(backbone, device="cpu", workers=1, embedder=FakeEmbedder)
        )
        message = refusal(
            lambda: embed_pictures(
                folder,
                paths,
                backbone,
                tmp_path / "x.npy",
                stream=ray_stream(backbone, device="cuda"),
            )
        )
        assert ray.is_initialized()  # it was started before, so it is not ended
    finally:
        ray.shutdown()
    np.testing.assert_allclose(on_ray, local, rtol=1e-6)
    assert by_ray == by_local
    assert [path for path, _ in by_ray.problems] == [paths[17], paths[300]]
    assert "Ray has no GPU" in message
