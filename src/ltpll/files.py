"""Files: atomic writes, checks that a folder is writable, parsing of untrusted JSON, and the versions of our own formats."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ltpll.errors import InputError, shown

PROBE = 1 << 16  # bytes, enough to fail on a full disk


def write_atomically(path: Path, content: bytes, keep: Path | None = None) -> None:
    """Write a file so that readers see either the old or the new content, even after a power failure.

    With `keep`, the old file is renamed to that when the new one is ready; between the two renames, `path` does not exist.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            path.replace(keep)
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise cannot_write_error(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def cannot_write_error(path: Path, error: OSError, way_out: str = "choose another place") -> InputError:
    return InputError(f"{path} cannot be written ({error.strerror or error}): free some space or {way_out}, then try again.")


def check_writable(folder: Path, way_out: str = "choose another place") -> None:
    """Refuse a folder that cannot be written to, before hours of work are spent on its content; the message names the way out."""
    probe = folder / f".probe.{os.getpid()}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(bytes(PROBE))
    except OSError as error:
        raise cannot_write_error(folder, error, way_out) from error
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


def cache_folder(variable: str) -> Path:
    """The folder of what can be made or loaded again: that of the environment variable, or else ltpll in the user's cache folder.

    Raises:
        InputError: The user has no home folder.
    """
    chosen, user = os.environ.get(variable), os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(chosen).expanduser() if chosen else (Path(user) if user else Path.home() / ".cache") / "ltpll"
    except RuntimeError:
        raise InputError(f"There is no home folder for the cache folder to be in: set {variable} to a folder.") from None


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Delete temporary files of a process that was killed while writing `name`; no other process may be writing it."""
    for path in folder.glob(f".{name}.*.tmp"):
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the new name durable; file systems that do not support this are ignored."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def parse_json(content: str | bytes) -> Any:
    """Parse JSON; lists nested too deeply are a ValueError, like all other errors."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("its lists are nested too deeply") from None


def other_version(found: object, own: str) -> str | None:
    """Say that a file has another version of the format `own`, such as ltpll-run-1; None if it has not, or is not of this format at all."""
    if found == own or not isinstance(found, str) or found.rpartition("-")[0] != own.rpartition("-")[0]:
        return None
    return f"has the format {shown(found)}, and this version of ltpll reads {own!r}"
