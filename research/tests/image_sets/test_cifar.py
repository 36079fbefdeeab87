"""The binary CIFAR archives are read pixel by pixel, and damage is reported."""

from __future__ import annotations

import numpy as np
import pytest

from ltpll_research.image_sets.cifar import read_cifar10, read_cifar100
from support.image_archives import NAMES10, SUPERCLASS, cifar10_files, cifar100_files, tar_bytes
from support.refusals import refusal


@pytest.fixture
def write(tmp_path):
    def write(files):
        path = tmp_path / "cifar.tar.gz"
        path.write_bytes(tar_bytes(files, packed=True))
        return [path]

    return write


def assert_same_images(images, planes):
    assert images.dtype == np.uint8
    assert images.shape == (len(planes), 32, 32, 3)
    for image, (red, green, blue) in zip(images, planes, strict=True):
        assert np.array_equal(image[:, :, 0], red)
        assert np.array_equal(image[:, :, 1], green)
        assert np.array_equal(image[:, :, 2], blue)


def test_cifar10_is_pixel_for_pixel_what_was_published_in_the_order_of_its_batches(write):
    files, (y_train, planes_train), (y_test, planes_test) = cifar10_files()
    image_set = read_cifar10(write(files))
    assert image_set.name == "cifar10"
    assert image_set.classes == tuple(NAMES10)
    assert image_set.y_train.dtype == image_set.y_test.dtype == np.int64
    assert image_set.y_train.tolist() == y_train.tolist()
    assert image_set.y_test.tolist() == y_test.tolist()
    assert_same_images(image_set.x_train, planes_train)
    assert_same_images(image_set.x_test, planes_test)
    assert image_set.superclass is None
    assert image_set.candidates is None


def test_the_first_pixel_of_a_record_is_the_top_left_one_and_the_second_is_its_right_neighbour(
    write,
):
    files, *_ = cifar10_files()
    pixels = np.zeros(3072, dtype=np.uint8)
    pixels[[0, 1, 32, 1024, 2048]] = [10, 20, 30, 40, 50]
    files["cifar-10-batches-bin/test_batch.bin"] = b"\x07" + pixels.tobytes()
    image = read_cifar10(write(files)).x_test[0]
    assert image[0, 0].tolist() == [10, 40, 50]
    assert image[0, 1].tolist() == [20, 0, 0]
    assert image[1, 0].tolist() == [30, 0, 0]


def test_cifar100_is_pixel_for_pixel_what_was_published_with_its_superclasses(write):
    files, (y_train, planes_train), (y_test, planes_test) = cifar100_files()
    image_set = read_cifar100(write(files))
    assert image_set.name == "cifar100"
    assert image_set.classes == tuple(f"fine_{i}" for i in range(100))
    assert image_set.superclasses == tuple(f"coarse {i}" for i in range(20))
    assert image_set.superclass.tolist() == SUPERCLASS.tolist()
    assert image_set.superclass.dtype == np.int64
    assert image_set.y_train.tolist() == y_train.tolist()
    assert image_set.y_test.tolist() == y_test.tolist()
    assert_same_images(image_set.x_train, planes_train)
    assert_same_images(image_set.x_test, planes_test)


@pytest.mark.parametrize("member", ["data_batch_4.bin", "test_batch.bin", "batches.meta.txt"])
def test_a_missing_member_is_named(write, member):
    files, *_ = cifar10_files()
    del files[f"cifar-10-batches-bin/{member}"]
    paths = write(files)
    assert f"There is no {member} in {paths[0]}" in refusal(lambda: read_cifar10(paths))


def test_the_archive_of_the_other_cifar_set_is_refused(write):
    assert "There is no data_batch_1.bin" in refusal(
        lambda: read_cifar10(write(cifar100_files()[0]))
    )
    assert "There is no train.bin" in refusal(lambda: read_cifar100(write(cifar10_files()[0])))


@pytest.mark.parametrize(
    ("member", "change", "fragment"),
    [
        (
            "data_batch_2.bin",
            lambda old: old[:-1],
            "data_batch_2.bin does not hold records of 3073 bytes with labels below 10",
        ),
        ("test_batch.bin", lambda old: b"", "test_batch.bin does not hold records"),
        (
            "test_batch.bin",
            lambda old: old[:3073] + b"\x0a" + old[3074:],
            "test_batch.bin does not hold records",
        ),
        ("batches.meta.txt", lambda old: b"cat\ndog\n", "does not have 10 distinct names"),
        (
            "batches.meta.txt",
            lambda old: old.replace(b"dog", b"cat"),
            "does not have 10 distinct names",
        ),
        ("batches.meta.txt", lambda old: b"\xff\xfe", "does not have 10 distinct names"),
    ],
)
def test_damage_to_cifar10_is_reported(write, member, change, fragment):
    files, *_ = cifar10_files()
    files[f"cifar-10-batches-bin/{member}"] = change(files[f"cifar-10-batches-bin/{member}"])
    assert fragment in refusal(lambda: read_cifar10(write(files)))


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        (lambda old: bytes([(old[0] + 1) % 20]) + old[1:], "exactly one superclass"),
        (
            lambda old: bytes([20]) + old[1:],
            "with labels below 20 and 100",
        ),
        (
            lambda old: old[:1] + bytes([100]) + old[2:],
            "with labels below 20 and 100",
        ),
        (lambda old: old + b"\0", "does not hold records of 3074 bytes"),
    ],
)
def test_damage_to_cifar100_is_reported(write, change, fragment):
    files, *_ = cifar100_files()
    files["cifar-100-binary/train.bin"] = change(files["cifar-100-binary/train.bin"])
    assert fragment in refusal(lambda: read_cifar100(write(files)))


def test_a_class_of_cifar100_without_images_has_no_superclass_and_is_refused(write):
    files, *_ = cifar100_files()
    for split in ("train", "test"):
        rows = np.frombuffer(files[f"cifar-100-binary/{split}.bin"], dtype=np.uint8).reshape(
            -1, 3074
        )
        files[f"cifar-100-binary/{split}.bin"] = rows[rows[:, 1] != 42].tobytes()
    assert "exactly one superclass" in refusal(lambda: read_cifar100(write(files)))
