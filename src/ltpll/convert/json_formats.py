"""JSON formats: which labelling tool or detector wrote a file, by its content, and reading it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ltpll.candidates.scores import tempered
from ltpll.convert.coco import read_coco
from ltpll.convert.detections import read_megadetector, read_speciesnet
from ltpll.convert.json_examples import JsonExamples
from ltpll.convert.json_stream import Item, json_items
from ltpll.convert.label_studio import read_label_studio
from ltpll.errors import InputError
from ltpll.tables.streaming import ReadProgress, check_is_file

if TYPE_CHECKING:
    from ltpll.tables.reading import Reading

Format = Literal["Label Studio", "SpeciesNet", "MegaDetector", "COCO"]
UNDERSTOOD = "an export of Label Studio (JSON or JSON-MIN), predictions of SpeciesNet, results of MegaDetector, or annotations of COCO"
# The options of `Reading` that a format has; all others name columns of a table.
OPTIONS: dict[str, tuple[str, ...]] = {
    "Label Studio": ("annotators", "vote_weights", "control", "path"),
    "SpeciesNet": ("top_k", "mass", "scores"),
    "MegaDetector": ("top_k", "mass", "scores"),
    "COCO": ("objects",),
}
ALWAYS = ("classes", "features")


def json_format(path: Path) -> Format | None:
    """The tool that wrote a file; None if it is none of those that are understood. Reads only the beginning of the file.

    Raises:
        InputError: The file is not JSON.
    """
    check_is_file(path)
    with closing(json_items(path)) as items:
        for item in items:
            found = _format_of(item)
            if found is not None or item.key == "":
                return found
    return None


def _format_of(item: Item) -> Format | None:
    """The format that an item belongs to; None if it could belong to any."""
    names = item.value.keys() if isinstance(item.value, dict) else set()
    if item.key == "" and (
        "data" in names or names & {"annotations", "completions", "annotator", "annotation_id"}
    ):
        return "Label Studio"
    if item.key in ("", "predictions") and "filepath" in names:
        return "SpeciesNet"
    if (item.key in ("", "images") and "file" in names) or item.key in (
        "detection_categories",
        "classification_categories",
    ):
        return "MegaDetector"
    if (item.key == "images" and "file_name" in names) or (
        item.key == "annotations" and "image_id" in names
    ):
        return "COCO"
    return None


def read_json(
    path: Path,
    reading: Reading,
    *,
    needs_candidates: bool = True,
    on_progress: ReadProgress | None = None,
) -> JsonExamples:
    """Read a file of a labelling tool or a detector.

    Args:
        path: A .json, .jsonl or .ndjson file.
        reading: The options of the format; options that only tables have are refused.
        needs_candidates: Whether examples without labels are skipped; otherwise all are returned, with candidates if all have some.
        on_progress: Called with the number of bytes read so far and the total.

    Raises:
        InputError: The file cannot be read, or an option does not fit its format.
    """
    written_by = json_format(path)
    if written_by is None:
        raise InputError(
            f"{path} is none of the JSON files that are understood: give {UNDERSTOOD}; or a table (.csv, .tsv, .parquet)."
        )
    given = [name for name in reading.given() if getattr(reading, name) is not None]
    foreign = next((name for name in given if name not in (*OPTIONS[written_by], *ALWAYS)), None)
    if foreign is not None or reading.features:
        option = foreign or "features"
        raise InputError(f"{option} does not apply to {path} (of {written_by}): leave it out.")
    how: dict[str, Any] = {
        "classes": reading.classes,
        "needs_candidates": needs_candidates,
        "on_progress": on_progress,
    }
    if written_by == "Label Studio":
        votes: dict[str, Any] = {
            "rule": reading.annotators or "union",
            "vote_weights": reading.vote_weights,
        }
        pictures: dict[str, Any] = {
            "picture": reading.path if "path" in given else None,
            "pictures": reading.path is not None,
        }
        found = read_label_studio(path, control=reading.control, **pictures, **votes, **how)
    elif written_by == "COCO":
        found = read_coco(path, objects=reading.objects, **how)
    else:
        read = read_speciesnet if written_by == "SpeciesNet" else read_megadetector
        found = read(path, top_k=reading.top_k, mass=reading.mass, **how)
        if (
            found.candidates is not None and found.candidates.weights is not None
        ):  # as the scores in the cells of a table
            weights = (
                None if reading.scores == "none" else tempered(found.candidates.weights.numpy())
            )
            found = replace(found, candidates=found.candidates.with_weights(weights))
    return replace(found, notes=(f"Read as a file of {written_by}.", *found.notes))
