"""PASCAL VOC 2007 as a partial-label set: each object is cropped out, and its candidates are the classes seen in its image."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.data.benchmarks.archives import Progress, missing, read_members
from ltpll.data.benchmarks.image_sets import ImageSet
from ltpll.errors import InputError, first_line, shown
from ltpll.validation import at_least

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog", "horse", "motorbike"),
    *("person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
SIDE = 128
ANNOTATION_LIMIT = 1 << 18
IMAGE_LIMIT = 16 << 20
PIXEL_LIMIT = 1 << 24

_MEMBER = re.compile(r"(?:^|/)VOC2007/(Annotations/\w+\.xml|JPEGImages/\w+\.jpg|ImageSets/Main/(?:trainval|test)\.txt)$", re.ASCII)


class Box(NamedTuple):
    """VOC counts pixels from 1, and the last ones belong to the object."""

    left: int
    top: int
    right: int
    bottom: int


class Thing(NamedTuple):
    """An object in an image; `image` is the image's number, such as 000012."""

    image: str
    label: int
    box: Box


def read_voc2007(archives: Sequence[Path], on_progress: Progress | None = None, *, per_class: int = 200, seed: int = 0) -> ImageSet:
    """Training: every object, difficult ones too, of those trainval images that show at least two classes.

    Test: objects of all test images, the same number for each class: `per_class`, or what the smallest class has. An image with
    a single class is no reason to leave a test object out, since no candidates are needed there.
    Rows follow the images' numbers, and within an image the order of its annotation.
    """
    at_least(per_class, 1, "per_class")
    things, lists = _read_annotations(archives, on_progress)
    train: list[Thing] = []
    sets: list[list[int]] = []
    for image in lists["trainval"]:
        present = sorted({thing.label for thing in things[image]})
        if len(present) >= 2:
            train += things[image]
            sets += [present] * len(things[image])
    if not train:
        raise InputError("No training image in the archive shows two classes, so there are no candidate sets: download it again.")
    test = _balanced([thing for image in lists["test"] for thing in things[image]], per_class, seed)
    x_train, x_test = _read_crops(archives, (train, test), on_progress)
    numbers = np.asarray([label for present in sets for label in present], dtype=np.int64)
    offsets = np.cumsum([0, *(len(present) for present in sets)])
    candidates = Candidates.from_flat(offsets, numbers, len(CLASSES), CLASSES)
    return ImageSet("voc2007", x_train, _labels(train), x_test, _labels(test), CLASSES, candidates=candidates)


def _labels(things: Iterable[Thing]) -> npt.NDArray[np.int64]:
    return np.asarray([thing.label for thing in things], dtype=np.int64)


def _balanced(things: Sequence[Thing], per_class: int, seed: int) -> list[Thing]:
    labels = _labels(things)
    counts = np.bincount(labels, minlength=len(CLASSES))
    n = min(per_class, int(counts.min()))
    if n == 0:
        raise InputError(f"No test image in the archive shows the class {CLASSES[int(counts.argmin())]!r}: download the archive again.")
    rng = np.random.default_rng(seed)
    chosen = np.concatenate([rng.permutation(np.flatnonzero(labels == c))[:n] for c in range(len(CLASSES))])
    return [things[i] for i in np.sort(chosen)]


# ---- annotations ------------------------------------------------------------------------------------------------------


def _read_annotations(archives: Sequence[Path], on_progress: Progress | None) -> tuple[dict[str, list[Thing]], dict[str, list[str]]]:
    """The objects of each image, and the sorted images of each list."""

    def wanted(name: str) -> str | None:
        found = _MEMBER.search(name)
        return None if found is None or found[1].startswith("JPEG") else found[1]

    things: dict[str, list[Thing]] = {}
    lists: dict[str, list[str]] = {}
    for key, content in read_members(archives, wanted, limit=ANNOTATION_LIMIT, on_progress=on_progress):
        name = Path(key).stem
        if key.startswith("Annotations"):
            things[name] = read_annotation(content, name)
        else:
            lists[name] = sorted({line.strip() for line in content.decode("ascii", "replace").split("\n") if line.strip()})
    for name in ("trainval", "test"):
        if name not in lists:
            raise missing(archives, f"ImageSets/Main/{name}.txt")
        for image in lists[name]:
            if image not in things:
                raise missing(archives, f"Annotations/{image}.xml")
    return things, lists


