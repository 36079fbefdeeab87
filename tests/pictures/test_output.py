"""Embeddings in a file: complete or not there at all, and resumed where they were interrupted."""

import csv
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest

from ltpll.backbones import Preprocessing
from ltpll.pictures.embedding import embedded_pictures
from ltpll.pictures.output import read_picture_names
from ltpll.pictures.reading import read_pictures
from support.photos import SIDE, FakeEmbedder, fake_backbone, write_photos
from support.refusals import refusal


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    return folder, write_photos(folder, 100)


@pytest.fixture
def embed(monkeypatch, tmp_path):
    """`embedded_pictures` to a file with another embedder."""

    def embed(folder, paths, out, embedder=None, cache="cache", **how):
        chosen = embedder or FakeEmbedder()
        monkeypatch.setattr("ltpll.backbones.embedder.Embedder", lambda *_, **__: chosen)
        how |= {"cache": tmp_path / cache, "out": out}
        return embedded_pictures(folder, paths, fake_backbone(), **how)

    return embed


def rows_beside(out):
    with out.with_suffix(".rows.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_file_has_the_rows_in_order_and_a_table_says_which_is_which(photos, tmp_path, embed):
    folder, paths = photos
    (folder / "bad.jpg").write_bytes(b"x")
    listed = [paths[5], "bad.jpg", *paths[:5]]
    out = tmp_path / "new" / "e.npy"
    written = embed(folder, listed, out, on_error="skip")
    assert written.kept.tolist() == [0, 2, 3, 4, 5, 6]
    assert written.problems == [("bad.jpg", "is not in a supported format")]
    found = np.load(out)
    assert found.dtype == np.float32
    how = Preprocessing(SIDE, fit="crop")
    readable = [paths[5], *paths[:5]]
    alone = [FakeEmbedder()(read_pictures(folder, [path], how).x)[0] for path in readable]
    np.testing.assert_array_equal(found, alone)
    np.testing.assert_array_equal(found, written.x)
    rows = rows_beside(out)
    assert [row["row"] for row in rows] == ["0", "", "1", "2", "3", "4", "5"]
    assert [row["path"] for row in rows] == listed
    assert [row["problem"] for row in rows] == ["", "is not in a supported format", *[""] * 5]
    assert sorted(path.name for path in out.parent.iterdir()) == ["e.npy", "e.rows.csv"]
    assert read_picture_names(out, 6) == {"path": readable}
    assert "does not name the 7 rows of e.npy" in refusal(lambda: read_picture_names(out, 7))


def test_rows_that_version_02_wrote_are_read_with_their_ids_in_any_order(tmp_path):
    text = "row,id,path,problem\n1,b,b.jpg,\n,c,c.jpg,is empty\n0,a,a.jpg,\n"
    (tmp_path / "e.rows.csv").write_text(text)
    assert read_picture_names(tmp_path / "e.npy", 2) == {
        "id": ["a", "b"],
        "path": ["a.jpg", "b.jpg"],
    }
    (tmp_path / "e.rows.csv").write_text("a,b\n1,2\n")  # another program's
    assert read_picture_names(tmp_path / "e.npy", 2) == {}


class StoppedError(Exception):
    pass


def stop_at(call):
    """An embedder that fails at its n-th call."""
    calls = []

    def on_call():
        calls.append(1)
        if len(calls) == call:
            raise StoppedError

    return FakeEmbedder(on_call=on_call)


def test_an_interrupted_job_resumes_and_gives_the_same_file(photos, tmp_path, embed):
    folder, paths = photos
    embed(folder, paths, tmp_path / "whole.npy", cache="other")
    out = tmp_path / "e.npy"
    with pytest.raises(StoppedError):
        embed(folder, paths, out, stop_at(2))
    assert not list(tmp_path.glob("*e.npy*.tmp"))
    assert not out.exists()
    seen, embedder = [], FakeEmbedder()
    embed(folder, paths, out, embedder, on_progress=lambda *p: seen.append(p))
    assert embedder.n_pictures == 100 - 64
    assert seen == [(64, 100), (100, 100)]
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_a_finished_file_is_replaced_only_when_the_new_one_is_complete(photos, tmp_path, embed):
    folder, paths = photos
    out = tmp_path / "e.npy"
    embed(folder, paths[:10], out)
    before = out.read_bytes()
    with pytest.raises(StoppedError):
        embed(folder, paths, out, stop_at(1))
    assert out.read_bytes() == before
    embed(folder, paths, out)
    assert len(np.load(out)) == len(rows_beside(out)) == 100


def test_calls_that_cannot_succeed_are_refused(photos, tmp_path, embed):
    folder, paths = photos
    assert "must end in .npy" in refusal(lambda: embed(folder, paths, tmp_path / "e.txt"))
    (tmp_path / "d.npy").mkdir()
    assert "is a folder" in refusal(lambda: embed(folder, paths, tmp_path / "d.npy"))
    assert "no pictures to embed" in refusal(lambda: embed(folder, [], tmp_path / "e.npy"))
    assert "cannot be written" in refusal(lambda: embed(folder, paths, folder / paths[0] / "e.npy"))
    assert "None of the 2 pictures" in refusal(
        lambda: embed(folder, ["x", "y"], tmp_path / "e.npy", on_error="skip")
    )
    assert not (tmp_path / "e.npy").exists()


def test_a_killed_job_resumes(photos, tmp_path, embed):
    folder, paths = photos
    out, calls = tmp_path / "e.npy", multiprocessing.get_context("fork").Value("i", 0)

    def slow():
        calls.value += 1
        time.sleep(60 if calls.value == 2 else 0)

    def job():
        embed(folder, paths, out, FakeEmbedder(on_call=slow))

    process = multiprocessing.get_context("fork").Process(target=job)
    process.start()
    while calls.value < 2:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not out.exists()
    embedder = FakeEmbedder()
    embed(folder, paths, out, embedder)
    assert embedder.n_pictures == 36
    embed(folder, paths, tmp_path / "whole.npy", cache="other")
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert not list(tmp_path.glob(".e.npy*"))
