"""PASCAL VOC 2007 as a partial-label set: crops of objects, with the classes in their image."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.errors import InputError, first_line, shown
from ltpll.validation import whole_number
from ltpll_research.image_sets.archives import missing_member, read_members
from ltpll_research.image_sets.prepared import ImageSet

_NAMES = """
aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike
person pottedplant sheep sofa train tvmonitor
"""
CLASSES = tuple(_NAMES.split())
SIDE = 128
ANNOTATION_LIMIT = 1 << 18
IMAGE_LIMIT = 16 << 20

_MEMBER = re.compile(
    r"(?:^|/)VOC2007/"
    r"(Annotations/\w+\.xml|JPEGImages/\w+\.jpg|ImageSets/Main/(?:trainval|test)\.txt)$",
    re.ASCII,
)


class BoundingBox(NamedTuple):
    """The box of an object; VOC counts pixels from 1, and the last row and column are inside."""

    left: int
    top: int
    right: int
    bottom: int


class VocObject(NamedTuple):
    """An annotated object; `image` is the number of its image, such as 000012."""

    image: str
    label: int
    box: BoundingBox


def read_voc2007(archives: Sequence[Path], *, per_class: int = 200, seed: int = 0) -> ImageSet:
    """Read VOC 2007, whose objects become training and test examples.

    Training examples are all objects, including difficult ones, of the trainval images that show at
    least two classes. Test examples are objects of all test images, `per_class` of each class, or
    as many as the smallest class has. Test images with a single class count too, since testing
    needs no candidates. Rows follow the numbers of the images, then the order of the annotation.
    """
    whole_number(per_class, 1, "per_class")
    objects, lists = _read_annotations(archives)
    train: list[VocObject] = []
    sets: list[list[int]] = []
    for image in lists["trainval"]:
        present = sorted({item.label for item in objects[image]})
        if len(present) >= 2:
            train += objects[image]
            sets += [present] * len(objects[image])
    if not train:
        raise InputError("No training image shows two classes: download the archive again.")
    test = _balanced([item for image in lists["test"] for item in objects[image]], per_class, seed)
    x_train, x_test = _read_crops(archives, (train, test))
    numbers = np.asarray([label for present in sets for label in present], dtype=np.int64)
    offsets = np.cumsum([0, *(len(present) for present in sets)])
    candidates = Candidates.from_flat(offsets, numbers, len(CLASSES), CLASSES)
    return ImageSet(
        "voc2007", x_train, _labels(train), x_test, _labels(test), CLASSES, None, candidates
    )


def _labels(objects: Sequence[VocObject]) -> npt.NDArray[np.int64]:
    return np.asarray([item.label for item in objects], dtype=np.int64)


def _balanced(objects: Sequence[VocObject], per_class: int, seed: int) -> list[VocObject]:
    labels = _labels(objects)
    counts = np.bincount(labels, minlength=len(CLASSES))
    n = min(per_class, int(counts.min()))
    if n == 0:
        name = CLASSES[int(counts.argmin())]
        raise InputError(f"No test image shows the class {name!r}: download the archive again.")
    rng = np.random.default_rng(seed)
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
    for key, content in read_members(archives, wanted, limit=ANNOTATION_LIMIT):
        name = Path(key).stem
        if key.startswith("Annotations"):
            objects[name] = read_annotation(content, name)
        else:
            lists[name] = sorted(set(content.decode("ascii", "replace").split()))
    for name in ("trainval", "test"):
        if name not in lists:
            raise missing_member(archives, f"ImageSets/Main/{name}.txt")
        for image in lists[name]:
            if image not in objects:
                raise missing_member(archives, f"Annotations/{image}.xml")
    return objects, lists


def read_annotation(content: bytes, image: str) -> list[VocObject]:
    """Read the objects of one annotation; the parts of a person are left out."""
    try:
        # Decoded first, so that no declared encoding can hide a declaration from the check.
        text = content.decode()
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            raise ValueError("it declares entities")
        objects = ElementTree.fromstring(text).findall("object")
        return [VocObject(image, _label(element), _box(element)) for element in objects]
    except (ElementTree.ParseError, ValueError, OverflowError) as error:
        raise InputError(
            f"Annotations/{image}.xml cannot be read ({first_line(error)}): download the archive "
            "again."
        ) from None


def _label(element: ElementTree.Element) -> int:
    name = (element.findtext("name") or "").strip()
    if name not in CLASSES:
        raise ValueError(f"{shown(name)} is not one of VOC's 20 classes")
    return CLASSES.index(name)


def _box(element: ElementTree.Element) -> BoundingBox:
    sides = [element.findtext(f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")]
    return BoundingBox(*(round(float(side or "nan")) for side in sides))


# ---- crops -----------------------------------------------------------------------------------


def _read_crops(
    archives: Sequence[Path], splits: Sequence[Sequence[VocObject]]
) -> list[npt.NDArray[np.uint8]]:
    """The crops of each split; every image is decoded once, in the order of the archive."""
    rows: dict[str, list[tuple[int, int]]] = {}
    for split, objects in enumerate(splits):
        for row, item in enumerate(objects):
            rows.setdefault(f"JPEGImages/{item.image}.jpg", []).append((split, row))

    def wanted(name: str) -> str | None:
        found = _MEMBER.search(name)
        return found[1] if found and found[1] in rows else None

    crops = [np.zeros((len(objects), SIDE, SIDE, 3), dtype=np.uint8) for objects in splits]
    left = dict.fromkeys(rows)
    for key, content in read_members(archives, wanted, limit=IMAGE_LIMIT):
        left.pop(key, None)
        boxes = [splits[split][row].box for split, row in rows[key]]
        for (split, row), crop in zip(rows[key], _cropped(content, key, boxes), strict=True):
            crops[split][row] = crop
    for key in left:
        raise missing_member(archives, key)
    return crops


def _cropped(content: bytes, file: str, boxes: Sequence[BoundingBox]) -> list[npt.NDArray[Any]]:
    """The objects in an image, each centred in a black square and scaled."""
    from PIL import Image

    found = []
    try:
        with Image.open(io.BytesIO(content), formats=["JPEG"]) as opened:
            image = opened.convert("RGB")
        for box in boxes:
            inside = (
                max(box.left, 1) - 1,
                max(box.top, 1) - 1,
                min(box.right, image.width),
                min(box.bottom, image.height),
            )
            if inside[0] >= inside[2] or inside[1] >= inside[3]:
                raise ValueError("the box of an object lies outside")
            part = image.crop(inside)
            side = max(part.size)
            square = Image.new("RGB", (side, side))
            square.paste(part, ((side - part.width) // 2, (side - part.height) // 2))
            found.append(np.asarray(square.resize((SIDE, SIDE), Image.Resampling.BILINEAR)))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(
            f"{file} cannot be read as a JPEG image ({first_line(error)}): download the archive "
            "again."
        ) from None
    return found
