"""Files: writing one so that nobody ever meets half of it, saying why it cannot be written, and JSON that may be anybody's."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ltpll.errors import InputError

PROBE = 1 << 16  # bytes: enough for a full disk to say so


def write_atomically(path: Path, content: bytes, keep: Path | None = None) -> None:
    """Write a file so that a reader, or a power cut, meets either the old content or the new, never a part.

    With `keep`, the old file takes that name when the new one is ready; for a moment between the two moves there is only that one.
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
        raise cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def cannot_write(path: Path, error: OSError) -> InputError:
    return InputError(f"{path} cannot be written ({error.strerror or error}): make room there or choose another place, then try again.")


def check_writable(folder: Path) -> None:
    """Refuse a folder that takes no files, before hours of work are put into what should go there."""
    probe = folder / f".probe.{os.getpid()}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(bytes(PROBE))
    except OSError as error:
        raise cannot_write(folder, error) from error
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Delete what a process that was killed while it wrote `name` has left; nobody else may be writing it."""
    for path in folder.glob(f".{name}.*.tmp"):
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Have the new name outlive a power cut too; some file systems cannot promise that, which is no reason to stop."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def parse_json(content: str | bytes) -> Any:
    """JSON; lists that lie too deep in each other are a ValueError, as all other damage is."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("its lists lie too deep in each other") from None
