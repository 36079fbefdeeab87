"""Records: reading those of all runs in a folder, or of a folder of committed results."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from ltpll.errors import InputError, InputWarning
from ltpll.files import parse_json
from ltpll.runs.run import FORMAT, Record, read_result
from ltpll.runs.run_files import RunFile


def finished_runs(folder: Path, *, skip_damaged: bool = False) -> list[Record]:
    """The records of all finished runs and of all result files directly in a folder.

    With `skip_damaged`, a run whose record is missing or damaged causes a warning, not an error.
    JSON files of another kind are skipped.
    """
    found = []
    for marker in sorted(folder.glob(f"*/{RunFile.MARKER}")):
        try:
            found.append(read_result(marker.parent / RunFile.RESULT))
        except InputError as error:
            if not skip_damaged:
                raise
            warnings.warn(str(error), InputWarning, stacklevel=2)
    return [*found, *_read_records(folder.glob("*.json"))]


def results_under(folder: Path) -> Iterator[Record]:
    """All records of a folder of committed results (`*.json`), in a stable order."""
    return _read_records(folder.rglob("*.json"))


def _read_records(paths: Iterable[Path]) -> Iterator[Record]:
    return (read_result(path) for path in sorted(paths) if not _is_of_another_kind(path))


def _is_of_another_kind(path: Path) -> bool:
    """Whether a file is intact JSON, but not a record of any version."""
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return False
    kind = str(content.get("format")) if isinstance(content, dict) else ""
    return not kind.startswith(FORMAT.rpartition("-")[0])
