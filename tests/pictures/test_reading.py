"""Many pictures: in memory or in a file that is mapped into it, and the size that suits them."""

import numpy as np
import pytest
from PIL import Image

from ltpll.backbones import Preprocessing
from ltpll.pictures import reading
from ltpll.pictures.reading import read_pictures, rows_on_disk, suitable_side
from support.refusals import refusal

PREPROCESSING = Preprocessing(12)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Twenty pictures, more than memory is said to hold."""
    monkeypatch.setattr(reading, "IN_MEMORY", 1000)
    monkeypatch.setenv("LTPLL_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    names = [f"{i}.png" for i in range(20)]
    for name in names:
        Image.fromarray(rng.integers(0, 256, (9, 14, 3)).astype(np.uint8)).save(
            tmp_path / "photos" / name
        )
    return tmp_path / "photos", names


def files_in(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_pictures_on_disk_equal_those_in_memory(photos, tmp_path, monkeypatch):
    folder, names = photos
    (folder / names[4]).write_bytes(b"no picture")
    found = read_pictures(folder, names, PREPROCESSING, on_error="skip")
    assert isinstance(found.x, np.memmap)
    assert files_in(tmp_path / "cache") == []  # the file has no name
    monkeypatch.setattr(reading, "IN_MEMORY", 10**6)
    expected = read_pictures(folder, names, PREPROCESSING, on_error="skip")
    assert not isinstance(expected.x, np.memmap)
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.kept, [i for i in range(20) if i != 4])


def test_a_full_disk_is_reported_before_anything_is_decoded(photos, monkeypatch):
    monkeypatch.setattr(
        reading.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 100})()
    )
    message = refusal(lambda: read_pictures(*photos, PREPROCESSING))
    assert "Decoded pictures take 8.4 KiB, but the disk of" in message
    assert "has 100 bytes left" in message


def test_rows_of_a_mapped_array_are_copied_to_a_file_without_a_name(tmp_path, monkeypatch):
    monkeypatch.setenv("LTPLL_CACHE", str(tmp_path))
    np.save(tmp_path / "x.npy", np.arange(6000, dtype=np.uint8).reshape(600, 10))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    rows = np.random.default_rng(0).permutation(600)[:400]
    copied = rows_on_disk(mapped, rows)
    assert isinstance(copied, np.memmap)
    np.testing.assert_array_equal(copied, mapped[rows])
    assert files_in(tmp_path) == ["x.npy"]
    np.testing.assert_array_equal(rows_on_disk(copied, np.arange(5)), mapped[rows[:5]])
    assert type(rows_on_disk(np.array(mapped), rows)) is np.ndarray


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
