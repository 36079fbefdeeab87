"""Pictures on disk: decoded pictures that are too many for memory, in a file that is mapped into it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.backbones.preprocessing import Preprocessing
from ltpll.errors import InputError
from ltpll.files import parse_json, write_atomically
from ltpll.formatting import format_bytes
from ltpll.pictures.cache import VARIABLE, cache_root
from ltpll.pictures.decoding import decoded_blocks
from ltpll.pictures.embedding import chosen_workers
from ltpll.pictures.files import (
    DECODING,
    Geometry,
    Pictures,
    all_unreadable,
    check_on_error,
    picture_files,
    read_pictures,
    split_box,
    unreadable,
)

IN_MEMORY = 1 << 30  # bytes of pictures up to which they are read into memory
BLOCK = 256  # pictures that are decoded at once


def stored_pictures(
    folder: Path,
    paths: Sequence[str],
    preprocessing: Preprocessing,
    cache: Path | None = None,
    *,
    on_error: str = "stop",
    on_progress: Callable[[int, int], None] | None = None,
) -> Pictures:
    """Read pictures as `read_pictures` does, but more than a gibibyte of them into a file, which later calls use again.

    The file belongs to these paths, to the sizes and times of the files, and to the preprocessing.

    Args:
        folder: The folder that the paths are relative to.
        paths: One file per row.
        preprocessing: How pictures become squares.
        cache: The folder of the file; by default `cache_root()`, which few pictures do not need.
        on_error: "stop" at the first picture that cannot be read, or "skip" such pictures.
        on_progress: Called with the number of pictures read so far and the total.

    Returns:
        The pictures, as an array that is mapped from the file if they are many.

    Raises:
        InputError: As `read_pictures`, or the disk is full.
    """
    n, geometry = len(paths), Geometry.of(preprocessing)
    shape = (n, geometry.side, geometry.side, 3)
    if np.prod(shape, dtype=np.int64) <= IN_MEMORY:
        return read_pictures(
            folder, paths, preprocessing, on_error=on_error, on_progress=on_progress
        )
    check_on_error(on_error)
    files = picture_files(folder, paths)
    path = (cache or cache_root()) / "pictures" / f"{_key(files, geometry)}.npy"
    problems = _stored(path, shape)
    if problems is None:
        _check_space(path, int(np.prod(shape, dtype=np.int64)))
        problems = _decode(path, shape, folder, paths, files, geometry, on_error, on_progress)
    elif problems and on_error == "stop":
        row = min(problems)
        raise unreadable(folder, str(paths[row]), row, problems[row])
    if len(problems) == n:
        raise all_unreadable(folder, n, str(paths[0]), problems[0])
    images = np.load(path, mmap_mode="r")
    kept = np.asarray([i for i in range(n) if i not in problems], dtype=np.int64)
    listed = [(str(paths[i]), reason) for i, reason in sorted(problems.items())]
    return Pictures(images if not problems else rows_on_disk(images, kept), kept, listed)


def rows_on_disk(x: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Some rows of an array: a copy in memory, or in another file beside it if it is mapped from a file.

    The file has no name, so that it is gone when the array is.
    """
    if not isinstance(x, np.memmap) or x.filename is None:
        return x[rows]
    handle, name = tempfile.mkstemp(prefix=".rows-", suffix=".npy", dir=Path(x.filename).parent)
    os.close(handle)
    try:
        copied = np.lib.format.open_memmap(name, "w+", x.dtype, (len(rows), *x.shape[1:]))
        for start in range(0, len(rows), BLOCK):
            copied[start : start + BLOCK] = x[rows[start : start + BLOCK]]
    finally:
        with suppress(OSError):  # Windows deletes no open file
            Path(name).unlink()
    return copied


def _key(files: Sequence[str], geometry: Geometry) -> str:
    digest = hashlib.sha256(repr((DECODING, geometry)).encode())
    for file in files:
        state = file_state(file)
        digest.update(
            repr((file, None) if state is None else (file, *state)).encode(errors="surrogateescape")
        )
    return digest.hexdigest()[:32]


def file_state(file: str) -> tuple[int, int] | None:
    """The size of a picture's file and the time of its last change in nanoseconds; None if there is none."""
    try:
        found = Path(split_box(file)[0]).stat()
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns


def _stored(path: Path, shape: tuple[int, ...]) -> dict[int, str] | None:
    """The problems of the pictures in a file; None if there is no complete file."""
    try:
        problems = {
            int(row): str(reason)
            for row, reason in parse_json(path.with_suffix(".json").read_bytes()).items()
        }
        whole = np.load(path, mmap_mode="r").shape == shape
    except (OSError, ValueError, AttributeError, TypeError):
        return None
    return problems if whole else None


def _check_space(path: Path, n_bytes: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise InputError(
            f"The folder {path.parent} for decoded pictures cannot be used ({error.strerror}): set {VARIABLE}."
        ) from None
    if n_bytes > free:
        raise InputError(
            f"Decoded pictures take {format_bytes(n_bytes)}, but the disk of {path.parent} has {format_bytes(free)} left: "
            f"free some, set {VARIABLE} to a folder on another disk, or choose a smaller side."
        )


def _decode(
    path: Path,
    shape: tuple[int, ...],
    folder: Path,
    paths: Sequence[str],
    files: Sequence[str],
    geometry: Geometry,
    on_error: str,
    on_progress: Callable[[int, int], None] | None,
) -> dict[int, str]:
    handle, name = tempfile.mkstemp(prefix=".decoding-", suffix=".npy", dir=path.parent)
    os.close(handle)
    problems: dict[int, str] = {}
    try:
        images = np.lib.format.open_memmap(name, "w+", np.uint8, shape)
        with closing(
            decoded_blocks(files, geometry, block=BLOCK, workers=chosen_workers(None, len(files)))
        ) as blocks:
            for block in blocks:
                images[block.first : block.first + len(block.outcomes)] = block.pixels
                problems |= {
                    block.first + i: outcome.problem
                    for i, outcome in enumerate(block.outcomes)
                    if outcome.problem
                }
                if problems and on_error == "stop":
                    row = min(problems)
                    raise unreadable(folder, str(paths[row]), row, problems[row])
                if on_progress is not None:
                    on_progress(block.first + len(block.outcomes), len(files))
        images.flush()
        write_atomically(path.with_suffix(".json"), json.dumps(problems).encode())
        Path(name).replace(path)  # last: without it, the file of problems is ignored
    finally:
        Path(name).unlink(missing_ok=True)
    return problems
