"""COCO: pictures, or the objects in them, whose candidates are the categories that the annotations of the picture name."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.convert.json_examples import (
    JsonExamples,
    checked_names,
    class_numbers,
    known_classes,
    member,
    skipped,
)
from ltpll.convert.json_stream import Item, json_items
from ltpll.errors import InputError, shown
from ltpll.pictures.files import with_box
from ltpll.tables.memory_limits import check_expansion
from ltpll.tables.streaming import ReadProgress

Key = tuple[type, Any]  # 1 and "1" are different ids
Numbers = npt.NDArray[np.int64]


def read_coco(
    path: Path,
    *,
    classes: Sequence[Any] | None,
    needs_candidates: bool,
    objects: str = "images",
    on_progress: ReadProgress | None = None,
) -> JsonExamples:
    """Read annotations in the format of COCO.

    Args:
        path: The file.
        classes: The classes in order; None for the names that occur.
        needs_candidates: Whether pictures without annotations are skipped; otherwise all are returned, with candidates if all have some.
        objects: "images", or "crops" for one example per annotation: its box of the picture, with the categories of the picture as
            candidates, the picture as its group, and its own category as the true label.
        on_progress: Called with the number of bytes read so far and the total.

    Raises:
        InputError: The file cannot be read, or an annotation names a picture or a category that is missing.
    """
    found = _Parts(path, objects == "crops")
    with closing(json_items(path, on_progress)) as items:
        for item in items:
            found.add(item)
    return found.examples(classes, needs_candidates)


class _Parts:
    """Collects the parts of a file, which come in any order."""

    def __init__(self, path: Path, crops: bool) -> None:
        self.path, self.crops = path, crops
        self.images: dict[Key, int] = {}
        self.paths: list[str] = []
        self.names: dict[Key, str] = {}
        # Of each annotation: numbers of the ids of its picture and its category, and its box.
        self.picture_ids: dict[Key, int] = {}
        self.category_ids: dict[Key, int] = {}
        self.pictures, self.categories, self.boxes = array("q"), array("q"), array("d")

    def add(self, item: Item) -> None:
        """Add a picture, an annotation or a category; everything else is ignored."""
        where = f"Entry {item.number} of {item.key!r} in {self.path}"
        if item.key == "images":
            key, name = _id(item.value, "id"), member(item.value, "file_name", str)
            if key is None or name is None:
                raise InputError(
                    f"{where} has no 'id' or no 'file_name': every picture needs both."
                )
            if self.images.setdefault(key, len(self.images)) != len(self.paths):
                raise InputError(
                    f"{where} has the same 'id' as another picture ({shown(key[1])}): ids must be distinct."
                )
            self.paths.append(name)
        elif item.key == "annotations":
            picture, category = _id(item.value, "image_id"), _id(item.value, "category_id")
            if picture is None or category is None:
                raise InputError(
                    f"{where} has no 'image_id' or no 'category_id', so it names no category: remove it."
                )
            self.pictures.append(self.picture_ids.setdefault(picture, len(self.picture_ids)))
            self.categories.append(self.category_ids.setdefault(category, len(self.category_ids)))
            if self.crops:
                self.boxes.extend(_box(where, item.value))
        elif item.key == "categories":
            key, name = _id(item.value, "id"), member(item.value, "name", str)
            if key is None or name is None or not name.strip():
                raise InputError(f"{where} has no 'id' or no 'name': every category needs both.")
            self.names[key] = name.strip()

    def examples(self, classes: Sequence[Any] | None, needs_candidates: bool) -> JsonExamples:
        path, n = self.path, len(self.paths)
        if not n:
            raise InputError(f"{path} has no 'images': give at least one picture.")
        if not len(self.pictures) and (needs_candidates or self.crops):
            raise InputError(
                f"{path} has no annotations, so no picture has a candidate label: give annotations with a category_id."
            )
        self._check("image_id", self.picture_ids, "images", self.images)
        self._check("category_id", self.category_ids, "categories", self.names)
        paths = checked_names(path, self.paths, "file_name")
        pictures = np.asarray([self.images[key] for key in self.picture_ids], dtype=np.int64)[
            np.asarray(self.pictures, dtype=np.int64)
        ]
        used = [self.names[key] for key in self.category_ids]
        chosen = known_classes(list(dict.fromkeys(used)), classes)
        labels = None
        if needs_candidates or {*used} <= {*chosen}:
            labels = class_numbers(path, used, chosen)[np.asarray(self.categories, dtype=np.int64)]
        notes = (
            skipped(n - len(np.unique(pictures)), n, "picture", "no annotation")
            if needs_candidates or self.crops
            else ()
        )
        if self.crops:
            boxes = np.asarray(self.boxes).reshape(-1, 4).tolist()
            parts = [
                with_box(paths[picture], *box)
                for picture, box in zip(pictures.tolist(), boxes, strict=True)
            ]
            candidates = None if labels is None else _sets(path, pictures, labels, pictures, chosen)
            ids = [str(i + 1) for i in range(len(parts))]
            return JsonExamples(
                ids,
                parts,
                candidates,
                labels,
                groups=[paths[picture] for picture in pictures],
                notes=notes,
            )
        kept = np.unique(pictures) if needs_candidates else np.arange(n)
        paths = paths if len(kept) == n else [paths[picture] for picture in kept]
        sets = None
        if labels is not None and len(np.unique(pictures)) == len(kept):
            sets = _sets(path, pictures, labels, kept, chosen)
        return JsonExamples(paths, paths, sets, notes=notes)

    def _check(self, what: str, used: dict[Key, int], where: str, known: dict[Key, Any]) -> None:
        unknown = next((key for key in used if key not in known), None)
        if unknown is not None:
            raise InputError(
                f"An annotation of {self.path} has the {what} {shown(unknown[1])}, which is not among its {where!r}: add it there."
            )


def _sets(
    path: Path, pictures: Numbers, labels: Numbers, rows: Numbers, classes: tuple[Any, ...]
) -> Candidates:
    """The labels of all annotations of a picture, for the picture of each row."""
    pairs = np.unique(pictures * len(classes) + labels)
    first, end = (
        np.searchsorted(pairs // len(classes), rows, side=side) for side in ("left", "right")
    )
    sizes = end - first
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    check_expansion(
        path,
        path.stat().st_size,
        8 * int(indptr[-1]),
        "a picture has too many annotations of too many categories",
    )
    position = np.arange(indptr[-1]) - np.repeat(indptr[:-1] - first, sizes)
    return Candidates.from_flat(indptr, pairs[position] % len(classes), len(classes), classes)


def _id(entry: Any, key: str) -> Key | None:
    value = member(entry, key, (int, str))
    return None if value is None else (type(value), value)


def _box(where: str, annotation: Any) -> list[float]:
    """The box of an annotation: left, top, width and height in pixels; what is left of or above the picture is cut off."""
    box = member(annotation, "bbox", list) or []
    numbers = [
        float(value)
        for value in box
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e6
    ]
    if (
        len(box) != 4
        or len(numbers) != 4
        or not all(map(math.isfinite, numbers))
        or min(numbers[2:]) <= 0
    ):
        raise InputError(
            f"{where} has the 'bbox' {shown(annotation.get('bbox'))}, which is not left, top, width and height: correct it."
        )
    left, top, width, height = numbers
    return [
        max(left, 0.0),
        max(top, 0.0),
        max(width + min(left, 0.0), 0.0),
        max(height + min(top, 0.0), 0.0),
    ]
