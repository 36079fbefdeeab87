"""Detections: classes with scores, as SpeciesNet and MegaDetector write them for each picture."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.candidates.scores import ROUNDING
from ltpll.convert.json_examples import (
    NUMBER,
    JsonFile,
    Numbered,
    Numbers,
    as_label_table,
    listed,
    required,
    skipped,
)
from ltpll.errors import InputError, shown
from ltpll.tables.label_table import LabelTable

# Parts of a class of SpeciesNet: number, class, order, family, genus, species, common name.
TAXON = 7
ScoresOf = Callable[[str, Any], Iterable[tuple[Any, Any]]]


def class_name(text: str) -> str:
    """The common name in a class of SpeciesNet, or else the last taxonomic level that is given.

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
    if common or species:
        return common or f"{genus} {species}".strip()
    return [parts[0], *filter(None, parts)][-1]


def read_speciesnet(source: JsonFile) -> LabelTable:
    """Read the predictions of SpeciesNet: the classes of each picture with their scores.

    Raises:
        InputError: The file cannot be read, a score is not between 0 and 1, or no picture has
            classes.
    """
    found = _Scores(source)
    for key, number, entry in source.items():
        if key in ("", "predictions"):
            found.add_picture(number, entry, "filepath", _speciesnet_scores)
    return found.table(list(found.names))


def read_megadetector(source: JsonFile) -> LabelTable:
    """Read the results of MegaDetector and a classifier.

    Of each picture, the classified detection with the highest confidence counts.

    Raises:
        InputError: As for `read_speciesnet`.
    """
    found = _Scores(source)
    categories: Any = {}
    for key, number, entry in source.items():
        if key == "classification_categories":
            categories = entry
        elif key in ("", "images"):
            found.add_picture(number, entry, "file", _megadetector_scores)
    where = f"The member 'classification_categories' of {source.path}"
    names = [required(where, categories, **{key: str})[0] for key in found.names]
    return found.table(names)


def _speciesnet_scores(where: str, entry: Any) -> Iterable[tuple[Any, Any]]:
    if not entry.get("classifications"):
        return ()
    classes, scores = required(where, entry["classifications"], classes=list, scores=list)
    if len(classes) != len(scores):
        raise InputError(f"{where} has not as many scores as classes: run SpeciesNet again.")
    return zip(classes, scores, strict=True)


def _megadetector_scores(where: str, entry: Any) -> Iterable[tuple[Any, Any]]:
    best: list[Any] = []
    highest = None
    for detection in listed(where, entry, "detections"):
        if listed(where, detection, "classifications"):
            confidence, given = required(where, detection, conf=NUMBER, classifications=list)
            if highest is None or confidence > highest:
                highest, best = confidence, given
    if not all(isinstance(one, list) and len(one) == 2 for one in best):
        raise InputError(
            f"{where} has a classification that is not a category and its score: run the "
            "classifier again."
        )
    return [(str(name) if isinstance(name, int) else name, score) for name, score in best]


class _Scores:
    """Collects the scores of the classes of each picture."""

    def __init__(self, source: JsonFile) -> None:
        self.source = source
        self.paths: list[str] = []
        self.rows, self.codes, self.scores = array("q"), array("q"), array("d")
        self.names = Numbered()

    def add_picture(self, number: int, entry: Any, key: str, scores_of: ScoresOf) -> None:
        """Add a picture, whose path is `entry[key]`, and the scores of its classes."""
        path = self.source.path
        (picture,) = required(f"Entry {number} of {path}", entry, **{key: str})
        where = f"The picture {shown(picture)} of {path}"
        for name, score in scores_of(where, entry):
            if not isinstance(name, str) or not name.strip():
                raise InputError(
                    f"{where} has the class {shown(name)}, which is not a name: run the classifier "
                    "again."
                )
            if type(score) not in (int, float) or not 0 <= score <= 1 + ROUNDING:
                raise InputError(
                    f"{where} has the score {shown(score)} for {shown(name)}: scores lie between 0 "
                    "and 1; turn logits into probabilities first."
                )
            if score > 0:
                self.rows.append(len(self.paths))
                self.codes.append(self.names[name])
                self.scores.append(score)
        self.paths.append(picture.replace("\\", "/"))

    def table(self, classes: Sequence[str]) -> LabelTable:
        """The pictures, with the classes, in the order of `names`, weighted by their scores."""
        source, n = self.source, len(self.paths)
        if not n:
            raise InputError(f"{source.path} has no pictures: give at least one.")
        if source.needs_candidates and not self.rows:
            raise InputError(
                f"No picture of {source.path} has classifications with scores, and detections "
                "alone say nothing about the class: run a classifier such as SpeciesNet on the "
                "pictures."
            )
        source.check_distinct(self.paths, "picture")
        codes = np.asarray(self.codes, dtype=np.int64)
        found = source.labelled(n, self.rows, codes, [class_name(name) for name in classes])
        sets = None
        if found.numbers is not None:
            scored = (found.rows, found.numbers[codes], np.asarray(self.scores), found.classes)
            top_k, mass = source.reading.top_k, source.reading.mass
            sets = scored_candidates(*scored, top_k=top_k, mass=mass)
        paths = [self.paths[row] for row in found.kept.tolist()]
        notes = skipped(n - len(paths), n, "picture", "no classification")
        return as_label_table(sets, ids=paths, paths=paths, notes=notes)


def scored_candidates(
    rows: Numbers,
    numbers: Numbers,
    scores: npt.NDArray[np.float64],
    classes: Sequence[Any],
    *,
    top_k: int | None = None,
    mass: float | None = None,
) -> Candidates:
    """Candidates weighted by scores, which are summed where a row has a class twice.

    Args:
        rows: The example of each score; every example from 0 has a positive one.
        numbers: The class number of each score.
        scores: The scores, from 0 to 1.
        classes: The names of the classes.
        top_k: Keep this many classes of each example.
        mass: Keep the fewest classes of each example whose scores sum to this; all of them if they
            do not.

    Examples:
        >>> rows, numbers, scores = np.zeros(3, int), np.arange(3), np.array([0.6, 0.3, 0.1])
        >>> scored_candidates(rows, numbers, scores, ("a", "b", "c"), top_k=2).weights
        tensor([0.6667, 0.3333])
    """
    keys, position = np.unique(rows * len(classes) + numbers, return_inverse=True)
    sums = np.bincount(position, weights=scores)
    row = keys // len(classes)
    start = np.searchsorted(row, np.arange(int(rows.max(initial=-1)) + 2))
    order = np.lexsort((keys, -sums, row))
    kept = np.ones(len(keys), dtype=bool)
    if top_k is not None:
        kept = np.arange(len(keys)) - start[row] < top_k
    if mass is not None:
        before = np.cumsum(sums[order]) - sums[order]
        kept &= before - before[start[row]] < mass - ROUNDING
    chosen = np.sort(order[kept])
    indptr = np.searchsorted(row[chosen], np.arange(len(start)))
    sets = Candidates.from_flat(indptr, keys[chosen] % len(classes), len(classes), tuple(classes))
    return sets.with_weights(sums[chosen])
