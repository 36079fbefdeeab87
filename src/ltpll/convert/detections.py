"""Detections: classes with scores, as SpeciesNet and MegaDetector write them for each picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

from ltpll.candidates.parsing import ROUNDING
from ltpll.convert.examples import (
    NUMBER,
    Converted,
    JsonFile,
    as_cells,
    listed,
    required,
    skipped,
)
from ltpll.errors import InputError, shown
from ltpll.tables.json_stream import json_items
from ltpll.tables.memory_limits import check_expansion
from ltpll.tables.reading import Reading

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


def read_speciesnet(source: JsonFile) -> Converted:
    """Read the predictions of SpeciesNet: the classes of each picture with their scores."""
    return _read_scores(source, "predictions", "filepath", _speciesnet_scores)


def read_megadetector(source: JsonFile) -> Converted:
    """Read the results of MegaDetector and a classifier.

    Of each picture, the classified detection with the highest confidence counts.
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
) -> Converted:
    path, categories = source.path, None
    scored: dict[str, dict[str, float]] = {}  # by picture
    known: dict[str, str] = {}  # names, so that each is stored once
    for key, number, entry in json_items(source.path, source.on_progress):
        categories = entry if key == "classification_categories" else categories
        if key not in ("", pictures_in):
            continue
        (picture,) = required(f"Entry {number} of {path}", entry, **{key_of_path: str})
        where = f"The picture {shown(picture)} of {path}"
        picture = picture.replace("\\", "/")
        if picture in scored:
            raise InputError(f"{where} occurs twice: rename or drop one of the two.")
        scores = scored[picture] = {}
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
                name = known.setdefault(name, name)
                scores[name] = scores.get(name, 0.0) + score
    if not scored:
        raise InputError(f"{path} has no pictures: give at least one.")
    if source.needs_candidates and not any(scored.values()):
        raise InputError(
            f"No picture of {path} has classifications with scores, and detections alone say "
            "nothing about the class: run a classifier such as SpeciesNet on the pictures."
        )
    if scores_of is _megadetector_scores:
        where = f"The member 'classification_categories' of {path}"
        known = {name: required(where, categories, **{name: str})[0] for name in known}
    names, limits = {key: class_name(name) for key, name in known.items()}, source.reading
    sets = [likeliest(one, names, limits.top_k, limits.mass) for one in scored.values()]
    notes: tuple[str, ...] = ()
    if source.needs_candidates:
        notes = skipped(sets.count({}), len(sets), "picture", "no classification")
    columns: dict[str, list[str]] = {"id": [*scored]}
    names_of_classes = {name for one in sets for name in one}
    are_classes = limits.classes is None or names_of_classes <= {*limits.classes}
    # In new examples, sets do not matter unless all of them are of known classes.
    if source.needs_candidates or (all(sets) and are_classes):
        columns = {"id": [picture for picture, one in zip(scored, sets, strict=True) if one]}
        columns["candidates"] = as_cells([one for one in sets if one])
        size, advice = sum(map(len, columns["candidates"])), "give pictures fewer classes"
        check_expansion(path, path.stat().st_size, size, advice)
    columns["path"] = columns["id"]
    reading = Reading(classes=limits.classes, scores=limits.scores)
    return Converted(columns, reading, "The picture", notes)


def likeliest(
    scores: Mapping[str, float],
    names: Mapping[str, str],
    top_k: int | None = None,
    mass: float | None = None,
) -> dict[str, float]:
    """The `top_k` highest scores, or the fewest that sum to `mass`; all of them if they do not.

    Keys become names, and the scores of keys with the same name are summed.
    """
    found: dict[str, float] = {}
    for key, score in scores.items():
        found[names[key]] = found.get(names[key], 0.0) + score
    if top_k is None and mass is None:
        return found
    kept: dict[str, float] = {}
    reached = 0.0
    for name, score in sorted(found.items(), key=lambda one: (-one[1], one[0])):
        if len(kept) == top_k or (mass is not None and reached >= mass - ROUNDING):
            break
        kept[name] = score
        reached += score
    return kept
