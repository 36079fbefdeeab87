"""Files of pictures: which a folder has, and how they are decoded to square arrays."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError, first_line, shown
from ltpll.tables.memory_limits import expansion_problem

if TYPE_CHECKING:
    from PIL import Image

    from ltpll.backbones.preprocessing import Preprocessing

PIXEL_LIMIT = 89_478_485  # above it, Pillow warns about decompression bombs
THREAD_LIMIT = 16
AHEAD = 32  # pictures that are decoded before they are asked for
PROGRESS_EVERY = 512  # pictures
# Not all formats of Pillow: reading EPS would start Ghostscript, and others are rare.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "PPM", "TGA", "JPEG2000")
NAMES = "jpg jpeg jpe jfif mpo png webp avif gif bmp tif tiff ppm pgm pbm pnm tga jp2 j2k"
SUFFIXES = {f".{name}" for name in NAMES.split()}
DRAFT = 2  # a JPEG is decoded at a fraction of its size if that is this many times what is needed
LONGEST_CROP = 8  # the longer edge over the shorter one of what is scaled before a crop
# As in addresses of parts of a picture.
BOX = re.compile(r"#xywh=" + ",".join([r"([0-9.]{1,20})"] * 4) + "$")
DECODING = 1  # increase it when the pixels of a picture change: stored embeddings are not used then

T = TypeVar("T")
R = TypeVar("R")


class PictureError(Exception):
    """A picture cannot be used; the message is the end of a sentence."""


# ---- paths ---------------------------------------------------------------------------------------


def with_box(path: str, x: float, y: float, width: float, height: float) -> str:
    """The path of a part of a picture, in pixels, such as `fox.jpg#xywh=1,2,64,48`."""
    numbers = (f"{round(v, 3):.3f}".rstrip("0").rstrip(".") for v in (x, y, width, height))
    return f"{path}#xywh={','.join(numbers)}"


def split_box(path: str) -> tuple[str, tuple[float, ...] | None]:
    """The file, and left, top, width and height of the part that is meant; None for all of it."""
    found = BOX.search(path)
    if found is None:
        return path, None
    try:
        return path[: found.start()], tuple(map(float, found.groups()))
    except ValueError:  # several points in a number
        return path, None


def list_pictures(folder: Path) -> list[str]:
    """Find the pictures of a folder and the folders below it, by the suffixes of their names.

    Hidden files, linked folders and links that lead out of the folder are left out.

    Args:
        folder: The folder.

    Returns:
        Paths relative to the folder, with forward slashes, sorted.

    Raises:
        InputError: There is no such folder, it has no pictures, or a name is not UTF-8.

    Examples:
        >>> list_pictures(Path("photos"))
        ['a.jpg', 'b.jpg']
    """
    root, found = _resolved_folder(folder), []
    for here, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(here, name)
            if name.startswith(".") or path.suffix.lower() not in SUFFIXES:
                continue
            if path.is_symlink() and not _resolves_inside(path, root):
                continue
            found.append(path.relative_to(root).as_posix())
    if not found:
        raise InputError(
            f"There are no pictures in {folder}: their names must end in .jpg, .png, .webp or "
            "another suffix of a picture."
        )
    foreign = next((path for path in found if re.search("[\ud800-\udfff]", path)), None)
    if foreign is not None:
        raise InputError(
            f"The name {ascii(foreign)[:200]} in {folder} is not UTF-8: rename the file."
        )
    return sorted(found)


def _resolved_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder} of pictures.")
    return folder.resolve()


def _resolves_inside(path: Path, root: Path) -> bool:
    try:
        # Strictly, because from Python 3.13 on only that refuses a loop of links.
        return path.resolve(strict=True).is_relative_to(root)
    except FileNotFoundError:  # what is not there is reported when it is read
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a loop of links
        return False


def picture_files(folder: Path, paths: Sequence[str]) -> list[str]:
    """The files for the paths of a table, with links resolved; they need not exist.

    Raises:
        InputError: A path leads out of the folder.
    """
    root = _resolved_folder(folder)
    return [_file_inside(root, folder, str(path), i) for i, path in enumerate(paths)]


def _file_inside(root: Path, folder: Path, path: str, i: int) -> str:
    name, box = split_box(path)
    kinds = (PurePosixPath(name), PureWindowsPath(name))
    leaves = any(kind.is_absolute() or ".." in kind.parts for kind in kinds)
    try:
        found = root if leaves else (root / name).resolve()
    except (OSError, ValueError, RuntimeError):  # a loop of links or a NUL byte
        return str(root / "\0")
    if leaves or not found.is_relative_to(root):
        raise InputError(
            f"The path {shown(path, 200)} (row {i + 1}) leads out of {folder}: give paths relative "
            "to that folder, without '..'."
        )
    return str(found) if box is None else with_box(str(found), *box)


def check_picture_file(file: str) -> None:
    """Refuse what is not a file, or is empty: opening a named pipe would block forever."""
    path = Path(split_box(file)[0])
    try:
        if not path.is_file():
            raise PictureError("is not a file" if os.path.lexists(path) else "does not exist")
        if path.stat().st_size == 0:
            raise PictureError("is empty")
    except (OSError, ValueError):  # a NUL byte, or a folder that cannot be entered
        raise PictureError("does not exist") from None


# ---- many pictures -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pictures:
    """`images[k]` is the picture of row `kept[k]`; `problems` lists the others and why."""

    images: npt.NDArray[np.uint8]  # (N, side, side, 3)
    kept: npt.NDArray[np.int64]
    problems: list[tuple[str, str]]


def read_pictures(
    folder: Path,
    paths: Sequence[str],
    side: int | Preprocessing,
    *,
    on_error: str = "stop",
    on_progress: Callable[[int, int], None] | None = None,
    into: npt.NDArray[np.uint8] | None = None,
) -> Pictures:
    """Read pictures as squares; transparent pictures get a white background.

    Args:
        folder: The folder that the paths are relative to.
        paths: One file per row, or a part of one (see `with_box`); links are followed, but must not
            lead out of the folder.
        side: Width and height in pixels of squares that are padded with black; or a backbone's
            preprocessing.
        on_error: "stop" at the first picture that cannot be read, or "skip" such pictures.
        on_progress: Called with the number of pictures read so far and the total.
        into: The array to fill, (paths, side, side, 3); by default one in memory.

    Returns:
        The pictures that could be read, and the problems of the others.

    Raises:
        InputError: A picture cannot be read, a path leads out of the folder (even with "skip"), or
            no picture can be read.

    Examples:
        >>> read_pictures(Path("photos"), ["a.jpg", "b.jpg"], side=64).images.shape
        (2, 64, 64, 3)
    """
    from ltpll.backbones.preprocessing import Preprocessing

    check_on_error(on_error)
    how = side if isinstance(side, Preprocessing) else Preprocessing(side)
    files = picture_files(folder, paths)
    n, size = len(files), len(files) * how.side**2 * 3
    reason = expansion_problem(size, size) if into is None else None
    if reason is not None:
        raise InputError(
            f"{n:,} pictures of {how.side} × {how.side} pixels are not read because {reason}: "
            "choose a smaller side."
        )
    images = np.zeros((n, how.side, how.side, 3), np.uint8) if into is None else into
    kept: list[int] = []
    problems: dict[int, str] = {}

    def decode(file: str) -> npt.NDArray[np.uint8] | str:
        try:
            return decode_picture(file, how)
        except PictureError as problem:
            return str(problem)

    with closing(call_in_threads(decode, files, AHEAD)) as decoded:
        for i, found in enumerate(decoded):
            if isinstance(found, str):
                problems[i] = found
                check_readable(problems, folder, paths, on_error)
            else:
                images[len(kept)] = found
                kept.append(i)
            if on_progress is not None and ((i + 1) % PROGRESS_EVERY == 0 or i + 1 == n):
                on_progress(i + 1, n)
    listed = [(str(paths[i]), reason) for i, reason in problems.items()]
    return Pictures(images[: len(kept)], np.asarray(kept, dtype=np.int64), listed)


def call_in_threads(function: Callable[[T], R], items: Iterable[T], ahead: int) -> Generator[R]:
    """Call a function with each item in threads; the results are in order.

    At most `ahead` items are begun before their results are asked for. Pillow's warnings about
    unusual files are not shown.
    """
    pool = ThreadPoolExecutor(min(os.cpu_count() or 1, THREAD_LIMIT))
    waiting: deque[Future[R]] = deque()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def check_on_error(on_error: str) -> None:
    """Refuse anything but stop and skip."""
    if on_error not in ("stop", "skip"):
        raise InputError(f"on_error is {on_error!r}: it must be 'stop' or 'skip'.")


def check_readable(
    problems: Mapping[int, str], folder: Path, paths: Sequence[str], on_error: str
) -> None:
    """Refuse pictures with problems, by row: any if `on_error` is "stop", or else all."""
    if not problems:
        return
    row, reason = next(iter(problems.items()))
    name = shown(str(paths[row]), 200)
    if on_error == "stop":
        raise InputError(
            f"The picture {name} in {folder} (row {row + 1}) {reason}: replace it, or skip such "
            "pictures (on_error='skip', --on-error skip on the command line)."
        )
    if len(problems) == len(paths):
        raise InputError(
            f"None of the {len(paths)} pictures in {folder} can be read; the first, {name}, "
            f"{reason}."
        )


# ---- one picture ---------------------------------------------------------------------------------


def decode_picture(file: str, how: Preprocessing) -> npt.NDArray[np.uint8]:
    """Decode one picture as a square, (side, side, 3).

    Raises:
        PictureError: The picture cannot be read.
    """
    from PIL import Image, UnidentifiedImageError

    check_picture_file(file)
    try:
        name, box = split_box(file)
        with Image.open(name, formats=_readable_formats()) as opened:
            return _as_square(opened, how, box)
    except PictureError:
        raise
    except UnidentifiedImageError:
        raise PictureError("is not in a supported format") from None
    except Image.DecompressionBombError:
        raise PictureError(f"has more than {PIXEL_LIMIT // 10**6} million pixels") from None
    except Exception as error:  # decoders fail on damaged files in unforeseeable ways
        raise PictureError(f"is truncated or damaged ({first_line(error)})") from None


@cache
def _readable_formats() -> list[str]:
    from PIL import Image

    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


def _as_square(
    opened: Image.Image, how: Preprocessing, box: tuple[float, ...] | None
) -> npt.NDArray[np.uint8]:
    from PIL import Image, ImageOps

    if opened.width * opened.height > PIXEL_LIMIT:
        raise PictureError(
            f"has {opened.width} × {opened.height} pixels, more than {PIXEL_LIMIT // 10**6} million"
        )
    n_frames = getattr(opened, "n_frames", 1)
    if n_frames > 1 and opened.format != "MPO":  # of phones, with a preview as second frame
        raise PictureError(f"is animated or has several pages ({n_frames} frames)")
    least = DRAFT * (how.resize or how.side)
    if box is None:
        opened.draft(None, (least, least))  # a JPEG at a half, a quarter or an eighth of its size
    ImageOps.exif_transpose(opened, in_place=True)
    picture = _as_rgb(opened if box is None else _cropped(opened, box))
    if how.fit == "crop":
        picture = _middle_of_thin_picture(picture)
    side, size = how.side, _scaled_size(how, *picture.size)
    if size != picture.size:  # Pillow's filters avoid aliasing
        picture = picture.resize(size, Image.Resampling[how.resample.upper()])
    if how.fit == "crop":
        left, top = (size[0] - side) // 2, (size[1] - side) // 2
        return np.asarray(picture.crop((left, top, left + side, top + side)))
    square = np.zeros((side, side, 3), dtype=np.uint8)
    top, left = (side - size[1]) // 2, (side - size[0]) // 2
    square[top : top + size[1], left : left + size[0]] = np.asarray(picture)
    return square


def _scaled_size(how: Preprocessing, width: int, height: int) -> tuple[int, int]:
    """The width and height to which a picture is scaled, before a crop or padding."""
    if how.fit == "stretch":
        return how.side, how.side
    if how.fit == "crop":
        shorter, target = min(width, height), how.resize or how.side
        return max(target, width * target // shorter), max(target, height * target // shorter)
    longer = max(width, height)
    return max(1, round(width * how.side / longer)), max(1, round(height * how.side / longer))


def _cropped(picture: Image.Image, box: tuple[float, ...]) -> Image.Image:
    """The pixels that a box touches, as far as they are inside the picture."""
    left, top, width, height = box
    right = min(math.ceil(left + width), picture.width)
    bottom = min(math.ceil(top + height), picture.height)
    if right <= int(left) or bottom <= int(top):
        raise PictureError(
            f"has {picture.width} × {picture.height} pixels, and the box is outside of them or "
            "empty"
        )
    return picture.crop((int(left), int(top), right, bottom))


def _middle_of_thin_picture(picture: Image.Image) -> Image.Image:
    """The middle of a long thin picture, all of which would become enormous when it is scaled."""
    most = LONGEST_CROP * min(picture.size)
    if max(picture.size) <= most:
        return picture
    left, top = max(0, picture.width - most) // 2, max(0, picture.height - most) // 2
    return picture.crop((left, top, picture.width - left, picture.height - top))


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
    return picture if picture.mode == "RGB" else picture.convert("RGB")  # which would copy it
