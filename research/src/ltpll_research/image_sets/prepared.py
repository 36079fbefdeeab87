"""Prepared image sets: plain arrays in a folder, written completely or not at all, and checked."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.errors import InputError, first_line
from ltpll.files import cache_folder
from ltpll.formatting import command
from ltpll.registry import unknown_name_error
from ltpll_research.image_sets.archives import (
    PUBLISHED_ARCHIVES,
    PublishedArchive,
    find_or_download,
)

IMAGE_SETS = tuple(PUBLISHED_ARCHIVES)
FORMAT = "ltpll image set 1"
META = "meta.json"
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
CANDIDATES = "candidates.npz"


class ImageSet(NamedTuple):
    """An image set in memory: images are uint8 (N, height, width, 3), labels int64 (N,).

    `superclass[c]` is the number of the superclass of class c, `superclasses` are their names, and
    `candidates` belong to the training images; all three are None for sets that have none.
    """

    name: str
    x_train: npt.NDArray[np.uint8]
    y_train: npt.NDArray[np.int64]
    x_test: npt.NDArray[np.uint8]
    y_test: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    superclass: npt.NDArray[np.int64] | None = None
    candidates: Candidates | None = None
    superclasses: tuple[str, ...] | None = None
    content: str = ""  # `content_hash`, for sets that are not published


class StoredFile(msgspec.Struct):
    """What the description of a set says about one of its files."""

    sha256: str
    bytes: int


class Meta(msgspec.Struct):
    """The description of a set, in `meta.json`; in a set of a user's own, `classes` is enough."""

    classes: tuple[str, ...]
    format: str = FORMAT
    name: str | None = None
    n_train: int | None = None
    n_test: int | None = None
    files: dict[str, StoredFile] = {}
    superclass: list[int] | None = None
    superclasses: tuple[str, ...] | None = None


def data_root(option: str | Path | None = None) -> Path:
    """The folder of the image sets: the given one, else LTPLL_DATA, else in the user's cache."""
    return Path(option).expanduser() if option else cache_folder("LTPLL_DATA")


def folder_of_image_set(name: str, root: str | Path | None = None) -> Path:
    """The folder of a set: the name of a published or converted set under the root, or a path."""
    under_root, given = data_root(root) / name, Path(name).expanduser()
    if name in IMAGE_SETS or (under_root / META).is_file() or not given.is_dir():
        return under_root
    return given.resolve()


# ---- preparing -------------------------------------------------------------------------------


def prepare_image_set(
    name: str,
    root: str | Path | None = None,
    archives: Sequence[str | Path] = (),
) -> Path:
    """Convert the published archives of cifar10, cifar100 or voc2007 into arrays in a folder.

    Archives that are already on disk are recognised by their checksums; the others are downloaded
    to `downloads` under the data root.

    Raises:
        UnknownNameError: If there is no image set of this name.
        InputError: If an archive cannot be downloaded or read, or the set cannot be written.
    """
    if name not in IMAGE_SETS:
        raise unknown_name_error("image set", name, IMAGE_SETS)
    folder = data_root(root) / name
    _refuse_foreign(folder)
    # Imported here because the readers import this module, and loading a set does not need them.
    from ltpll_research.image_sets.cifar import read_cifar10, read_cifar100
    from ltpll_research.image_sets.voc import read_voc2007

    readers: dict[str, Any] = {
        "cifar10": read_cifar10,
        "cifar100": read_cifar100,
        "voc2007": read_voc2007,
    }
    given = [Path(path).expanduser() for path in archives]
    sources = PUBLISHED_ARCHIVES[name]
    found = find_or_download(sources, given, folder.parent / "downloads")
    try:
        image_set = readers[name](found)
    except Exception as error:  # of tarfile, gzip, numpy, ElementTree or Pillow
        names = " and ".join(map(str, found))
        raise InputError(f"{names} cannot be read ({first_line(error)}).") from None
    return write_image_set(image_set, root, sources)


