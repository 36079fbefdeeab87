"""Detections: species and other classes with scores, as SpeciesNet and MegaDetector write them for each picture."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from ltpll.candidates.scores import ROUNDING
from ltpll.convert.json_examples import (
    JsonExamples,
    checked_names,
    class_numbers,
    known_classes,
    member,
    scored_candidates,
    skipped,
)
from ltpll.convert.json_stream import json_items
from ltpll.errors import InputError, shown
from ltpll.tables.streaming import ReadProgress

TAXON = (
    7  # parts of a class of SpeciesNet: number, class, order, family, genus, species, common name
)


def class_name(text: str) -> str:
    """The name in a class of SpeciesNet: the common name, or else the last taxonomic level that is given.

    Examples:
        >>> class_name("5c7ce479;mammalia;carnivora;canidae;vulpes;vulpes;red fox")
        'red fox'
        >>> class_name("5c7ce479;mammalia;carnivora;canidae;vulpes;vulpes;")
        'vulpes vulpes'
    """
    parts = [part.strip() for part in text.split(";")]
    if len(parts) != TAXON:
        return text.strip()
    *_, genus, species, common = parts
    levels = [part for part in parts[1:] if part]
    return common or (
        f"{genus} {species}".strip() if species else levels[-1] if levels else parts[0]
    )


def read_speciesnet(
    path: Path,
    *,
    top_k: int | None,
    mass: float | None,
    classes: Sequence[Any] | None,
    needs_candidates: bool,
    on_progress: ReadProgress | None = None,
) -> JsonExamples:
    """Read the predictions of SpeciesNet: the classes of each picture with their scores.

    Args:
        path: The file.
        top_k: Keep this many classes of each picture.
        mass: Keep the fewest classes of each picture whose scores sum to this.
        classes: The classes in order; None for the names that occur.
        needs_candidates: Whether pictures without classes are skipped; otherwise all are returned, with candidates if all have some.
        on_progress: Called with the number of bytes read so far and the total.

    Raises:
        InputError: The file cannot be read, a score is not between 0 and 1, or no picture has classes.
    """
    found = _Scores(path)
    with closing(json_items(path, on_progress)) as items:
        for item in items:
            if item.key in ("", "predictions"):
                where = found.add_picture(item.number, item.value, "filepath")
                given = item.value.get("classifications") or {}
                names, scores = (member(given, name, list) for name in ("classes", "scores"))
                if given and (names is None or scores is None or len(names) != len(scores)):
                    raise InputError(
                        f"{where} has classifications that are not lists of classes and scores: run SpeciesNet again."
                    )
                for name, score in zip(names or [], scores or [], strict=True):
                    found.add_score(
                        where, class_name(name) if isinstance(name, str) else name, score
                    )
    return found.examples(found.names, top_k, mass, classes, needs_candidates)


def read_megadetector(
    path: Path,
    *,
    top_k: int | None,
    mass: float | None,
    classes: Sequence[Any] | None,
    needs_candidates: bool,
    on_progress: ReadProgress | None = None,
) -> JsonExamples:
    """Read a results file of MegaDetector and a classifier; of each picture, the classified detection with the highest confidence counts.

    The arguments and errors are those of `read_speciesnet`.
    """
    found = _Scores(path)
    categories: dict[str, Any] = {}
    with closing(json_items(path, on_progress)) as items:
        for item in items:
            if item.key == "classification_categories" and isinstance(item.value, dict):
                categories = item.value
            if item.key in ("", "images"):
                where = found.add_picture(item.number, item.value, "file")
                for score in _best_classifications(where, item.value.get("detections") or []):
                    if not isinstance(score, list) or len(score) != 2:
                        raise InputError(
                            f"{where} has a classification that is not a category and its score: run the classifier again."
                        )
                    found.add_score(
                        where, str(score[0]) if isinstance(score[0], int) else score[0], score[1]
                    )
    unnamed = next(
        (
            name
            for name in found.names
            if not isinstance(categories.get(name), str) or not categories[name].strip()
        ),
        None,
    )
    if unnamed is not None:
        raise InputError(
            f"{path} has classifications of the category {shown(unnamed)}, for which classification_categories has no name: add it."
        )
    return found.examples(
        [class_name(categories[name]) for name in found.names],
        top_k,
        mass,
        classes,
        needs_candidates,
    )


def _best_classifications(where: str, detections: Any) -> list[Any]:
    """The classifications of the classified detection with the highest confidence."""
    if not isinstance(detections, list) or not all(isinstance(one, dict) for one in detections):
        raise InputError(
            f"{where} has detections that are not a list of objects: run the detector again."
        )
    classified = [one for one in detections if one.get("classifications")]
    if not classified:
        return []
    wrong = next((one for one in classified if member(one, "conf", (int, float)) is None), None)
    if wrong is not None or not all(isinstance(one["classifications"], list) for one in classified):
        raise InputError(
            f"{where} has a classified detection without a confidence and a list of classes: run the detector again."
        )
    best: dict[str, Any] = max(classified, key=lambda one: float(one["conf"]))
    found: list[Any] = best["classifications"]
    return found


class _Scores:
    """Collects the scores of the classes of each picture."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.paths: list[str] = []
        self.rows, self.codes, self.scores = array("q"), array("q"), array("d")
        self.number: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        return list(self.number)

    def add_picture(self, number: int, entry: Any, key: str) -> str:
        """Begin a picture; returns how messages refer to it."""
        name = member(entry, key, str)
        if name is None:
            raise InputError(
                f"Entry {number} of {self.path} has no {key!r}, the path of its picture: add it."
            )
        self.paths.append(name.replace("\\", "/"))
        return f"The picture {shown(name)} of {self.path}"

    def add_score(self, where: str, name: Any, score: Any) -> None:
        if not isinstance(name, str) or not name.strip():
            raise InputError(
                f"{where} has the class {shown(name)}, which is not a name: run the classifier again."
            )
        number = isinstance(score, (int, float)) and not isinstance(score, bool)
        if not number or not 0 <= score <= 1 + ROUNDING:  # NaN is refused as well
            raise InputError(
                f"{where} has the score {shown(score)} for {shown(name)}: scores lie between 0 and 1; turn logits into probabilities first."
            )
        if score > 0:
            self.rows.append(len(self.paths) - 1)
            self.codes.append(self.number.setdefault(name, len(self.number)))
            self.scores.append(score)

    def examples(
        self,
        names: Sequence[str],
        top_k: int | None,
        mass: float | None,
        classes: Sequence[Any] | None,
        needs_candidates: bool,
    ) -> JsonExamples:
        if not self.paths:
            raise InputError(f"{self.path} has no pictures: give at least one.")
        rows, n = np.asarray(self.rows, dtype=np.int64), len(self.paths)
        labelled, position = np.unique(rows, return_inverse=True)
        if needs_candidates and not len(labelled):
            raise InputError(
                f"No picture of {self.path} has classifications with scores, and detections alone say nothing about the class: run a "
                "classifier such as SpeciesNet on the pictures."
            )
        kept = labelled if needs_candidates else np.arange(n)
        paths = checked_names(self.path, self.paths, "picture")
        paths = paths if len(kept) == n else [paths[row] for row in kept]
        distinct = list(dict.fromkeys(names))
        chosen = known_classes(distinct, classes)
        candidates = None
        if needs_candidates or (len(labelled) == n and {*distinct} <= {*chosen}):
            numbers = class_numbers(self.path, names, chosen)[
                np.asarray(self.codes, dtype=np.int64)
            ]
            scores = np.asarray(self.scores, dtype=np.float64)
            candidates = scored_candidates(
                position, numbers, scores, chosen, top_k=top_k, mass=mass
            )
        return JsonExamples(
            paths,
            paths,
            candidates,
            notes=skipped(n - len(kept), n, "picture", "no classification"),
        )
