"""Checksums: the sums in a finished run's marker, by which damaged files are found."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from ltpll.errors import InputError
from ltpll.runs.run_files import RunFile

RESTORE = "rerun the command that trained it to restore it"
_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9._-]+)")


def unreadable_run(folder: Path, problem: str, advice: str) -> InputError:
    """The error for every run folder that cannot be used, whatever the reason."""
    return InputError(f"The run {folder} cannot be read ({problem}): {advice}.")


def marker_text(folder: Path, names: Iterable[str]) -> bytes:
    """The content of a marker for some files of a folder; `sha256sum --check done` reads it too."""
    lines = (f"{_sha256((folder / name).read_bytes())}  {name}\n" for name in sorted(names))
    return "".join(lines).encode()


def checksums(folder: Path) -> dict[str, str]:
    """The sums in a folder's marker by file name; empty if the marker is missing or damaged."""
    try:
        lines = (folder / RunFile.MARKER).read_bytes().decode("ascii").split("\n")
    except (OSError, UnicodeDecodeError):
        return {}
    found = [_LINE.fullmatch(line) for line in lines[:-1]]
    return {line[2]: line[1] for line in found if line} if all(found) and not lines[-1] else {}


def read_checked(path: Path) -> bytes:
    """Read a file of a finished run.

    Raises:
        InputError: The file is missing, was changed, or belongs to another run.
    """
    folder, expected = path.parent, checksums(path.parent).get(path.name)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise unreadable_run(folder, f"its file {path.name} is missing", RESTORE) from None
    except OSError as error:
        problem = f"its file {path.name}: {error.strerror or error}"
        raise unreadable_run(folder, problem, RESTORE) from None
    if expected is None:
        raise unreadable_run(folder, f"there is no checksum of its file {path.name}", RESTORE)
    if _sha256(content) != expected:
        problem = f"its file {path.name} is damaged or not the file that the run wrote"
        raise unreadable_run(folder, problem, RESTORE)
    return content


def damaged_files(folder: Path) -> list[str]:
    """The missing or changed files of a finished run; the marker itself if it lists none."""
    sums = checksums(folder)
    if not sums:
        return [RunFile.MARKER] if (folder / RunFile.MARKER).exists() else []
    return [name for name, expected in sums.items() if not _is_intact(folder / name, expected)]


def _is_intact(path: Path, expected: str) -> bool:
    try:
        return _sha256(path.read_bytes()) == expected
    except OSError:
        return False


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
