"""Pictures on disk: decoded pictures that are too many for memory, in a mapped file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.backbones.preprocessing import Preprocessing
from ltpll.errors import InputError
from ltpll.files import cannot_write_error
from ltpll.formatting import format_bytes
from ltpll.pictures.cache import VARIABLE, WAY_OUT, embedding_cache_folder
from ltpll.pictures.files import Pictures, read_pictures

IN_MEMORY = 1 << 30  # bytes of pictures up to which they are read into memory
BLOCK = 256  # rows that are copied at once


def stored_pictures(
    folder: Path,
    paths: Sequence[str],
    preprocessing: Preprocessing,
    cache: Path | None = None,
    *,
    on_error: str = "stop",
    on_progress: Callable[[int, int], None] | None = None,
) -> Pictures:
    """Read pictures as `read_pictures` does, but more than a gibibyte of them into a file.

    The file has no name, so that it is gone when the array is.

    Args:
        folder: The folder that the paths are relative to.
        paths: One file per row.
        preprocessing: How pictures become squares.
        cache: The folder of the file, which few pictures do not need; by default
            `embedding_cache_folder()`.
        on_error: "stop" at the first picture that cannot be read, or "skip" such pictures.
        on_progress: Called with the number of pictures read so far and the total.

    Returns:
        The pictures, as an array that is mapped from the file if they are many.

    Raises:
        InputError: As `read_pictures`, or the disk is full.
    """
    shape = (len(paths), preprocessing.side, preprocessing.side, 3)
    into = None
    if prod(shape) > IN_MEMORY:
        into = _new_nameless_array(
            (cache or embedding_cache_folder()) / "pictures", np.dtype(np.uint8), shape
        )
    return read_pictures(
        folder, paths, preprocessing, on_error=on_error, on_progress=on_progress, into=into
    )


def rows_on_disk(x: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Copy some rows of an array, into memory or, if it is mapped from a file, into another."""
    if not isinstance(x, np.memmap) or x.filename is None:
        return x[rows]
    copied = _new_nameless_array(Path(x.filename).parent, x.dtype, (len(rows), *x.shape[1:]))
    for start in range(0, len(rows), BLOCK):
        copied[start : start + BLOCK] = x[rows[start : start + BLOCK]]
    return copied


def _new_nameless_array(
    folder: Path, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """A new array in a file of this folder that is deleted with it."""
    n_bytes = prod(shape) * dtype.itemsize
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if n_bytes > free:
            raise InputError(
                f"Decoded pictures take {format_bytes(n_bytes)}, but the disk of {folder} has "
                f"{format_bytes(free)} left: free some, set {VARIABLE} to a folder on another "
                "disk, or choose a smaller side."
            )
        handle, name = tempfile.mkstemp(prefix=".pictures-", suffix=".npy", dir=folder)
        os.close(handle)
        try:
            return np.lib.format.open_memmap(name, "w+", dtype, shape)
        finally:
            with suppress(OSError):  # Windows deletes no open file
                Path(name).unlink()
    except OSError as error:
        raise cannot_write_error(folder, error, WAY_OUT) from error
