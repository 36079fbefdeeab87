"""JSON formats: which labelling tool or detector wrote a file, by its content, and reading it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ltpll.convert.coco import read_coco
from ltpll.convert.detections import read_megadetector, read_speciesnet
from ltpll.convert.examples import Converted, JsonFile
from ltpll.convert.label_studio import read_label_studio
from ltpll.errors import InputError
from ltpll.tables.json_stream import JSON_SUFFIXES, LINES, Item, json_items
from ltpll.tables.reading import Reading
from ltpll.tables.streaming import ReadProgress, require_file

Format = Literal["Label Studio", "SpeciesNet", "MegaDetector", "COCO"]
UNDERSTOOD = (
    "an export of Label Studio (JSON or JSON-MIN), predictions of SpeciesNet, results of "
    "MegaDetector, or annotations of COCO"
)
READERS: dict[Format, Callable[[JsonFile], Converted]] = {
    "Label Studio": read_label_studio,
    "SpeciesNet": read_speciesnet,
    "MegaDetector": read_megadetector,
    "COCO": read_coco,
}
# The options of `Reading` that a format has; all others name columns of a table.
OPTIONS: dict[str, tuple[str, ...]] = {
    "Label Studio": ("annotators", "vote_weights", "control", "path"),
    "SpeciesNet": ("top_k", "mass", "scores"),
    "MegaDetector": ("top_k", "mass", "scores"),
    "COCO": ("objects",),
}


def json_format(path: Path) -> Format | None:
    """The tool that wrote a file, by its beginning; None if it is none of those understood."""
    require_file(path)
    for item in json_items(path):
        found = _format_of(item)
        if found is not None or item.key == "":
            return found
    return None


def is_tool_file(path: Path) -> bool:
    """Whether a file is JSON that is not a table; lines of JSON are, unless a tool wrote them."""
    kind = path.suffix.lower()
    if kind not in LINES or not path.is_file():
        return kind in JSON_SUFFIXES and kind not in LINES
    try:
        return json_format(path) is not None
    except InputError:  # whoever reads the table says what is wrong
        return False


def _format_of(item: Item) -> Format | None:
    """The format that an item belongs to; None if it could belong to any."""
    key = item.key
    names = item.value.keys() if isinstance(item.value, dict) else set()
    of_tasks = {"data", "annotations", "completions", "annotator", "annotation_id"}
    if "candidates" in names:
        return None
    if key == "" and names & of_tasks:
        return "Label Studio"
    if key in ("", "predictions") and "filepath" in names:
        return "SpeciesNet"
    if key in ("detection_categories", "classification_categories"):
        return "MegaDetector"
    if key in ("", "images") and "file" in names:
        return "MegaDetector"
    if {"images": "file_name", "annotations": "image_id"}.get(key) in names:
        return "COCO"
    return None


def convert_json(
    path: Path, reading: Reading, needs_candidates: bool, on_progress: ReadProgress | None = None
) -> Converted:
    """Read a file of a labelling tool or a detector; scores are the weights of the candidates.

    If candidates are needed, examples without labels are skipped; otherwise all are returned, with
    candidates if all have some.
    """
    reading.check(is_json=True)
    tool = json_format(path)
    if tool is None:
        raise InputError(
            f"{path} is none of the JSON files that are understood: give {UNDERSTOOD}; or a table "
            "(.csv, .tsv, .parquet, .xlsx, .jsonl)."
        )
    known = (*OPTIONS[tool], "classes")
    for name in reading.given():
        # Without paths, ids or features, a file is read for its sets alone.
        if name not in known and getattr(reading, name) not in (None, ()):
            raise InputError(f"{name} does not apply to {path} (of {tool}): leave it out.")
    found = READERS[tool](JsonFile(path, reading, needs_candidates, on_progress))
    return replace(found, notes=(f"Read as a file of {tool}.", *found.notes))