def read_annotation(content: bytes, image: str) -> list[Thing]:
    """The objects of one annotation; the head, hands and feet of a person are parts, not objects."""
    file = f"Annotations/{image}.xml"
    try:
        # Parsed as text, so that no declared encoding can hide a declaration from the next line.
        text = content.decode()
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            raise InputError(f"{file} declares entities, which no annotation of VOC does: use the archive as it was published.")
        root = ElementTree.fromstring(text)
        return [Thing(image, _label(element, file), _box(element)) for element in root.findall("object")]
    except InputError:
        raise
    except (ElementTree.ParseError, ValueError, OverflowError) as error:
        raise InputError(f"{file} cannot be read ({first_line(error)}): download the archive again.") from None


def _label(element: ElementTree.Element, file: str) -> int:
    name = (element.findtext("name") or "").strip()
    if name not in CLASSES:
        raise InputError(f"{file} names the class {shown(name)}, which is not one of VOC's 20: use the archive as it was published.")
    return CLASSES.index(name)


def _box(element: ElementTree.Element) -> Box:
    sides = [element.findtext(f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")]
    return Box(*(round(float(side or "nan")) for side in sides))


# ---- crops ------------------------------------------------------------------------------------------------------------


def _read_crops(archives: Sequence[Path], splits: Sequence[Sequence[Thing]], on_progress: Progress | None) -> list[npt.NDArray[np.uint8]]:
    """The crops of each split; every image is decoded once, in the order of the tar file, and its crops go to their rows."""
    rows: dict[str, list[tuple[int, int]]] = {}
    for split, things in enumerate(splits):
        for row, thing in enumerate(things):
            rows.setdefault(f"JPEGImages/{thing.image}.jpg", []).append((split, row))

    def wanted(name: str) -> str | None:
        found = _MEMBER.search(name)
        return found[1] if found and found[1] in rows else None

    crops = [np.zeros((len(things), SIDE, SIDE, 3), dtype=np.uint8) for things in splits]
    left = dict.fromkeys(rows)
    for key, content in read_members(archives, wanted, limit=IMAGE_LIMIT, on_progress=on_progress):
        left.pop(key, None)
        _crop_all(content, key, {(split, row): splits[split][row].box for split, row in rows[key]}, crops)
    for key in left:
        raise missing(archives, key)
    return crops


def _crop_all(content: bytes, file: str, boxes: Mapping[tuple[int, int], Box], crops: Sequence[npt.NDArray[np.uint8]]) -> None:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=["JPEG"]) as opened:
            if opened.width * opened.height > PIXEL_LIMIT:
                raise InputError(
                    f"{file} has {opened.width} × {opened.height} pixels, more than any image of VOC: it is not a published one."
                )
            image = opened.convert("RGB")
    except InputError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise InputError(f"{file} is no whole JPEG image: download the archive again.") from None
    for (split, row), box in boxes.items():
        inside = Box(max(box.left, 1), max(box.top, 1), min(box.right, image.width), min(box.bottom, image.height))
        if inside.left > inside.right or inside.top > inside.bottom:
            raise InputError(f"An object's box in {file} lies outside the image: download the archive again.")
        part = image.crop((inside.left - 1, inside.top - 1, inside.right, inside.bottom))
        side = max(part.size)
        square = Image.new("RGB", (side, side))
        square.paste(part, ((side - part.width) // 2, (side - part.height) // 2))
        crops[split][row] = np.asarray(square.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
