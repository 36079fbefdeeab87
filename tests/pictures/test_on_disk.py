"""Decoded pictures in a file that is mapped into memory."""

import numpy as np
import pytest
from PIL import Image

from ltpll.backbones import Preprocessing
from ltpll.pictures import on_disk
from ltpll.pictures.files import read_pictures
from ltpll.pictures.on_disk import rows_on_disk, stored_pictures
from support.refusals import refusal

PREPROCESSING = Preprocessing(12)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Twenty pictures, more than memory is said to hold."""
    monkeypatch.setattr(on_disk, "IN_MEMORY", 1000)
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


def test_pictures_on_disk_equal_those_in_memory(photos, tmp_path):
    found = stored_pictures(*photos, PREPROCESSING, tmp_path / "cache")
    expected = read_pictures(*photos, PREPROCESSING)
    assert isinstance(found.images, np.memmap)
    np.testing.assert_array_equal(found.images, expected.images)
    np.testing.assert_array_equal(found.kept, expected.kept)
    assert files_in(tmp_path / "cache") == []  # the file has no name


def test_pictures_that_cannot_be_read_stop_the_reading_or_are_left_out(photos, tmp_path):
    folder, names = photos
    (folder / names[4]).write_bytes(b"no picture")
    message = refusal(lambda: stored_pictures(folder, names, PREPROCESSING, tmp_path / "cache"))
    assert "'4.png'" in message
    assert "(row 5) is not in a supported format" in message
    assert files_in(tmp_path / "cache") == []
    found = stored_pictures(folder, names, PREPROCESSING, tmp_path / "cache", on_error="skip")
    assert (found.kept.tolist(), [path for path, _ in found.problems]) == (
        [i for i in range(20) if i != 4],
        ["4.png"],
    )
    np.testing.assert_array_equal(
        found.images, read_pictures(folder, names, PREPROCESSING, on_error="skip").images
    )


def test_a_full_disk_is_reported_before_anything_is_decoded(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(
        on_disk.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 100})()
    )
    message = refusal(lambda: stored_pictures(*photos, PREPROCESSING, tmp_path / "cache"))
    assert "Decoded pictures take 8.4 KiB, but the disk of" in message
    assert "has 100 bytes left" in message


def test_rows_of_a_mapped_array_are_copied_to_a_file_without_a_name(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6000, dtype=np.uint8).reshape(600, 10))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    rows = np.random.default_rng(0).permutation(600)[:400]
    copied = rows_on_disk(mapped, rows)
    assert isinstance(copied, np.memmap)
    np.testing.assert_array_equal(copied, mapped[rows])
    assert files_in(tmp_path) == ["x.npy"]
    np.testing.assert_array_equal(rows_on_disk(copied, np.arange(5)), mapped[rows[:5]])
    assert type(rows_on_disk(np.array(mapped), rows)) is np.ndarray
