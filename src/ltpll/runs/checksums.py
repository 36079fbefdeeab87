"""Checksums: the sums in a finished run's marker, by which damaged files are found."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from ltpll.errors import InputError
from ltpll.runs.run_files import RunFile

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
    expected, problem = checksums(path.parent).get(path.name), ""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        problem = f"its file {path.name} is missing"
    except OSError as error:
        problem = f"its file {path.name}: {error.strerror or error}"
    else:
        if expected is None:
            problem = f"there is no checksum of its file {path.name}"
        elif _sha256(content) != expected:
            problem = f"its file {path.name} is damaged or not the file that the run wrote"
    if problem:
        advice = "rerun the command that trained it to restore it"
        raise unreadable_run(path.parent, problem, advice)
    return content


def damaged_files(folder: Path) -> list[str]:
    """The missing or changed files of a finished run; the marker itself if it lists none."""
    sums = checksums(folder)
    if not sums:
        return [RunFile.MARKER] if (folder / RunFile.MARKER).exists() else []
    found = []
    for name in sums:
        try:
            read_checked(folder / name)
        except InputError:
            found.append(name)
    return found


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
