"""COCO: pictures or the objects in them, whose candidates are the categories of the picture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ltpll.convert.examples import ID, Converted, JsonFile, member, required, skipped, with_sets
from ltpll.errors import InputError, shown
from ltpll.pictures.files import with_box
from ltpll.tables.json_stream import json_items


def read_coco(source: JsonFile) -> Converted:
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
    of_picture: dict[Any, set[Any]] = {}
    objects: list[tuple[Any, Any, list[float]]] = []  # if they are crops
    for key, number, entry in json_items(source.path, source.on_progress):  # in any order
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
            of_picture.setdefault(picture, set()).add(category)
            if crops:
                objects.append((picture, category, _box(where, entry)))
    if not files:
        raise InputError(f"{path} has no 'images': give at least one picture.")
    if not of_picture and (source.needs_candidates or crops):
        raise InputError(f"{path} has no annotations, so no picture has a candidate label.")
    used = (of_picture, files, "image"), ({*()}.union(*of_picture.values()), names, "category")
    for keys, known, what in used:
        unknown = next((key for key in keys if key not in known), None)
        if unknown is not None:
            raise InputError(
                f"An annotation of {path} has the {what}_id {shown(unknown)}, but the file has no "
                f"{what} with this id: add it."
            )
    sets = {
        picture: sorted({names[category] for category in categories})
        for picture, categories in of_picture.items()
    }
    notes: tuple[str, ...] = ()
    if crops or source.needs_candidates:
        notes = skipped(len(files) - len(sets), len(files), "picture", "no annotation")
    if not crops:
        paths = [*files.values()]
        of_files = [sets.get(picture, []) for picture in files]
        return with_sets(source, {"id": paths, "path": paths}, of_files, "The picture", notes)
    columns = {
        "id": [str(i + 1) for i in range(len(objects))],
        "path": [with_box(files[picture], *box) for picture, _, box in objects],
        "label": [names[category] for _, category, _ in objects],
        "group": [files[picture] for picture, _, _ in objects],
    }
    of_objects = [sets[picture] for picture, _, _ in objects]
    found = with_sets(source, columns, of_objects, "Annotation", notes)
    return replace(found, reading=replace(found.reading, group="group"))


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
