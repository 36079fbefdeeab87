"""Files: atomic writes, output paths, locks, JSON, and the versions of our own formats."""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ltpll.errors import InputError, shown

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
PROBE = 1 << 16  # bytes, enough to fail on a full disk


def write_atomically(path: Path, content: bytes, keep: Path | None = None) -> None:
    """Write a file so that readers see either the old or the new content, even if power fails.

    With `keep`, the old file is renamed to that when the new one is ready.
    """
    write_when_complete(path, lambda file: file.write(content), keep)


def write_when_complete(
    path: Path, write: Callable[[Any], object], keep: Path | None = None
) -> None:
    """As `write_atomically`, with a function that is given the open binary file.

    A symbolic link is followed: the file that it names is written, and the link stays.
    """
    real = followed(path)
    temporary = real.with_name(f".{real.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and real.exists():
            real.replace(keep)
        temporary.replace(real)
        _sync_folder(real.parent)
    except OSError as error:
        raise cannot_write_error(path, error) from error
    finally:
        with suppress(OSError):  # a folder that cannot be written to may not allow deleting either
            temporary.unlink(missing_ok=True)


def followed(path: Path) -> Path:
    """The file that a path names through symbolic links, whether it exists or not."""
    return Path(os.path.realpath(path))


def check_output(path: Path, suffixes: Sequence[str], *, makes_folder: bool = False) -> None:
    """Refuse a path to which no file with one of these suffixes can be written.

    Call this before computing. `makes_folder` says that a missing folder will be created, unless a
    link leads to it.
    """
    real = followed(path)
    for one in (path, real):
        if one.suffix.lower() not in suffixes:
            kinds = ", ".join(suffixes)
            raise InputError(f"{one} must end in {kinds}, which determines the format.")
    if real.is_dir():
        raise InputError(f"{path} is a folder: give the name of a file.")
    if not real.parent.is_dir() and (path.is_symlink() or not makes_folder):
        folder = real.parent if path.is_symlink() else path.parent
        raise InputError(f"There is no folder {folder} to write {path} to: create it first.")


def cannot_write_error(
    path: Path, error: OSError, way_out: str = "choose another place"
) -> InputError:
    what = f"{path} cannot be written ({error.strerror or error})"
    return InputError(f"{what}: free some space or {way_out}, then try again.")


def acquire_lock(path: Path, busy: InputError | None = None) -> AbstractContextManager[object]:
    """Hold a lock file until the end of the `with` block, or until this process dies.

    If another process holds it, `busy` is raised; without `busy`, this waits.
    """
    try:
        return FileLock(path).acquire(blocking=busy is None)
    except Timeout:
        assert busy is not None
        raise busy from None
    except (OSError, NotImplementedError) as error:  # the latter for ENOSYS, by older versions
        if isinstance(error, OSError) and error.errno not in NO_LOCKS:
            raise
        what = f"The file system of {path.parent} does not support file locks"
        raise InputError(
            f"{what}: choose a folder on another one, such as a local disk."
        ) from error


def check_writable(folder: Path, way_out: str = "choose another place") -> None:
    """Refuse a folder that cannot be written to, before hours of work are spent on its content."""
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
    """The folder of what can be made or loaded again: by default in the user's cache folder."""
    try:
        if chosen := os.environ.get(variable):
            return Path(chosen).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ltpll"
    except RuntimeError:
        what = "There is no home folder for the cache folder to be in"
        raise InputError(f"{what}: set {variable} to a folder.") from None


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Delete temporary files of a process that was killed while writing `name`."""
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
    """Say that a file has another version of the format `own`; None if it has not."""
    same_kind = isinstance(found, str) and found.rpartition("-")[0] == own.rpartition("-")[0]
    if found == own or not same_kind:
        return None
    return f"has the format {shown(found)}, and this version of ltpll reads {own!r}"
