"""Detections: classes with scores, as SpeciesNet and MegaDetector write them for each picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

from ltpll.candidates.parsing import ROUNDING
from ltpll.convert.examples import NUMBER, Converted, JsonFile, listed, required, skipped, with_sets
from ltpll.errors import InputError, shown
from ltpll.tables.json_stream import Item, json_items

# Parts of a class of SpeciesNet: number, class, order, family, genus, species, common name.
TAXON = 7
PICTURE = "filepath"  # what SpeciesNet calls the path of a picture


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
    """Read the predictions of SpeciesNet: the classes of each picture with their scores.

    Raises:
        InputError: The file cannot be read, or no picture has classes.
    """
    items = json_items(source.path, source.on_progress)
    return _read_pictures(
        source, items, "predictions", PICTURE, lambda _, entry: entry.get("classifications")
    )


def read_megadetector(source: JsonFile) -> Converted:
    """Read the results of MegaDetector and a classifier.

    Of each picture, the classified detection with the highest confidence counts.

    Raises:
        InputError: The file cannot be read, or no picture has classes.
    """
    items = [*json_items(source.path, source.on_progress)]
    names = next((one.value for one in items if one.key == "classification_categories"), None)

    def classes_of(where: str, entry: Any) -> Any:
        classified = [
            required(where, detection, conf=NUMBER, classifications=list)
            for detection in listed(where, entry, "detections")
            if listed(where, detection, "classifications")
        ]
        best: list[Any] = max(classified, key=itemgetter(0), default=(0, []))[1]
        if not all(isinstance(one, list) and len(one) == 2 for one in best):
            which = "a classification that is not a category and its score"
            raise InputError(f"{where} has {which}: run the classifier again.")
        of_names = f"The member 'classification_categories' of {source.path}"
        classes = [required(of_names, names, **{str(key): str})[0] for key, _ in best]
        return {"classes": classes, "scores": [score for _, score in best]}

    return _read_pictures(source, items, "images", "file", classes_of)


def _read_pictures(
    source: JsonFile,
    items: Iterable[Item],
    pictures_in: str,
    key_of_path: str,
    classes_of: Callable[[str, Any], Any],
) -> Converted:
    path, limits = source.path, source.reading
    scored: dict[str, dict[str, float]] = {}  # by picture
    for key, number, entry in items:
        if key not in ("", pictures_in):
            continue
        (picture,) = required(f"Entry {number} of {path}", entry, **{key_of_path: str})
        where = f"The picture {shown(picture)} of {path}"
        picture = picture.replace("\\", "/")
        if picture in scored:
            raise InputError(f"{where} occurs twice: rename or drop one of the two.")
        scores = _scores(where, classes_of(where, entry) or {"classes": [], "scores": []})
        scored[picture] = likeliest(scores, limits.top_k, limits.mass)
    sets = [*scored.values()]
    if not sets:
        raise InputError(f"{path} has no pictures: give at least one.")
    if source.needs_candidates and not any(sets):
        raise InputError(
            f"No picture of {path} has classes with scores, and detections alone say nothing about "
            "the class: run a classifier such as SpeciesNet on the pictures."
        )
    notes: tuple[str, ...] = ()
    if source.needs_candidates:
        notes = skipped(sets.count({}), len(sets), "picture", "no classification")
    columns = {"id": [*scored], "path": [*scored]}
    return with_sets(source, columns, sets, "The picture", notes)


def _scores(where: str, given: Any) -> dict[str, float]:
    """The scores of a picture by the names of classes; those of classes with one name are added."""
    classes, numbers = required(where, given, classes=list, scores=list)
    if len(classes) != len(numbers):
        raise InputError(f"{where} has not as many scores as classes: run the classifier again.")
    scores: dict[str, float] = {}
    for text, score in zip(classes, numbers, strict=True):
        if not isinstance(text, str) or not text.strip():
            which = f"the class {shown(text)}, which is not a name"
            raise InputError(f"{where} has {which}: run the classifier again.")
        if type(score) not in (int, float) or not 0 <= score <= 1 + ROUNDING:
            which = f"the score {shown(score)} for {shown(text)}"
            raise InputError(
                f"{where} has {which}: scores lie between 0 and 1; turn logits into probabilities "
                "first."
            )
        if score > 0:
            name = class_name(text)
            scores[name] = scores.get(name, 0.0) + score
    return scores


def likeliest(
    scores: Mapping[str, float], top_k: int | None = None, mass: float | None = None
) -> dict[str, float]:
    """The `top_k` highest scores, or the fewest that sum to `mass`; all of them if they do not."""
    if top_k is None and mass is None:
        return dict(scores)
    kept: dict[str, float] = {}
    for name, score in sorted(scores.items(), key=lambda one: (-one[1], one[0])):
        if len(kept) == top_k or (mass is not None and sum(kept.values()) >= mass - ROUNDING):
            break
        kept[name] = score
    return kept