def write_image_set(
    image_set: ImageSet, root: str | Path | None = None, archives: Sequence[PublishedArchive] = ()
) -> Path:
    """Write a set to a temporary folder, then move it into place.

    No reader ever sees an incomplete set.
    """
    folder = data_root(root) / image_set.name
    _refuse_foreign(folder)
    folder = folder.resolve()  # a link may lead to another disk, where the temporary folder must be
    temporary = folder.with_name(f".{folder.name}.tmp")
    meta = {
        "format": FORMAT,
        "name": image_set.name,
        "classes": image_set.classes,
        "superclass": None if image_set.superclass is None else image_set.superclass.tolist(),
        "superclasses": image_set.superclasses,
        "n_train": len(image_set.y_train),
        "n_test": len(image_set.y_test),
        "sources": [{"archive": one.file_name, "md5": one.md5} for one in archives],
    }
    try:
        shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
        temporary.mkdir(parents=True)
        for name in ARRAYS:
            np.save(temporary / f"{name}.npy", getattr(image_set, name), allow_pickle=False)
        if (sets := image_set.candidates) is not None:
            offsets, labels = sets.offsets.cpu().numpy(), sets.labels.cpu().numpy()
            np.savez(temporary / CANDIDATES, offsets=offsets, labels=labels)
        files = {
            path.name: {"sha256": _sha256(path), "bytes": path.stat().st_size}
            for path in sorted(temporary.iterdir())
        }
        (temporary / META).write_text(json.dumps({**meta, "files": files}, indent=1))
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
    except OSError as error:
        raise InputError(
            f"The set {image_set.name} cannot be written to {folder} ({error.strerror or error}): "
            "free some space, or choose another --data-root."
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder of the user that has the same name as an image set."""
    if folder.exists() and not (folder / META).is_file():
        raise InputError(
            f"{folder} exists and was not written by ltpll: move it, or choose another --data-root."
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- loading ---------------------------------------------------------------------------------


def load_image_set(name: str, root: str | Path | None = None, *, mmap: bool = False) -> ImageSet:
    """Load an image set by name (cifar10, cifar100, voc2007 or a converted one), or from its folder.

    With `mmap`, images are mapped instead of read.

    Raises:
        UnknownNameError: If there is no image set of this name.
        InputError: If the set is not prepared or is damaged.
    """
    folder = folder_of_image_set(name, root)
    if not folder.exists():
        if name not in IMAGE_SETS:
            raise unknown_name_error("image set", name, IMAGE_SETS)
        raise InputError(
            f"The image set {name} is not prepared in {folder.parent}: run `{_command(folder)}`."
        )
    meta = read_meta(folder)
    n_classes = len(meta.classes)
    try:
        x_train, y_train, x_test, y_test = (
            np.load(folder / f"{one}.npy", mmap_mode="r" if mmap and one[0] == "x" else None)
            for one in ARRAYS
        )
        if name not in IMAGE_SETS:
            x_train, x_test = as_rgb(x_train), as_rgb(x_test)
            y_train, y_test = (y.astype(np.int64, casting="same_kind") for y in (y_train, y_test))
        for x, y, n in ((x_train, y_train, meta.n_train), (x_test, y_test, meta.n_test)):
            n = len(y) if n is None else n
            has_images = x.dtype == np.uint8 and x.shape == (n, *x.shape[1:3], 3)
            has_labels = y.dtype == np.int64 and y.shape == (n,)
            if not (has_images and has_labels and np.isin(y, np.arange(n_classes)).all()):
                raise ValueError(f"it does not hold {n} images and labels of {n_classes} classes")
        candidates = None
        if (folder / CANDIDATES).is_file():
            with np.load(folder / CANDIDATES) as stored:
                sets = stored["offsets"].astype(np.int64), stored["labels"].astype(np.int64)
            candidates = Candidates.from_flat(*sets, n_classes, meta.classes)
            if len(candidates) != len(y_train):
                raise ValueError("the candidate sets do not fit the images")
        superclass = None if meta.superclass is None else np.asarray(meta.superclass, np.int64)
        if superclass is not None and superclass.shape != (n_classes,):
            raise ValueError("superclass does not name one superclass for each class")
    except Exception as error:  # numpy and zipfile raise many kinds of errors for damaged files
        raise _damaged(folder, first_line(error).rstrip(".")) from None
    arrays = (x_train, y_train, x_test, y_test)
    found = ImageSet(folder.name, *arrays, meta.classes, superclass, candidates, meta.superclasses)
    return found if name in IMAGE_SETS else found._replace(content=content_hash(found))


def as_rgb(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Images with three channels; grey ones may have one or none."""
    if x.ndim == 4 and x.shape[3] == 1:
        x = x[..., 0]
    return np.repeat(x[..., None], 3, axis=3) if x.ndim == 3 else x


def content_hash(images: ImageSet) -> str:
    """A hash of the images, labels and sets, which a run on a set of one's own keeps."""
    sets = images.candidates
    arrays = [getattr(images, name) for name in ARRAYS]
    arrays += [] if sets is None else [sets.offsets.cpu().numpy(), sets.labels.cpu().numpy()]
    digest = hashlib.sha256(repr((images.classes, [one.shape for one in arrays])).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _command(folder: Path) -> str:
    place = () if folder.parent == data_root() else ("--data-root", folder.parent)
    return command("ltpll-research", "data", "prepare", folder.name, *place)


def _damaged(folder: Path, problem: str) -> InputError:
    remedy = "write it again, as docs/benchmarks.md says"
    if folder.name in IMAGE_SETS:
        remedy = f"run `{_command(folder)}` to prepare it again"
    return InputError(f"The image set in {folder} is damaged ({problem}): {remedy}.")


def read_meta(folder: Path, *, verify: bool = False) -> Meta:
    """Read the description of a set, and check that its files are there and have their sizes."""
    if not (folder / META).is_file():
        convert = command("ltpll-research", "data", "convert", folder)
        remedy = f"move it, then run `{_command(folder)}`"
        raise InputError(
            f"{folder} is not an image set, since it has no {META}: "
            f"{remedy if folder.name in IMAGE_SETS else f'`{convert}` may make one of it'}."
        )
    try:
        meta = msgspec.json.decode((folder / META).read_bytes(), type=Meta)
        published = folder.name in IMAGE_SETS
        if meta.format != FORMAT or (published and meta.name != folder.name):
            raise ValueError(f"it is not a {FORMAT!r} called {folder.name!r}")
        arrays = {f"{name}.npy" for name in ARRAYS}
        listed = arrays <= meta.files.keys() <= arrays | {CANDIDATES}
        if not listed and (published or meta.files):
            raise ValueError("it does not list the array files")
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(folder, f"{META}: {first_line(error)}") from None
    for file, expected in meta.files.items():
        path = folder / file
        size = path.stat().st_size if path.is_file() else None
        if size != expected.bytes:
            raise _damaged(folder, f"{file} has {size} bytes instead of {expected.bytes}")
        if verify and _sha256(path) != expected.sha256:
            raise _damaged(folder, f"{file} has changed since it was written")
    return meta
