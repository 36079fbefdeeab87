"""PASCAL VOC 2007 as a partial-label set: crops of objects, with the classes in their image."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll_research.image_sets.archives import read_members
from ltpll_research.image_sets.prepared import ImageSet

_NAMES = """
aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike
person pottedplant sheep sofa train tvmonitor
"""
CLASSES = tuple(_NAMES.split())
SIDE = 128
TEST_PER_CLASS = 200

_MEMBER = re.compile(
    r"(?:^|/)VOC2007/"
    r"(Annotations/\w+\.xml|JPEGImages/\w+\.jpg|ImageSets/Main/(?:trainval|test)\.txt)$",
    re.ASCII,
)


class VocObject(NamedTuple):
    """An annotated object; `image` is the number of its image, such as 000012.

    Its box is left, top, right and bottom: VOC counts pixels from 1, and the last row and column
    are inside.
    """

    image: str
    label: int
    box: tuple[int, ...]


def read_voc2007(archives: Sequence[Path]) -> ImageSet:
    """Read VOC 2007, whose objects become training and test examples.

    Training examples are all objects, including difficult ones, of the trainval images that show at
    least two classes. Test examples are objects of all test images, 200 of each class, or as many
    as the smallest class has. Test images with a single class count too, since testing needs no
    candidates. Rows follow the numbers of the images, then the order of the annotation.
    """
    objects, lists = _read_annotations(archives)
    train: list[VocObject] = []
    sets: list[list[int]] = []
    for image in lists["trainval"]:
        present = sorted({item.label for item in objects[image]})
        if len(present) >= 2:
            train += objects[image]
            sets += [present] * len(objects[image])
    test = _balanced([item for image in lists["test"] for item in objects[image]])
    x_train, x_test = _read_crops(archives, (train, test))
    offsets = np.cumsum([0, *map(len, sets)])
    candidates = Candidates.from_flat(offsets, np.concatenate(sets), len(CLASSES), CLASSES)
    return ImageSet(
        "voc2007", x_train, _labels(train), x_test, _labels(test), CLASSES, None, candidates
    )


def _labels(objects: Sequence[VocObject]) -> npt.NDArray[np.int64]:
    return np.asarray([item.label for item in objects], dtype=np.int64)


def _balanced(objects: Sequence[VocObject]) -> list[VocObject]:
    labels = _labels(objects)
    n = min(TEST_PER_CLASS, int(np.bincount(labels, minlength=len(CLASSES)).min()))
    rng = np.random.default_rng(0)
    chosen = np.concatenate(
        [rng.permutation(np.flatnonzero(labels == c))[:n] for c in range(len(CLASSES))]
    )
    return [objects[i] for i in np.sort(chosen)]


# ---- annotations -----------------------------------------------------------------------------


def _read_annotations(
    archives: Sequence[Path],
) -> tuple[dict[str, list[VocObject]], dict[str, list[str]]]:
    """The objects of each image, and the sorted image numbers of each list."""

    def wanted(name: str) -> str | None:
        found = _MEMBER.search(name)
        return None if found is None or found[1].startswith("JPEG") else found[1]

    objects: dict[str, list[VocObject]] = {}
    lists: dict[str, list[str]] = {}
    for key, content in read_members(archives, wanted):
        name = Path(key).stem
        if key.startswith("Annotations"):
            objects[name] = read_annotation(content, name)
        else:
            lists[name] = sorted(set(content.decode().split()))
    return objects, lists


def read_annotation(content: bytes, image: str) -> list[VocObject]:
    """Read the objects of one annotation; the parts of a person are left out."""
    return [
        VocObject(image, CLASSES.index(element.findtext("name", "").strip()), _box(element))
        for element in ElementTree.fromstring(content).findall("object")
    ]


def _box(element: ElementTree.Element) -> tuple[int, ...]:
    sides = (element.findtext(f"bndbox/{side}", "") for side in ("xmin", "ymin", "xmax", "ymax"))
    return tuple(round(float(side)) for side in sides)


# ---- crops -----------------------------------------------------------------------------------


def _read_crops(
    archives: Sequence[Path], splits: Sequence[Sequence[VocObject]]
) -> list[npt.NDArray[np.uint8]]:
    """The crops of each split; every image is decoded once, in the order of the archive."""
    from PIL import Image

    bilinear = Image.Resampling.BILINEAR
    rows: dict[str, list[tuple[int, int]]] = {}
    for split, objects in enumerate(splits):
        for row, item in enumerate(objects):
            rows.setdefault(f"JPEGImages/{item.image}.jpg", []).append((split, row))

    def wanted(name: str) -> str | None:
        found = _MEMBER.search(name)
        return found[1] if found and found[1] in rows else None

    crops = [np.zeros((len(objects), SIDE, SIDE, 3), dtype=np.uint8) for objects in splits]
    for key, content in read_members(archives, wanted):
        with Image.open(io.BytesIO(content), formats=["JPEG"]) as opened:
            image = opened.convert("RGB")
        for split, row in rows[key]:
            left, top, right, bottom = splits[split][row].box
            inside = (max(left, 1) - 1, max(top, 1) - 1)
            part = image.crop((*inside, min(right, image.width), min(bottom, image.height)))
            # In the middle of a black square, scaled.
            side = max(part.size)
            square = Image.new("RGB", (side, side))
            square.paste(part, ((side - part.width) // 2, (side - part.height) // 2))
            crops[split][row] = np.asarray(square.resize((SIDE, SIDE), bilinear))
    return crops
