"""COCO: pictures or the objects in them, whose candidates are the categories of the picture."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import numpy as np

from ltpll.candidates import Candidates
from ltpll.convert.json_examples import (
    ID,
    JsonFile,
    Numbered,
    Numbers,
    as_label_table,
    member,
    required,
    skipped,
)
from ltpll.errors import InputError, shown
from ltpll.pictures.files import with_box
from ltpll.tables.label_table import LabelTable
from ltpll.tables.memory_limits import check_expansion


def read_coco(source: JsonFile) -> LabelTable:
    """Read annotations in the format of COCO.

    If the objects that are wanted are "crops", there is one example per annotation: its box of the
    picture, with the categories of the picture as candidates, the picture as its group, and its own
    category as the true label.

    Raises:
        InputError: The file cannot be read, or an annotation names a picture or a category that is
            missing.
    """
    path, crops = source.path, source.reading.objects == "crops"
    files: dict[Any, str] = {}
    names: dict[Any, str] = {}
    picture_ids, category_ids = Numbered(), Numbered()
    of_picture, of_category, boxes = array("q"), array("q"), array("d")
    for key, number, entry in source.items():  # in any order
        where = f"Entry {number} of {key!r} in {path}"
        if key == "images":
            picture, file = required(where, entry, id=ID, file_name=str)
            if picture in files:
                raise InputError(
                    f"{where} has the same 'id' as another picture ({shown(picture)}): ids must be "
                    "distinct."
                )
            files[picture] = file
        elif key == "categories":
            category, name = required(where, entry, id=ID, name=str)
            names[category] = name.strip()
        elif key == "annotations":
            picture, category = required(where, entry, image_id=ID, category_id=ID)
            of_picture.append(picture_ids[picture])
            of_category.append(category_ids[category])
            if crops:
                boxes.extend(_box(where, entry))
    if not files:
        raise InputError(f"{path} has no 'images': give at least one picture.")
    if not of_picture and (source.needs_candidates or crops):
        raise InputError(f"{path} has no annotations, so no picture has a candidate label.")
    for used, known, what in ((picture_ids, files, "image"), (category_ids, names, "category")):
        unknown = next((key for key in used if key not in known), None)
        if unknown is not None:
            raise InputError(
                f"An annotation of {path} has the {what}_id {shown(unknown)}, but the file has no "
                f"{what} with this id: add it."
            )
    paths = list(files.values())
    source.check_distinct(paths, "file_name")

    place = {key: i for i, key in enumerate(files)}
    places = np.asarray([place[key] for key in picture_ids], dtype=np.int64)
    pictures = places[np.asarray(of_picture, dtype=np.int64)]
    codes = np.asarray(of_category, dtype=np.int64)
    examples = np.arange(len(codes)) if crops else pictures
    of_codes = [names[key] for key in category_ids]
    found = source.labelled(len(codes) if crops else len(files), examples, codes, of_codes)
    labels = None if found.numbers is None else found.numbers[codes]
    rows = pictures if crops else found.kept
    sets = None if labels is None else _sets(path, pictures, labels, rows, found.classes)
    n_labelled = len(np.unique(pictures)) if source.needs_candidates or crops else len(files)
    notes = skipped(len(files) - n_labelled, len(files), "picture", "no annotation")
    paths = [paths[i] for i in rows.tolist()]
    if not crops:
        return as_label_table(sets, ids=paths, paths=paths, notes=notes)
    ids = [str(i + 1) for i in range(len(paths))]
    at = np.asarray(boxes).reshape(-1, 4).tolist()
    parts = [with_box(whole, *box) for whole, box in zip(paths, at, strict=True)]
    return as_label_table(sets, ids=ids, paths=parts, labels=labels, groups=paths, notes=notes)


def _sets(
    path: Path, pictures: Numbers, labels: Numbers, rows: Numbers, classes: tuple[Any, ...]
) -> Candidates:
    """The labels of all annotations of a picture, for the picture of each row."""
    pairs = np.unique(pictures * len(classes) + labels)
    first, end = (np.searchsorted(pairs // len(classes), rows, side) for side in ("left", "right"))
    sizes = end - first
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    advice = "a picture has too many annotations of too many categories"
    check_expansion(path, path.stat().st_size, 8 * int(indptr[-1]), advice)
    position = np.arange(indptr[-1]) - np.repeat(indptr[:-1] - first, sizes)
    return Candidates.from_flat(indptr, pairs[position] % len(classes), len(classes), classes)


def _box(where: str, annotation: Any) -> list[float]:
    """Left, top, width and height of a box in pixels, cut off where the picture begins."""
    box = member(annotation, "bbox", list) or []
    plain = len(box) == 4 and all(type(one) in (int, float) and abs(one) < 1e6 for one in box)
    if not plain or min(box[2:]) <= 0:  # NaN and infinity are not below 1e6
        raise InputError(
            f"{where} has the 'bbox' {shown(annotation.get('bbox'))}, which is not left, top, "
            "width and height: correct it."
        )
    left, top, width, height = map(float, box)
    width, height = width + min(left, 0.0), height + min(top, 0.0)
    return [max(one, 0.0) for one in (left, top, width, height)]
