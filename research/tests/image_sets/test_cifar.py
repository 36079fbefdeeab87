"""The binary CIFAR archives are read pixel by pixel."""

from __future__ import annotations

import numpy as np
import pytest

from ltpll_research.image_sets.cifar import read_cifar10, read_cifar100
from support.image_archives import NAMES10, SUPERCLASS, cifar10_files, cifar100_files, tar_bytes


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
