"""Pictures: image files of a folder, read into one array of square images, with a list of files that cannot be read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ltpll.data.readers.memory_limits import expansion_problem
from ltpll.errors import InputError, first_line, shown
from ltpll.validation import whole_number

if TYPE_CHECKING:
    from PIL import Image

PIXEL_LIMIT = 89_478_485  # above it, Pillow warns about decompression bombs
THREAD_LIMIT = 16
PICTURES_AT_ONCE = 512
# Not all formats of Pillow: reading EPS would start Ghostscript, and others are rare.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "PPM", "TGA", "JPEG2000")


@dataclass(frozen=True)
class Pictures:
    """`images[k]` is the picture of row `kept[k]`; `problems` lists the paths of all others with the reason."""

    images: npt.NDArray[np.uint8]  # (N, side, side, 3)
    kept: npt.NDArray[np.int64]
    problems: list[tuple[str, str]]


def read_pictures(
    folder: Path,
    paths: Sequence[str],
    side: int,
    *,
    on_error: str = "stop",
    on_progress: Callable[[int, int], None] | None = None,
) -> Pictures:
    """Read pictures, scale them to fit a square and pad them with black; transparent pictures get a white background.

    Args:
        folder: The folder that the paths are relative to.
        paths: One file per row; links are followed, but must not lead out of the folder.
        side: Width and height of the squares, in pixels.
        on_error: "stop" at the first picture that cannot be read, or "skip" such pictures.
        on_progress: Called with the number of pictures read so far and the total.

    Returns:
        The pictures that could be read, and the problems of the others.

    Raises:
        InputError: A picture cannot be read, a path leads out of the folder (even with "skip"), or no picture can be read.

    Example:
        >>> read_pictures(Path("photos"), ["a.jpg", "b.jpg"], side=64, on_error="skip").images.shape
        (2, 64, 64, 3)
    """
    side = whole_number(side, 1, "side")
    if on_error not in ("stop", "skip"):
        raise InputError(f"on_error is {on_error!r}: it must be 'stop' or 'skip'.")
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder} of pictures.")
    root = folder.resolve()
    files = [_inside(root, folder, str(path), i) for i, path in enumerate(paths)]
    n = len(files)
    reason = expansion_problem(3 * n * side * side, 3 * n * side * side)
    if reason is not None:
        raise InputError(f"{n:,} pictures of {side} × {side} pixels are not read because {reason}: choose a smaller side.")
    images = np.zeros((n, side, side, 3), dtype=np.uint8)
    problems: dict[int, str] = {}

    def read(i: int) -> str | None:
        try:
            images[i] = _read_picture(files[i], side)
        except _ProblemError as problem:
            return str(problem)
        return None

    with warnings.catch_warnings(), ThreadPoolExecutor(min(os.cpu_count() or 1, THREAD_LIMIT)) as pool:
        warnings.simplefilter("ignore")  # Pillow's warnings about unusual files do not matter
        for start in range(0, n, PICTURES_AT_ONCE):
            rows = range(start, min(start + PICTURES_AT_ONCE, n))
            problems |= {i: reason for i, reason in zip(rows, pool.map(read, rows), strict=True) if reason is not None}
            if problems and on_error == "stop":
                i, reason = next(iter(problems.items()))
                raise InputError(
                    f"The picture {shown(str(paths[i]), 200)} in {folder} (row {i + 1}) {reason}: replace it, or skip such pictures."
                )
            if on_progress is not None:
                on_progress(rows.stop, n)
    if n and len(problems) == n:
        raise InputError(f"None of the {n} pictures in {folder} can be read; the first, {shown(str(paths[0]), 200)}, {problems[0]}.")
    kept = np.asarray([i for i in range(n) if i not in problems], dtype=np.int64)
    return Pictures(images if not problems else images[kept], kept, [(str(paths[i]), reason) for i, reason in problems.items()])


def _inside(root: Path, folder: Path, path: str, i: int) -> Path:
    """The file for a path of the table, with links resolved; it must be inside the folder."""
    plain = PurePosixPath(path)
    leaves = plain.is_absolute() or PureWindowsPath(path).is_absolute() or ".." in plain.parts or ".." in PureWindowsPath(path).parts
    try:
        found = root if leaves else (root / plain).resolve()
    except (OSError, ValueError, RuntimeError):  # a loop of links or a NUL byte
        return root / "\0"
    if leaves or not found.is_relative_to(root):
        raise InputError(
            f"The path {shown(path, 200)} (row {i + 1}) leads out of {folder}: give paths relative to that folder, without '..'."
        )
    return found


# ---- one picture ------------------------------------------------------------------------------------------------------


class _ProblemError(Exception):
    """A picture cannot be used; the message is the end of a sentence."""


def _read_picture(path: Path, side: int) -> npt.NDArray[np.uint8]:
    """Read one picture as a square, (side, side, 3)."""
    from PIL import Image, UnidentifiedImageError

    try:
        if not path.is_file():
            raise _ProblemError("is not a file" if os.path.lexists(path) else "does not exist")
        if path.stat().st_size == 0:
            raise _ProblemError("is empty")
        with Image.open(path, formats=_formats()) as opened:
            return _square(opened, side)
    except _ProblemError:
        raise
    except UnidentifiedImageError:
        raise _ProblemError("is not in a supported format") from None
    except Image.DecompressionBombError:
        raise _ProblemError(f"has more than {PIXEL_LIMIT // 10**6} million pixels") from None
    # Decoders fail on damaged files in unforeseeable ways.
    except Exception as error:
        raise _ProblemError(f"is truncated or damaged ({first_line(error)})") from None


def _formats() -> list[str]:
    from PIL import Image

    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


def _square(opened: Image.Image, side: int) -> npt.NDArray[np.uint8]:
    from PIL import Image, ImageOps

    if opened.width * opened.height > PIXEL_LIMIT:
        raise _ProblemError(f"has {opened.width} × {opened.height} pixels, more than {PIXEL_LIMIT // 10**6} million")
    n_frames = getattr(opened, "n_frames", 1)
    if n_frames > 1 and opened.format != "MPO":  # phones write MPO files, whose second frame is a preview
        raise _ProblemError(f"is animated or has several pages ({n_frames} frames)")
    opened.draft(None, (2 * side, 2 * side))  # decodes a JPEG at a half, a quarter or an eighth of its size if that is enough
    picture = _as_rgb(ImageOps.exif_transpose(opened))
    longer = max(picture.size)
    size = (max(1, round(picture.width * side / longer)), max(1, round(picture.height * side / longer)))
    if size != picture.size:
        picture = picture.resize(size, Image.Resampling.BILINEAR)  # Pillow's filter avoids aliasing
    square = np.zeros((side, side, 3), dtype=np.uint8)
    top, left = (side - size[1]) // 2, (side - size[0]) // 2
    square[top : top + size[1], left : left + size[0]] = np.asarray(picture)
    return square


def _as_rgb(picture: Image.Image) -> Image.Image:
    from PIL import Image

    if picture.mode.startswith("I") or picture.mode == "F":
        # Pillow would clip values above 255.
        values = np.asarray(picture).astype(np.float64)
        values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
        if picture.mode.startswith("I;16") or 255 < values.max() <= 65535:
            values = values / 257
        elif picture.mode == "F" and 0 < values.max() <= 1:
            values = values * 255
        elif values.max() > 65535:
            values = values * (255 / values.max())
        return Image.fromarray(values.clip(0, 255).round().astype(np.uint8)).convert("RGB")
    if "A" in picture.getbands() or "transparency" in picture.info:
        layer = picture.convert("RGBA")
        white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, layer).convert("RGB")
    return picture.convert("RGB")
