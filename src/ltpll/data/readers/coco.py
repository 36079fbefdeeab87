"""COCO: pictures whose annotations name categories; all categories of a picture are its candidates."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import numpy as np

from ltpll.candidates import Candidates
from ltpll.data.readers.json_examples import JsonExamples, checked_names, class_numbers, known_classes, member, skipped
from ltpll.data.readers.json_stream import json_items
from ltpll.data.readers.streaming import ReadProgress
from ltpll.errors import InputError, shown

Key = tuple[type, Any]  # 1 and "1" are different ids


def read_coco(
    path: Path, *, classes: Sequence[Any] | None, needs_candidates: bool, on_progress: ReadProgress | None = None
) -> JsonExamples:
    """Read annotations in the format of COCO.

    Args:
        path: The file.
        classes: The classes in order; None for the names that occur.
        needs_candidates: Whether pictures without annotations are skipped; otherwise all are returned, with candidates if all have some.
        on_progress: Called with the number of bytes read so far and the total.

    Raises:
        InputError: The file cannot be read, or an annotation names a picture or a category that is missing.
    """
    images: dict[Key, int] = {}
    paths: list[str] = []
    codes: tuple[dict[Key, int], dict[Key, int]] = ({}, {})  # ids of pictures and categories in annotations, which may come first
    columns = (array("q"), array("q"))
    names: dict[Key, str] = {}
    with closing(json_items(path, on_progress)) as items:
        for item in items:
            where = f"Entry {item.number} of {item.key!r} in {path}"
            if item.key == "images":
                key, name = _id(item.value, "id"), member(item.value, "file_name", str)
                if key is None or name is None:
                    raise InputError(f"{where} has no 'id' or no 'file_name': every picture needs both.")
                if images.setdefault(key, len(images)) != len(paths):
                    raise InputError(f"{where} has the same 'id' as another picture ({shown(key[1])}): ids must be distinct.")
                paths.append(name)
            elif item.key == "annotations":
                keys = (_id(item.value, "image_id"), _id(item.value, "category_id"))
                if None in keys:
                    raise InputError(f"{where} has no 'image_id' or no 'category_id', so it names no category: remove it.")
                for column, known, key in zip(columns, codes, keys, strict=True):
                    column.append(known.setdefault(cast(Key, key), len(known)))
            elif item.key == "categories":
                key, name = _id(item.value, "id"), member(item.value, "name", str)
                if key is None or name is None or not name.strip():
                    raise InputError(f"{where} has no 'id' or no 'name': every category needs both.")
                names[key] = name.strip()
    return _examples(path, paths, images, codes, columns, names, classes, needs_candidates)


def _examples(
    path: Path,
    paths: list[str],
    images: dict[Key, int],
    codes: tuple[dict[Key, int], dict[Key, int]],
    columns: tuple[array[int], array[int]],
    names: dict[Key, str],
    classes: Sequence[Any] | None,
    needs_candidates: bool,
) -> JsonExamples:
    if not paths:
        raise InputError(f"{path} has no 'images': give at least one picture.")
    for known, named, what, where in ((images, codes[0], "image_id", "images"), (names, codes[1], "category_id", "categories")):
        unknown = next((key for key in named if key not in known), None)
        if unknown is not None:
            raise InputError(f"An annotation of {path} has the {what} {shown(unknown[1])}, which is not among its {where!r}: add it there.")
    n = len(paths)
    rows = np.asarray([images[key] for key in codes[0]], dtype=np.int64)[np.asarray(columns[0], dtype=np.int64)]
    annotated = np.unique(rows)
    if needs_candidates and not len(annotated):
        raise InputError(f"{path} has no annotations, so no picture has a candidate label: give annotations with a category_id.")
    kept = annotated if needs_candidates else np.arange(n)
    ids = checked_names(path, paths, "file_name")
    ids = ids if len(kept) == n else [ids[row] for row in kept]
    used = [names[key] for key in codes[1]]
    chosen = known_classes(list(dict.fromkeys(used)), classes)
    candidates = None
    if needs_candidates or (len(annotated) == n and {*used} <= {*chosen}):
        numbers = class_numbers(path, used, chosen)[np.asarray(columns[1], dtype=np.int64)]
        order = np.argsort(rows, kind="stable")
        indptr = np.append(np.searchsorted(rows[order], kept), len(rows))
        candidates = Candidates.from_flat(indptr, numbers[order], len(chosen), chosen)
    return JsonExamples(ids, ids, candidates, notes=skipped(n - len(kept), n, "picture", "no annotation"))


def _id(entry: Any, key: str) -> Key | None:
    value = member(entry, key, (int, str))
    return None if value is None else (type(value), value)
