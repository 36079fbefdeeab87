"""Open: the examples of any file: a table, a file of another program, or a folder of pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ltpll.convert.coco import read_coco
from ltpll.convert.detections import PICTURE, read_megadetector, read_speciesnet
from ltpll.convert.examples import Converted, JsonFile
from ltpll.convert.label_studio import TASK, read_label_studio
from ltpll.convert.matlab import convert_mat
from ltpll.errors import InputError, shown
from ltpll.pictures.files import list_pictures
from ltpll.tables.json_stream import JSON_SUFFIXES, LINES, json_items
from ltpll.tables.opening import open_table
from ltpll.tables.read_tables import LabelTable, read_table
from ltpll.tables.reading import DEFAULT_READING, HELD_OUT, TRAINING, Reading
from ltpll.tables.streaming import ArrowTable, ReadProgress, require_file

if TYPE_CHECKING:
    from ltpll.candidates import Candidates

MATLAB = ".mat"
Format = Literal["Label Studio", "SpeciesNet", "MegaDetector", "COCO"]
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


def read_label_table(
    path: Path | Any,
    reading: Reading = DEFAULT_READING,
    *,
    needs_candidates: bool = True,
    exact: bool = False,
    every_kind: bool = False,
    on_progress: ReadProgress | None = None,
) -> LabelTable:
    """Read a table, a .mat file, JSON of a labelling tool or detector, or a folder of pictures.

    The sets of a folder's pictures are the names of the folders in it, such as `cat|fox`; those of
    pictures that are in none of them are empty. If all of these folders are splits, such as `train`
    and `test`, the sets are the folders in them. Sets that are not needed are not read.

    The arguments, what is returned and the errors are those of `read_table`.
    """
    how: dict[str, Any] = {"exact": exact, "every_kind": every_kind}
    if isinstance(path, (str, Path)):
        path = Path(path)
        made = _converted(path, reading, needs_candidates, on_progress)
        if made is not None:
            return made.read(path, needs_candidates, **how)
        if path.is_dir():
            path = _table_of_folder(path, with_sets=needs_candidates)
    return read_table(
        path, reading, needs_candidates=needs_candidates, on_progress=on_progress, **how
    )


def _table_of_folder(folder: Path, *, with_sets: bool) -> ArrowTable:
    """The pictures of a folder, whose sets are the names of the folders that they are in."""
    import pyarrow as pa  # type: ignore[import-untyped]

    pictures = list_pictures(folder)
    columns = {"path": pictures}
    parts = [path.split("/") for path in pictures]
    if {own[0].lower() for own in parts} <= {*TRAINING, *HELD_OUT}:
        columns["split"] = [own[0] for own in parts]
        parts = [own[1:] for own in parts]
    if with_sets:
        columns["candidates"] = [own[0] if len(own) > 1 else "" for own in parts]
        if not any(columns["candidates"]):
            raise InputError(
                f"No picture in {folder} is in a folder that names its candidates: move them into "
                "folders such as 'cat' and 'cat|fox', or give a table of path and candidates."
            )
    return ArrowTable(
        pa.table(columns), folder, lambda i: f"The picture {shown(pictures[i], 200)} in {folder}"
    )


# ---- files of other programs ---------------------------------------------------------------------


def _converted(
    path: Path, reading: Reading, needs_candidates: bool, on_progress: ReadProgress | None
) -> Converted | None:
    """The file of another program as a table; None for a table or a folder."""
    if path.suffix.lower() == MATLAB and not path.is_dir():
        return convert_mat(path, reading, needs_candidates)
    if path.is_dir() or not is_tool_file(path):
        return None
    reading.check(is_json=True)
    tool = json_format(path)
    if tool is None:
        raise InputError(
            f"{path} is none of the JSON files that are understood: give an export of Label Studio "
            "(JSON, not JSON-MIN), predictions of SpeciesNet, results of MegaDetector, or "
            "annotations of COCO; or a table (.csv, .tsv, .parquet, .xlsx, .jsonl)."
        )
    known = (*OPTIONS[tool], "classes")
    for name in reading.given():
        # Without paths, ids or features, a file is read for its sets alone.
        if name not in known and getattr(reading, name) not in (None, ()):
            raise InputError(f"{name} does not apply to {path} (of {tool}): leave it out.")
    found = READERS[tool](JsonFile(path, reading, needs_candidates, on_progress))
    return replace(found, notes=(f"Read as a file of {tool}.", *found.notes))


def is_tool_file(path: Path) -> bool:
    """Whether a file is JSON that is not a table; lines of JSON are, unless a tool wrote them."""
    kind = path.suffix.lower()
    if kind not in LINES or not path.is_file():
        return kind in JSON_SUFFIXES and kind not in LINES
    try:
        return json_format(path) is not None
    except InputError:  # whoever reads the table says what is wrong
        return False


def json_format(path: Path) -> Format | None:
    """The tool that wrote a file, by its beginning; None if it is none of those understood."""
    require_file(path)
    for key, _, value in json_items(path):
        names = value.keys() if isinstance(value, dict) else set()
        if "candidates" not in names:
            if key == "" and names & TASK:
                return "Label Studio"
            if key in ("", "predictions") and PICTURE in names:
                return "SpeciesNet"
            if key in ("detection_categories", "classification_categories"):
                return "MegaDetector"
            if key in ("", "images") and "file" in names:
                return "MegaDetector"
            if {"images": "file_name", "annotations": "image_id"}.get(key) in names:
                return "COCO"
        if key == "":
            return None
    return None


def read_as_plain_table(
    path: Path, reading: Reading, on_progress: ReadProgress | None = None
) -> Converted:
    """Read a file of another program as a table with the same examples, sets and labels.

    Where the file has scores, candidates are written with them, as in `{"fox": 0.6, "dog": 0.3}`.
    Where it has votes of annotators, the table has one row for each vote.

    Raises:
        InputError: The file cannot be read, or is a table already.
    """
    made = _converted(path, reading, True, on_progress)
    if made is None:
        raise InputError(
            f"{path} is not a file of a labelling tool, a detector or MATLAB (.json, .jsonl, "
            ".ndjson, .mat): tables are read by ltpll train as they are."
        )
    made.read(path, needs_candidates=True)  # refuses what training would refuse
    names = ("annotators", "annotation", "group")
    return replace(made, reading=Reading(**{name: getattr(made.reading, name) for name in names}))


# ---- sets alone ----------------------------------------------------------------------------------


class SetsOfFile(NamedTuple):
    """The candidate sets in a file."""

    candidates: Candidates
    notes: tuple[str, ...] = ()  # sentences about what was skipped


def read_candidates(
    path: Path, column: str | tuple[str, ...] | None = None, reading: Reading = DEFAULT_READING
) -> SetsOfFile:
    """Read candidate sets in every way that training can.

    Args:
        path: A table, a .mat file, JSON of a labelling tool or detector, or a folder of pictures.
        column: The column or columns that hold the sets; by default the only one, or else what
            `reading` names.
        reading: How to read a table; ids, paths and features are not read.

    Raises:
        InputError: The file cannot be read, or it is not clear which column holds the sets.
    """
    is_table = not (path.is_dir() or path.suffix.lower() == MATLAB or is_tool_file(path))
    made_of = reading.class_columns or reading.probability_columns or reading.annotators
    if column is not None and (made_of or not is_table):
        raise InputError(
            f"The sets of {path} cannot be read from the column {shown(column)}: omit --candidates."
        )
    if is_table and column is None and not made_of:
        names = open_table(path, reading.sheet).names
        column = names[0] if len(names) == 1 else None
    reading = replace(reading, features=(), candidates=column or reading.candidates)
    if not (is_table and reading.annotators):  # in a table of annotations, they may be the tasks
        reading = replace(reading, id=None, path=None)
    found = read_label_table(path, reading)
    assert found.candidates is not None
    return SetsOfFile(found.candidates, found.notes)
