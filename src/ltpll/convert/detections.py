"""Detections: classes with scores, as SpeciesNet and MegaDetector write them for each picture."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
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
    return _read_scores(source, "predictions", "filepath", _speciesnet_scores)


def read_megadetector(source: JsonFile) -> LabelTable:
    """Read the results of MegaDetector and a classifier.

    Of each picture, the classified detection with the highest confidence counts.

    Raises:
        InputError: As for `read_speciesnet`.
    """
    return _read_scores(source, "images", "file", _megadetector_scores)


def _speciesnet_scores(where: str, entry: Any) -> Iterable[tuple[Any, Any]]:
    if not entry.get("classifications"):
        return ()
    classes, scores = required(where, entry["classifications"], classes=list, scores=list)
    if len(classes) != len(scores):
        raise InputError(f"{where} has not as many scores as classes: run SpeciesNet again.")
    return zip(classes, scores, strict=True)


def _megadetector_scores(where: str, entry: Any) -> Iterable[tuple[Any, Any]]:
    classified = [
        required(where, detection, conf=NUMBER, classifications=list)
        for detection in listed(where, entry, "detections")
        if listed(where, detection, "classifications")
    ]
    best: list[Any] = max(classified, key=itemgetter(0), default=(0, []))[1]
    if not all(isinstance(one, list) and len(one) == 2 for one in best):
        raise InputError(
            f"{where} has a classification that is not a category and its score: run the "
            "classifier again."
        )
    return [(str(name) if isinstance(name, int) else name, score) for name, score in best]


def _read_scores(
    source: JsonFile,
    pictures_in: str,
    key_of_path: str,
    scores_of: Callable[[str, Any], Iterable[tuple[Any, Any]]],
) -> LabelTable:
    path, names, categories = source.path, Numbered(), None
    paths: list[str] = []
    rows, codes, scores = array("q"), array("q"), array("d")
    for key, number, entry in source.items():
        categories = entry if key == "classification_categories" else categories
        if key not in ("", pictures_in):
            continue
        (picture,) = required(f"Entry {number} of {path}", entry, **{key_of_path: str})
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
                rows.append(len(paths))
                codes.append(names[name])
                scores.append(score)
        paths.append(picture.replace("\\", "/"))
    if not paths:
        raise InputError(f"{path} has no pictures: give at least one.")
    if source.needs_candidates and not rows:
        raise InputError(
            f"No picture of {path} has classifications with scores, and detections alone say "
            "nothing about the class: run a classifier such as SpeciesNet on the pictures."
        )
    source.check_distinct(paths, "picture")
    classes = list(names)
    if scores_of is _megadetector_scores:
        where = f"The member 'classification_categories' of {path}"
        classes = [required(where, categories, **{name: str})[0] for name in classes]
    of_codes = np.asarray(codes, dtype=np.int64)
    found = source.labelled(len(paths), rows, of_codes, [class_name(name) for name in classes])
    sets = None
    if found.numbers is not None:
        scored = (found.rows, found.numbers[of_codes], np.asarray(scores), found.classes)
        limits = source.reading
        sets = scored_candidates(*scored, top_k=limits.top_k, mass=limits.mass)
    kept = [paths[row] for row in found.kept.tolist()]
    notes = skipped(len(paths) - len(kept), len(paths), "picture", "no classification")
    return as_label_table(sets, ids=kept, paths=kept, notes=notes)


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
