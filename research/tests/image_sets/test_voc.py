"""VOC 2007 becomes crops, as an independent computation gives them, with the image's classes."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
from PIL import Image

from ltpll_research.image_sets import voc
from ltpll_research.image_sets.voc import CLASSES, read_annotation, read_voc2007
from support.image_archives import TEST, TRAIN, annotation, jpeg, tar_bytes, voc_files

# The test images show three objects of every class except sheep: two, which are alone in their
# image.


@pytest.fixture
def write(tmp_path):
    def write(archives):
        paths = []
        for i, files in enumerate(archives):
            paths.append(tmp_path / f"voc{i}.tar")
            paths[-1].write_bytes(tar_bytes(files))
        return paths

    return write


def expected_crop(image, box):
    """The crop computed with numpy; only decoding and resizing use Pillow."""
    x1, y1, x2, y2 = box
    pixels = np.asarray(Image.open(io.BytesIO(jpeg(120, 90, int(image)))).convert("RGB"))[
        y1 - 1 : y2, x1 - 1 : x2
    ]
    height, width, _ = pixels.shape
    side = max(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    padded = np.pad(pixels, [(top, side - height - top), (left, side - width - left), (0, 0)])
    return np.asarray(Image.fromarray(padded).resize((128, 128), Image.Resampling.BILINEAR))


def test_training_crops_are_all_objects_of_images_with_two_classes_in_the_order_of_the_images(
    write,
):
    image_set = read_voc2007(write(voc_files()))
    expected = [
        (image, name, box) for image in ("000007", "000012") for name, box, _ in TRAIN[image]
    ]
    assert [image_set.classes[y] for y in image_set.y_train] == [name for _, name, _ in expected]
    assert image_set.x_train.shape == (5, 128, 128, 3)
    for crop, (image, _, box) in zip(image_set.x_train, expected, strict=True):
        assert np.array_equal(crop, expected_crop(image, box))


def test_candidates_are_the_classes_of_the_image(write):
    image_set = read_voc2007(write(voc_files()))
    names = [{CLASSES[label] for label in image_set.candidates.row(i)} for i in range(5)]
    assert names == [{"car", "bus"}] * 2 + [{"person", "dog"}] * 3
    assert image_set.candidates.classes == CLASSES


def test_the_test_set_is_balanced_by_its_smallest_class_and_made_of_objects_of_the_test_images(
    write,
):
    image_set = read_voc2007(write(voc_files()))
    assert np.bincount(image_set.y_test, minlength=20).tolist() == [2] * 20
    possible = {
        (CLASSES.index(name), expected_crop(image, box).tobytes())
        for image, things in TEST.items()
        for name, box, _ in things
    }
    crops = [
        (y, crop.tobytes())
        for y, crop in zip(image_set.y_test.tolist(), image_set.x_test, strict=True)
    ]
    assert set(crops) <= possible
    assert len(set(crops)) == 40


def test_the_size_of_the_test_set_is_limited(write, monkeypatch):
    monkeypatch.setattr(voc, "TEST_PER_CLASS", 1)
    paths = write(voc_files())
    assert np.bincount(read_voc2007(paths).y_test).tolist() == [1] * 20


def test_the_draw_does_not_depend_on_the_order_of_members_and_archives(write):
    files = voc_files()
    first = read_voc2007(write(files))
    shuffled = [
        dict(random.Random(1).sample(list(part.items()), len(part))) for part in reversed(files)
    ]
    second = read_voc2007(write(shuffled))
    for a, b in zip(first[1:5], second[1:5], strict=True):
        assert np.array_equal(a, b)
    assert [first.candidates.row(i) for i in range(5)] == [
        second.candidates.row(i) for i in range(5)
    ]


def test_one_archive_may_hold_both_parts(write):
    train, test = voc_files()
    assert len(read_voc2007(write([train | test])).y_train) == 5


def test_a_box_that_reaches_beyond_the_image_is_cut_at_its_edge(write):
    train = {"000007": [("car", (0, -3, 50, 90), False), ("bus", (100, 50, 130, 95), False)]}
    image_set = read_voc2007(write(voc_files(train)))
    assert np.array_equal(image_set.x_train[0], expected_crop("000007", (1, 1, 50, 90)))
    assert np.array_equal(image_set.x_train[1], expected_crop("000007", (100, 50, 120, 90)))


def test_boxes_with_fractions_are_rounded():
    things = read_annotation(annotation([("dog", ("4.6", "1", "9.2", "7.0"), False)]), "000001")
    assert things[0].box == (5, 1, 9, 7)
