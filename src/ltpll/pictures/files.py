"""Files of pictures: which a folder has, and how one is decoded to a square array."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError, first_line, shown

if TYPE_CHECKING:
    from PIL import Image

    from ltpll.backbones.preprocessing import Preprocessing

PIXEL_LIMIT = 89_478_485  # above it, Pillow warns about decompression bombs
# Not all formats of Pillow: reading EPS would start Ghostscript, and others are rare.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "PPM", "TGA", "JPEG2000")
NAMES = "jpg jpeg jpe jfif mpo png webp avif gif bmp tif tiff ppm pgm pbm pnm tga jp2 j2k"
SUFFIXES = {f".{name}" for name in NAMES.split()}
DRAFT = 2  # a JPEG is decoded at a fraction of its size if that is this many times what is needed
LONGEST_CROP = 8  # the longer edge over the shorter one of what is scaled before a crop
# As in addresses of parts of a picture.
BOX = re.compile(r"#xywh=" + ",".join([r"([0-9]{1,16}\.?[0-9]{0,16})"] * 4) + "$")
DECODING = 1  # increase it when the pixels of a picture change: stored embeddings are not used then


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
    return path[: found.start()], tuple(map(float, found.groups()))


def list_pictures(folder: Path) -> list[str]:
    """Find the pictures of a folder and the folders below it, by the suffixes of their names.

    Hidden files, linked folders and links that lead out of the folder are left out. The paths are
    relative to the folder, with forward slashes, and sorted.

    Raises:
        InputError: There is no such folder, it has no pictures, or a name is not UTF-8.
    """
    root, found = _resolved_folder(folder), []
    for here, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(here, name)
            if name.startswith(".") or path.suffix.lower() not in SUFFIXES:
                continue
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root):
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


def picture_files(folder: Path, paths: Sequence[str]) -> list[str]:
    """The files for the paths of a table, with links resolved; they need not exist."""
    root = _resolved_folder(folder)
    return [_file_inside(root, folder, str(path), i) for i, path in enumerate(paths)]


def _file_inside(root: Path, folder: Path, path: str, i: int) -> str:
    name, box = split_box(path)
    kinds = (PurePosixPath(name), PureWindowsPath(name))
    leaves = any(kind.is_absolute() or ".." in kind.parts for kind in kinds)
    # What has a NUL byte does not exist.
    found = str(root / name) if "\0" in name else os.path.realpath(root / name)
    if leaves or not Path(found).is_relative_to(root):
        raise InputError(
            f"The path {shown(path, 200)} (row {i + 1}) leads out of {folder}: give paths relative "
            "to that folder, without '..'."
        )
    return found if box is None else with_box(found, *box)


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


# ---- one picture ---------------------------------------------------------------------------------


def decode_picture(file: str, how: Preprocessing) -> npt.NDArray[np.uint8]:
    """Decode one picture as a square, (side, side, 3), or raise a `PictureError`."""
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
