"""SpeciesNet: the classes that it predicts for each picture, with their scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ltpll.candidates.parsing import ROUNDING
from ltpll.convert.examples import Converted, JsonFile, required, skipped
from ltpll.errors import InputError, shown
from ltpll.tables.json_stream import json_items
from ltpll.tables.memory_limits import check_expansion
from ltpll.tables.reading import Reading

# Parts of a class: number, class, order, family, genus, species, common name.
TAXON = 7
PICTURE = "filepath"  # the member that names the picture


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
    path, limits = source.path, source.reading
    scored: dict[str, dict[str, float]] = {}  # by picture
    for key, number, entry in json_items(path, source.on_progress):
        if key not in ("", "predictions"):
            continue
        (picture,) = required(f"Entry {number} of {path}", entry, **{PICTURE: str})
        where = f"The picture {shown(picture)} of {path}"
        picture = picture.replace("\\", "/")
        if picture in scored:
            raise InputError(f"{where} occurs twice: rename or drop one of the two.")
        scores = _scores(where, entry.get("classifications") or {"classes": [], "scores": []})
        scored[picture] = likeliest(scores, limits.top_k, limits.mass)
    if not scored:
        raise InputError(f"{path} has no pictures: give at least one.")
    if source.needs_candidates and not any(scored.values()):
        raise InputError(f"No picture of {path} has classes with scores: run SpeciesNet again.")
    columns: dict[str, list[str]] = {"id": [*scored]}
    names = {name for scores in scored.values() for name in scores}
    are_classes = limits.classes is None or names <= {*limits.classes}
    notes: tuple[str, ...] = ()
    # In new examples, sets do not matter unless all of them are of known classes.
    if source.needs_candidates or (all(scored.values()) and are_classes):
        kept = {picture: scores for picture, scores in scored.items() if scores}
        notes = skipped(len(scored) - len(kept), len(scored), "picture", "no classification")
        cells = [json.dumps(scores, ensure_ascii=False) for scores in kept.values()]
        columns = {"id": [*kept], "candidates": cells}
        advice = "give pictures fewer classes"
        check_expansion(path, path.stat().st_size, sum(map(len, cells)), advice)
    columns["path"] = columns["id"]
    reading = Reading(classes=limits.classes, scores=limits.scores)
    return Converted(columns, reading, "The picture", notes)


def _scores(where: str, given: Any) -> dict[str, float]:
    """The scores of a picture by the names of classes; those of classes with one name are added."""
    classes, numbers = required(where, given, classes=list, scores=list)
    if len(classes) != len(numbers):
        raise InputError(f"{where} has not as many scores as classes: run SpeciesNet again.")
    scores: dict[str, float] = {}
    for text, score in zip(classes, numbers, strict=True):
        if not isinstance(text, str) or not text.strip():
            which = f"the class {shown(text)}, which is not a name"
            raise InputError(f"{where} has {which}: run SpeciesNet again.")
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
