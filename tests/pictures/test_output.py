"""Embeddings in a file: complete or not there at all, and resumed where they were interrupted."""

import csv
import io
import json
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest
from PIL import Image

from ltpll.backbones import Preprocessing
from ltpll.errors import BusyError
from ltpll.files import acquire_lock
from ltpll.pictures import output
from ltpll.pictures.embedding import embedded_blocks
from ltpll.pictures.files import Geometry, read_pictures
from ltpll.pictures.output import embed_pictures
from support.photos import SIDE, FakeEmbedder, fake_backbone, write_photos
from support.refusals import refusal


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    return folder, write_photos(folder, 100)


def embed(folder, paths, out, embedder=None, backbone=None, **more):
    embedder = embedder or FakeEmbedder()
    stream = lambda files: embedded_blocks(files, Geometry(SIDE, "crop"), embedder, workers=0)  # noqa: E731
    return embed_pictures(folder, paths, backbone or fake_backbone(), out, stream=stream, **more)


def rows_beside(out):
    with out.with_suffix(".rows.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_file_has_the_rows_in_order_and_a_table_says_which_is_which(photos, tmp_path):
    folder, paths = photos
    (folder / "bad.jpg").write_bytes(b"x")
    listed = [paths[5], "bad.jpg", *paths[:5]]
    out = tmp_path / "new" / "e.npy"
    written = embed(folder, listed, out, on_error="skip", ids=list("abcdefg"))
    assert written.kept == [0, 2, 3, 4, 5, 6]
    assert written.problems == [("bad.jpg", "is not in a supported format")]
    found = np.load(out)
    assert found.dtype == np.float32
    alone = [
        FakeEmbedder()(read_pictures(folder, [path], Preprocessing(SIDE, fit="crop")).images)[0]
        for path in [paths[5], *paths[:5]]
    ]
    np.testing.assert_array_equal(found, alone)
    rows = rows_beside(out)
    assert [row["row"] for row in rows] == ["0", "", "1", "2", "3", "4", "5"]
    assert [(row["id"], row["path"]) for row in rows] == list(zip("abcdefg", listed, strict=True))
    assert [row["problem"] for row in rows] == ["", "is not in a supported format", *[""] * 5]
    assert sorted(path.name for path in out.parent.iterdir() if not path.name.startswith(".")) == [
        "e.job.json",
        "e.npy",
        "e.rows.csv",
    ]


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


def test_an_interrupted_job_resumes_and_gives_the_same_file(photos, tmp_path):
    folder, paths = photos
    embed(folder, paths, tmp_path / "whole.npy")
    out = tmp_path / "e.npy"
    with pytest.raises(StoppedError):
        embed(folder, paths, out, stop_at(2))
    assert not out.exists()
    seen, embedder = [], FakeEmbedder()
    written = embed(folder, paths, out, embedder, on_progress=lambda *p: seen.append(p))
    assert embedder.n_pictures == 100 - 64
    assert seen[0] == (64, 100)
    assert seen[-1] == (100, 100)
    assert not written.earlier
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()
    again = embed(folder, paths, out, stop_at(1))
    assert again.earlier
    assert again.kept == list(range(100))


def test_a_job_that_fails_at_once_leaves_nothing_behind(photos, tmp_path):
    folder, paths = photos
    out = tmp_path / "new" / "e.npy"
    with pytest.raises(StoppedError):
        embed(folder, paths, out, stop_at(1))
    good = (folder / paths[0]).read_bytes()
    (folder / paths[0]).write_bytes(b"x")
    assert "None of the 1 pictures" in refusal(
        lambda: embed(folder, paths[:1], out, on_error="skip")
    )
    assert [path.name for path in out.parent.iterdir()] == [".e.npy.lock"]
    (folder / paths[0]).write_bytes(good)  # and what was wrong is not remembered
    assert embed(folder, paths[:1], out, on_error="skip").kept == [0]


def test_a_job_that_stopped_at_a_bad_picture_goes_on_behind_it(photos, tmp_path):
    folder, paths = photos
    good = (folder / paths[70]).read_bytes()
    (folder / paths[70]).write_bytes(good[:300])
    out = tmp_path / "e.npy"
    assert f"The picture {paths[70]!r}" in refusal(lambda: embed(folder, paths, out))
    assert not out.exists()
    (folder / paths[70]).write_bytes(good)
    embedder = FakeEmbedder()
    embed(folder, paths, out, embedder)
    assert embedder.n_pictures == 30
    embed(folder, paths, tmp_path / "whole.npy")
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_a_record_that_promises_more_than_the_file_holds_is_not_believed(photos, tmp_path):
    folder, paths = photos
    out = tmp_path / "e.npy"
    with pytest.raises(StoppedError):
        embed(folder, paths, out, stop_at(2))
    with (tmp_path / "e.npy.partial").open("r+b") as file:
        file.truncate(500)
    embedder = FakeEmbedder()
    embed(folder, paths, out, embedder)
    assert embedder.n_pictures == 100


def test_rows_after_the_last_record_are_written_again(photos, tmp_path, monkeypatch):
    """As after kill -9, when the file has rows that no record promises, perhaps only half of the last one."""
    folder, paths = photos
    out = tmp_path / "e.npy"
    with pytest.raises(StoppedError):
        embed(folder, paths, out, stop_at(2))
    with (tmp_path / "e.npy.partial").open("ab") as file:
        file.write(b"half a row")
    embed(folder, paths, out)
    embed(folder, paths, tmp_path / "whole.npy")
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_a_complete_file_of_another_job_is_refused_and_an_incomplete_one_is_begun_again(
    photos, tmp_path
):
    folder, paths = photos
    out = tmp_path / "e.npy"
    with pytest.raises(StoppedError):
        embed(folder, paths, out, stop_at(2))
    embedder = FakeEmbedder()
    embed(folder, paths[:90], out, embedder)
    assert embedder.n_pictures == 90
    before = out.read_bytes()
    assert "holds embeddings of other pictures" in refusal(lambda: embed(folder, paths, out))
    assert "holds embeddings with another backbone" in refusal(
        lambda: embed(folder, paths[:90], out, backbone=fake_backbone(1))
    )
    assert out.read_bytes() == before
    embed(folder, paths, out, fresh=True)
    assert len(np.load(out)) == 100
    (tmp_path / "foreign.npy").write_bytes(b"mine")
    for fresh in (False, True):  # not even then is a file deleted that may be another program's
        assert "no record says what is in it" in refusal(
            lambda fresh=fresh: embed(folder, paths, tmp_path / "foreign.npy", fresh=fresh)
        )
    assert (tmp_path / "foreign.npy").read_bytes() == b"mine"


def change(picture):
    """Other pixels in the same file."""
    Image.open(picture).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(picture)
    os.utime(
        picture, ns=(0, picture.stat().st_mtime_ns + 10**9)
    )  # clocks of file systems are coarse


def without_files_seen(record):
    """As version 0.2 wrote it."""
    record.write_text(
        json.dumps(
            {
                name: value
                for name, value in json.loads(record.read_text()).items()
                if name != "seen"
            }
        )
    )


@pytest.mark.parametrize("old", [False, True])
def test_a_complete_file_of_pictures_that_changed_is_neither_taken_nor_replaced(
    photos, tmp_path, old
):
    folder, paths = photos
    out = tmp_path / "e.npy"
    embed(folder, paths, out)
    if old:
        without_files_seen(tmp_path / "e.job.json")
    assert embed(folder, paths, out).earlier
    before = out.read_bytes()
    change(folder / paths[7])
    assert "e.npy holds embeddings of pictures whose files have changed since" in refusal(
        lambda: embed(folder, paths, out)
    )
    assert out.read_bytes() == before
    assert not embed(folder, paths, out, fresh=True).earlier
    assert np.flatnonzero((np.load(out) != np.load(io.BytesIO(before))).any(1)).tolist() == [7]


@pytest.mark.parametrize(
    ("changed", "old", "done"), [(7, False, 0), (7, True, 0), (90, False, 64), (None, True, 64)]
)
def test_an_interrupted_job_starts_again_if_a_picture_that_was_done_has_changed(
    photos, tmp_path, changed, old, done
):
    folder, paths = photos
    out = tmp_path / "e.npy"
    with pytest.raises(StoppedError):
        embed(folder, paths, out, stop_at(2))
    if old:
        without_files_seen(tmp_path / "e.job.json")
    if changed is not None:
        change(folder / paths[changed])
    embedder = FakeEmbedder()
    embed(folder, paths, out, embedder)
    assert embedder.n_pictures == 100 - done
    embed(folder, paths, tmp_path / "whole.npy")
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_calls_that_cannot_succeed_are_refused(photos, tmp_path):
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
    with acquire_lock(tmp_path / ".e.npy.lock"):
        assert "being written by another process" in refusal(
            lambda: embed(folder, paths, tmp_path / "e.npy"), BusyError
        )


def _slow_job(folder, paths, out, backbone):
    os.setsid()
    output.SAVE_SECONDS = 0
    embedder = FakeEmbedder(on_call=lambda: time.sleep(0.2))
    stream = lambda files: embedded_blocks(files, Geometry(SIDE, "crop"), embedder, workers=1)  # noqa: E731
    embed_pictures(folder, paths, backbone, out, stream=stream)


def test_a_killed_job_leaves_no_processes_and_resumes(photos, tmp_path):
    folder, paths = photos
    out, backbone = tmp_path / "e.npy", fake_backbone()
    job = multiprocessing.get_context("fork").Process(
        target=_slow_job, args=(folder, paths, out, backbone)
    )
    job.start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (tmp_path / "e.job.json").exists():
        time.sleep(0.01)
    os.kill(job.pid, signal.SIGKILL)
    job.join()
    assert not out.exists()
    while time.monotonic() < deadline and _group(job.pid):
        time.sleep(0.02)
    assert not _group(job.pid)
    embedder = FakeEmbedder()
    embed(folder, paths, out, embedder, backbone)
    assert 0 < embedder.n_pictures < 100
    embed(folder, paths, tmp_path / "whole.npy")
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()


def _group(number):
    """Whether processes of a group are alive."""
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True
