"""Reading: many pictures decoded in threads, to an array in memory or, if they are many, on disk."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ltpll.backbones.preprocessing import Preprocessing
from ltpll.errors import InputError, shown
from ltpll.files import cannot_write_error
from ltpll.formatting import format_bytes
from ltpll.pictures.cache import VARIABLE, WAY_OUT, embedding_cache_folder
from ltpll.pictures.files import PictureError, decode_picture, picture_files, split_box

THREAD_LIMIT = 16
AHEAD = 32  # pictures that are decoded before they are asked for
PROGRESS_EVERY = 512  # pictures
IN_MEMORY = 1 << 30  # bytes of pictures up to which they are read into memory
BLOCK = 256  # rows that are copied at once
SIDES = (32, 64, 128)  # networks trained from scratch learn little from more pixels
SAMPLE = 200

R = TypeVar("R")


@dataclass(frozen=True)
class PictureRows:
    """`x[k]` is for the picture of row `kept[k]`; `problems` lists the other paths and why."""

    x: npt.NDArray[Any]  # pixels, (N, side, side, 3) uint8, or features, (N, d) float32
    kept: npt.NDArray[np.int64]
    problems: list[tuple[str, str]]


def read_pictures(
    folder: Path,
    paths: Sequence[str],
    side: int | Preprocessing,
    *,
    on_error: str = "stop",
    on_progress: Callable[[int, int], None] | None = None,
) -> PictureRows:
    """Read pictures as squares; transparent pictures get a white background.

    More than a gibibyte of them is stored in a file of the cache folder that has no name, so that
    it is gone when the array is. Paths are those of files in the folder, or of parts of them (see
    `with_box`). `side` is that of squares that are padded with black, or a backbone's
    preprocessing. `on_progress` is called with the number of pictures read so far and the total.

    Raises:
        InputError: A picture cannot be read and `on_error` is not "skip", a path leads out of the
            folder, no picture can be read, or the disk is full.
    """
    how = side if isinstance(side, Preprocessing) else Preprocessing(side)
    n, shape = len(paths), (len(paths), how.side, how.side, 3)
    if prod(shape) <= IN_MEMORY:
        images = np.zeros(shape, np.uint8)
    else:
        images = _nameless_array(shape, np.uint8)
    kept: list[int] = []
    problems: list[tuple[str, str]] = []
    decode = partial(decode_picture, how=how)
    with closing(call_for_pictures(decode, folder, paths, on_error, AHEAD)) as decoded:
        for i, found in enumerate(decoded):
            if isinstance(found, str):
                problems.append((str(paths[i]), found))
            else:
                images[len(kept)] = found
                kept.append(i)
            if on_progress is not None and ((i + 1) % PROGRESS_EVERY == 0 or i + 1 == n):
                on_progress(i + 1, n)
    return PictureRows(images[: len(kept)], np.asarray(kept, dtype=np.int64), problems)


def call_for_pictures(
    function: Callable[[str], R], folder: Path, paths: Sequence[str], on_error: str, ahead: int
) -> Generator[R | str]:
    """Call a function with the file of each picture in threads; the results are in order.

    If the function raises a `PictureError`, the result says what is wrong with the picture. At most
    `ahead` files are begun before their results are asked for. Pillow's warnings about unusual
    files are not shown.

    Raises:
        InputError: A picture cannot be read and `on_error` is "stop", none can be read, or a path
            leads out of the folder.
    """
    if on_error not in ("stop", "skip"):
        raise InputError(f"on_error is {on_error!r}: it must be 'stop' or 'skip'.")
    files = picture_files(folder, paths)
    pool = ThreadPoolExecutor(min(os.cpu_count() or 1, THREAD_LIMIT))
    waiting: deque[Future[R]] = deque()
    n_problems = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for row in range(len(files)):
                while len(waiting) <= ahead and row + len(waiting) < len(files):
                    waiting.append(pool.submit(function, files[row + len(waiting)]))
                try:
                    yield waiting.popleft().result()
                    continue
                except PictureError as error:
                    problem = str(error)
                name = shown(str(paths[row]), 200)
                if on_error == "stop":
                    raise InputError(
                        f"The picture {name} in {folder} (row {row + 1}) {problem}: replace it, or "
                        "skip such pictures (on_error='skip', --on-error skip on the command line)."
                    )
                n_problems += 1
                if n_problems == len(files):
                    raise InputError(
                        f"None of the {n_problems} pictures in {folder} can be read; the last, "
                        f"{name}, {problem}."
                    )
                yield problem
    finally:
        pool.shutdown(cancel_futures=True)


def rows_on_disk(x: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Copy some rows of an array, into memory or, if it is mapped from a file, into another."""
    if not isinstance(x, np.memmap):
        return x[rows]
    copied = _nameless_array((len(rows), *x.shape[1:]), x.dtype)
    for start in range(0, len(rows), BLOCK):
        copied[start : start + BLOCK] = x[rows[start : start + BLOCK]]
    return copied


def _nameless_array(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A new array in a file of the cache folder that is deleted with it."""
    folder = embedding_cache_folder() / "pictures"
    n_bytes = prod(shape) * np.dtype(dtype).itemsize
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if n_bytes > free:
            raise InputError(
                f"Decoded pictures take {format_bytes(n_bytes)}, but the disk of {folder} has "
                f"{format_bytes(free)} left: free some, set {VARIABLE} to a folder on another "
                "disk, or choose a smaller side."
            )
        with tempfile.TemporaryFile(dir=folder) as file:
            return np.memmap(file, dtype, "w+", shape=shape)
    except OSError as error:
        raise cannot_write_error(folder, error, WAY_OUT) from error


def suitable_side(folder: Path, paths: Sequence[str]) -> int:
    """The size for training from scratch: 32, 64 or 128, not below most pictures' longer edge.

    Only the headers of at most 200 pictures are read; pictures that cannot be opened are reported
    when they are read.
    """
    from PIL import Image

    longer = []
    for i in np.unique(np.linspace(0, len(paths) - 1, SAMPLE).round().astype(int)):
        try:
            name, box = split_box(str(paths[i]))
            with Image.open(folder / name) as picture:
                longer.append(max(picture.size if box is None else box[2:]))
        except (OSError, ValueError, IndexError, Image.DecompressionBombError):
            continue
    usual = float(np.median(longer)) if longer else SIDES[0]
    return next((side for side in SIDES if usual <= side), SIDES[-1])
