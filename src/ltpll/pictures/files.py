"""Pictures: image files of a folder, read into one array of square images, with a list of files that cannot be read."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError, first_line, shown

# Processes that decode pictures import this module: nothing here may import torch at module level.
from ltpll.tables.memory_limits import expansion_problem

if TYPE_CHECKING:
    from PIL import Image

    from ltpll.backbones.preprocessing import Preprocessing

PIXEL_LIMIT = 89_478_485  # above it, Pillow warns about decompression bombs
THREAD_LIMIT = 16
PICTURES_AT_ONCE = 512
# Not all formats of Pillow: reading EPS would start Ghostscript, and others are rare.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "PPM", "TGA", "JPEG2000")
SUFFIXES = {
    *(
        ".jpg",
        ".jpeg",
        ".jpe",
        ".jfif",
        ".mpo",
        ".png",
        ".webp",
        ".avif",
        ".gif",
        ".bmp",
        ".tif",
        ".tiff",
    ),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".jp2", ".j2k"),
}
DRAFT = 2  # a JPEG is decoded at a fraction of its size if its edges stay at least this many times as long as needed
LONGEST_CROP = 8  # the longer edge over the shorter one of what is scaled before a crop
BOX = re.compile(
    r"#xywh=([0-9.]{1,20}),([0-9.]{1,20}),([0-9.]{1,20}),([0-9.]{1,20})$"
)  # as in addresses of parts of a picture
DECODING = 1  # increase it when the pixels of a picture change, so that stored embeddings are not used again


@dataclass(frozen=True)
class Geometry:
    """How a picture becomes a square: the part of `Preprocessing` that does not need torch."""

    side: int
    fit: str = "pad"
    resize: int | None = None
    resample: str = "bilinear"

    @classmethod
    def of(cls, given: int | Preprocessing) -> Geometry:
        """The geometry of a preprocessing, or of squares with this side that are padded."""
        from ltpll.validation import whole_number

        if isinstance(given, (int, float, np.number)):
            return cls(whole_number(given, 1, "side"))
        return cls(given.side, given.fit, given.resize, given.resample)

    def scaled(self, width: int, height: int) -> tuple[int, int]:
        """The width and height to which a picture is scaled, before a crop or padding."""
        if self.fit == "stretch":
            return self.side, self.side
        if self.fit == "crop":
            shorter, target = min(width, height), self.resize or self.side
            return max(target, width * target // shorter), max(target, height * target // shorter)
        longer = max(width, height)
        return max(1, round(width * self.side / longer)), max(1, round(height * self.side / longer))


def with_box(path: str, x: float, y: float, width: float, height: float) -> str:
    """The path of a part of a picture, in pixels from its upper left corner, such as `fox.jpg#xywh=10,20,64,48`."""
    return f"{path}#xywh={','.join(f'{round(value, 3):.3f}'.rstrip('0').rstrip('.') for value in (x, y, width, height))}"


def split_box(path: str) -> tuple[str, tuple[float, ...] | None]:
    """The path of the file, and left, top, width and height of the part that is meant; None for the whole picture."""
    found = BOX.search(path)
    try:
        return (
            (path, None)
            if found is None
            else (path[: found.start()], tuple(map(float, found.groups())))
        )
    except ValueError:  # several points in a number
        return path, None


@dataclass(frozen=True)
class Pictures:
    """`images[k]` is the picture of row `kept[k]`; `problems` lists the paths of all others with the reason."""

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
) -> Pictures:
    """Read pictures as squares; transparent pictures get a white background.

    Args:
        folder: The folder that the paths are relative to.
        paths: One file per row, or a part of one (see `with_box`); links are followed, but must not lead out of the folder.
        side: Width and height of the squares, in pixels, into which pictures are fitted with black padding; or a backbone's preprocessing.
        on_error: "stop" at the first picture that cannot be read, or "skip" such pictures.
        on_progress: Called with the number of pictures read so far and the total.

    Returns:
        The pictures that could be read, and the problems of the others.

    Raises:
        InputError: A picture cannot be read, a path leads out of the folder (even with "skip"), or no picture can be read.

    Examples:
        >>> read_pictures(Path("photos"), ["a.jpg", "b.jpg"], side=64).images.shape
        (2, 64, 64, 3)
    """
    geometry = Geometry.of(side)
    check_on_error(on_error)
    files = picture_files(folder, paths)
    n, side = len(files), geometry.side
    reason = expansion_problem(3 * n * side * side, 3 * n * side * side)
    if reason is not None:
        raise InputError(
            f"{n:,} pictures of {side} × {side} pixels are not read because {reason}: choose a smaller side."
        )
    images = np.zeros((n, side, side, 3), dtype=np.uint8)
    problems: dict[int, str] = {}

    def read(i: int) -> str | None:
        try:
            images[i] = decode_picture(files[i], geometry)
        except PictureError as problem:
            return str(problem)
        return None

    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(min(os.cpu_count() or 1, THREAD_LIMIT)) as pool,
    ):
        warnings.simplefilter("ignore")  # Pillow's warnings about unusual files do not matter
        for start in range(0, n, PICTURES_AT_ONCE):
            rows = range(start, min(start + PICTURES_AT_ONCE, n))
            problems |= {
                i: reason
                for i, reason in zip(rows, pool.map(read, rows), strict=True)
                if reason is not None
            }
            if problems and on_error == "stop":
                i, reason = next(iter(problems.items()))
                raise unreadable(folder, str(paths[i]), i, reason)
            if on_progress is not None:
                on_progress(rows.stop, n)
    if n and len(problems) == n:
        raise all_unreadable(folder, n, str(paths[0]), problems[0])
    kept = np.asarray([i for i in range(n) if i not in problems], dtype=np.int64)
    return Pictures(
        images if not problems else images[kept],
        kept,
        [(str(paths[i]), reason) for i, reason in problems.items()],
    )


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
    folder = Path(folder)
    root, found = _root(folder), []
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
            f"There are no pictures in {folder}: their names must end in .jpg, .png, .webp or another suffix of a picture."
        )
    foreign = next((path for path in found if not _is_utf8(path)), None)
    if foreign is not None:
        raise InputError(
            f"The name {ascii(foreign)[:200]} in {folder} is not UTF-8: rename the file."
        )
    return sorted(found)


def picture_files(folder: Path, paths: Sequence[str]) -> list[str]:
    """The files for the paths of a table, with links resolved; they need not exist, but must be inside the folder."""
    folder = Path(folder)
    root = _root(folder)
    return [_inside(root, folder, str(path), i) for i, path in enumerate(paths)]


def check_on_error(on_error: str) -> None:
    if on_error not in ("stop", "skip"):
        raise InputError(f"on_error is {on_error!r}: it must be 'stop' or 'skip'.")


def unreadable(folder: Path, path: str, row: int, reason: str) -> InputError:
    """The error about one picture that cannot be read."""
    return InputError(
        f"The picture {shown(path, 200)} in {folder} (row {row + 1}) {reason}: replace it, or skip such pictures "
        "(on_error='skip', --on-error skip on the command line)."
    )


def all_unreadable(folder: Path, n: int, first: str, reason: str) -> InputError:
    """The error if none of `n` pictures can be read."""
    return InputError(
        f"None of the {n} pictures in {folder} can be read; the first, {shown(first, 200)}, {reason}."
    )


def _root(folder: Path) -> Path:
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


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _inside(root: Path, folder: Path, path: str, i: int) -> str:
    path, box = split_box(path)
    plain = PurePosixPath(path)
    leaves = (
        plain.is_absolute()
        or PureWindowsPath(path).is_absolute()
        or ".." in plain.parts
        or ".." in PureWindowsPath(path).parts
    )
    try:
        found = root if leaves else (root / plain).resolve()
    except (OSError, ValueError, RuntimeError):  # a loop of links or a NUL byte
        return str(root / "\0")
    if leaves or not found.is_relative_to(root):
        raise InputError(
            f"The path {shown(path, 200)} (row {i + 1}) leads out of {folder}: give paths relative to that folder, without '..'."
        )
    return str(found) if box is None else with_box(str(found), *box)


# ---- one picture ------------------------------------------------------------------------------------------------------


class PictureError(Exception):
    """A picture cannot be used; the message is the end of a sentence."""


def check_picture_file(file: str) -> None:
    """Refuse what is not a file, or is empty, before it is opened: opening a named pipe would block forever."""
    path = Path(split_box(file)[0])
    try:
        if not path.is_file():
            raise PictureError("is not a file" if os.path.lexists(path) else "does not exist")
        if path.stat().st_size == 0:
            raise PictureError("is empty")
    except (OSError, ValueError):  # a NUL byte, or a folder that cannot be entered
        raise PictureError("does not exist") from None


def decode_picture(file: str, geometry: Geometry) -> npt.NDArray[np.uint8]:
    """Decode one picture as a square, (side, side, 3).

    Raises:
        PictureError: The picture cannot be read.
    """
    from PIL import Image, UnidentifiedImageError

    check_picture_file(file)
    try:
        name, box = split_box(file)
        with Image.open(name, formats=_formats()) as opened:
            return _square(opened, geometry, box)
    except PictureError:
        raise
    except UnidentifiedImageError:
        raise PictureError("is not in a supported format") from None
    except Image.DecompressionBombError:
        raise PictureError(f"has more than {PIXEL_LIMIT // 10**6} million pixels") from None
    # Decoders fail on damaged files in unforeseeable ways.
    except Exception as error:
        raise PictureError(f"is truncated or damaged ({first_line(error)})") from None


@cache
def _formats() -> list[str]:
    from PIL import Image

    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


def _square(
    opened: Image.Image, geometry: Geometry, box: tuple[float, ...] | None
) -> npt.NDArray[np.uint8]:
    from PIL import Image, ImageOps

    if opened.width * opened.height > PIXEL_LIMIT:
        raise PictureError(
            f"has {opened.width} × {opened.height} pixels, more than {PIXEL_LIMIT // 10**6} million"
        )
    n_frames = getattr(opened, "n_frames", 1)
    if (
        n_frames > 1 and opened.format != "MPO"
    ):  # phones write MPO files, whose second frame is a preview
        raise PictureError(f"is animated or has several pages ({n_frames} frames)")
    least = DRAFT * (geometry.resize or geometry.side)
    if box is None:
        opened.draft(
            None, (least, least)
        )  # decodes a JPEG at a half, a quarter or an eighth of its size if that is enough
    ImageOps.exif_transpose(opened, in_place=True)
    picture = _as_rgb(opened if box is None else _cropped(opened, box))
    if geometry.fit == "crop":
        picture = _middle(picture)
    side, size = geometry.side, geometry.scaled(*picture.size)
    if size != picture.size:
        picture = picture.resize(
            size, Image.Resampling[geometry.resample.upper()]
        )  # Pillow's filters avoid aliasing
    if geometry.fit == "crop":
        left, top = (size[0] - side) // 2, (size[1] - side) // 2
        return np.asarray(picture.crop((left, top, left + side, top + side)))
    square = np.zeros((side, side, 3), dtype=np.uint8)
    top, left = (side - size[1]) // 2, (side - size[0]) // 2
    square[top : top + size[1], left : left + size[0]] = np.asarray(picture)
    return square


def _cropped(picture: Image.Image, box: tuple[float, ...]) -> Image.Image:
    """The pixels that a box touches, as far as they are inside the picture."""
    left, top, width, height = box
    right, bottom = (
        min(math.ceil(left + width), picture.width),
        min(math.ceil(top + height), picture.height),
    )
    if right <= int(left) or bottom <= int(top):
        raise PictureError(
            f"has {picture.width} × {picture.height} pixels, and the box is outside of them or empty"
        )
    return picture.crop((int(left), int(top), right, bottom))


def _middle(picture: Image.Image) -> Image.Image:
    """The middle of a long thin picture, which would become enormous if all of it were scaled until its shorter edge is long enough."""
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
