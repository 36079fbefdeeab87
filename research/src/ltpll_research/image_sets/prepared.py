"""Prepared image sets: plain arrays in a folder, written completely or not at all, and checked when they are loaded."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.errors import InputError, UnknownNameError, first_line
from ltpll.files import cache_folder, parse_json
from ltpll.formatting import are, command, counted
from ltpll_research.image_sets.archives import (
    CHUNK,
    PUBLISHED_ARCHIVES,
    ByteProgress,
    LocalArchive,
    find_or_download,
)

IMAGE_SETS = tuple(PUBLISHED_ARCHIVES)
FORMAT = "ltpll image set 1"
META = "meta.json"
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
CANDIDATES = "candidates.npz"


class ImageSet(NamedTuple):
    """An image set in memory: images are uint8 (N, height, width, 3), labels int64 (N,).

    `superclass[c]` is the number of the superclass of class c, `superclasses` are their names, and `candidates` belong to the training
    images; all three are None for sets that have none.
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


class ImageSetStatus(NamedTuple):
    """What `list_image_sets` knows about a set without loading its images; `problem` says why it cannot be loaded."""

    name: str
    path: Path
    prepared: bool
    n_train: int = 0
    n_test: int = 0
    n_classes: int = 0
    n_bytes: int = 0
    verified: bool = False
    problem: str | None = None


def data_root(option: str | Path | None = None) -> Path:
    """The folder of the image sets: the given one, else LTPLL_DATA, else ltpll in the user's cache folder."""
    return Path(option).expanduser() if option else cache_folder("LTPLL_DATA")


def _folder(name: str, root: str | Path | None) -> Path:
    if name not in IMAGE_SETS:
        raise UnknownNameError(
            f"There is no image set {name!r}; available: {', '.join(IMAGE_SETS)}."
        )
    return data_root(root) / name


# ---- preparing --------------------------------------------------------------------------------------------------------


def prepare_image_set(
    name: str,
    root: str | Path | None = None,
    archives: Sequence[str | Path] = (),
    on_progress: ByteProgress | None = None,
    *,
    check: bool = True,
    **options: Any,
) -> Path:
    """Convert the published archives of an image set into arrays under the data root.

    Args:
        name: cifar10, cifar100 or voc2007.
        root: The data root; `data_root()` by default.
        archives: Published archives that are already on disk; the others are downloaded to `downloads` under the data root.
        on_progress: Called with a description of the task, the bytes done and the bytes in total (0 if unknown).
        check: Whether the given archives must have the published checksums.
        **options: Options of the reader: `per_class` and `seed` of the test set for voc2007.

    Returns:
        The folder of the prepared set.

    Raises:
        UnknownNameError: If there is no image set of this name.
        InputError: If an archive cannot be downloaded or read, or the set cannot be written.

    Examples:
        prepare_image_set("cifar10", archives=["cifar-10-binary.tar.gz"])
    """
    folder = _folder(name, root)
    _refuse_foreign(folder)
    # Imported here because the readers import this module, and because loading a prepared set does not need them.
    from ltpll_research.image_sets.cifar import read_cifar10, read_cifar100
    from ltpll_research.image_sets.voc import read_voc2007

    reader: Any = {"cifar10": read_cifar10, "cifar100": read_cifar100, "voc2007": read_voc2007}[
        name
    ]
    given = [Path(path).expanduser() for path in archives]
    found = find_or_download(
        PUBLISHED_ARCHIVES[name],
        given,
        folder.parent / "downloads",
        check=check,
        on_progress=on_progress,
    )
    image_set = reader([archive.path for archive in found], on_progress, **options)
    return write_image_set(image_set, root, found, on_progress)


def write_image_set(
    image_set: ImageSet,
    root: str | Path | None = None,
    archives: Sequence[LocalArchive] = (),
    on_progress: ByteProgress | None = None,
) -> Path:
    """Write a set to a temporary folder, then move it into place, so that no reader ever sees an incomplete set."""
    folder = _folder(image_set.name, root)
    _refuse_foreign(folder)
    folder = (
        folder.resolve()
    )  # if it links to another disk, the temporary folder must be on that disk too
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    contents: dict[str, npt.NDArray[Any] | bytes] = {
        f"{array}.npy": getattr(image_set, array) for array in ARRAYS
    }
    if image_set.candidates is not None:
        contents[CANDIDATES] = _packed(image_set.candidates)
    meta = {
        "format": FORMAT,
        "name": image_set.name,
        "classes": image_set.classes,
        "superclass": None if image_set.superclass is None else image_set.superclass.tolist(),
        "superclasses": image_set.superclasses,
        "n_train": len(image_set.y_train),
        "n_test": len(image_set.y_test),
        "sources": [{"archive": archive.path.name, "md5": archive.md5} for archive in archives],
    }
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(folder)
        temporary.mkdir()
        files: dict[str, Any] = {}
        total = sum(
            len(content) if isinstance(content, bytes) else content.nbytes
            for content in contents.values()
        )
        for file, content in contents.items():
            files[file] = _write(temporary / file, content)
            if on_progress:
                done = sum(written["bytes"] for written in files.values())
                on_progress(f"writing {image_set.name}", done, max(done, total))
        _write(temporary / META, json.dumps({**meta, "files": files}, indent=1).encode())
        _put_in_place(temporary, folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(
                f"The disk of {folder.parent} is full: free some space and prepare {image_set.name} again."
            ) from None
        raise InputError(
            f"The set {image_set.name} cannot be written to {folder}: {error.strerror or error}."
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder that ltpll did not write: the data root may hold files of the user under the same name."""
    if folder.exists() and not (folder / META).is_file():
        raise InputError(
            f"{folder} exists and was not written by ltpll: move it, or choose another --data-root."
        )


def _remove_leftovers(folder: Path) -> None:
    """Remove the temporary folders of killed processes; after a day, no preparation can still be using them."""
    for left in folder.parent.glob(f".{folder.name}.*.tmp"):
        if (
            time.time() - left.stat().st_mtime > 86_400
            or left.name == f".{folder.name}.{os.getpid()}.tmp"
        ):
            shutil.rmtree(left, ignore_errors=True)


def _put_in_place(temporary: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    replaces = folder.exists()
    if replaces:
        folder.rename(old)
    try:
        temporary.rename(folder)
    except BaseException:
        if replaces:
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


class _HashingWriter:
    """A file that computes the checksum of what is written; numpy writes chunks to it, and so reports a full disk correctly."""

    def __init__(self, file: io.BufferedWriter) -> None:
        self.file, self.sha256 = file, hashlib.sha256()

    def write(self, content: bytes) -> int:
        self.sha256.update(content)
        return self.file.write(content)


def _write(path: Path, content: npt.NDArray[Any] | bytes) -> dict[str, Any]:
    with path.open("wb") as file:
        writer = _HashingWriter(file)
        if isinstance(content, bytes):
            writer.write(content)
        else:
            np.lib.format.write_array(writer, content, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
        return {"sha256": writer.sha256.hexdigest(), "bytes": file.tell()}


def _packed(candidates: Candidates) -> bytes:
    buffer = io.BytesIO()
    np.savez(
        buffer, offsets=candidates.offsets.cpu().numpy(), labels=candidates.labels.cpu().numpy()
    )
    return buffer.getvalue()


# ---- loading ----------------------------------------------------------------------------------------------------------


def load_image_set(
    name: str, root: str | Path | None = None, *, verify: bool = False, mmap: bool = False
) -> ImageSet:
    """Load a prepared image set.

    Args:
        name: cifar10, cifar100 or voc2007.
        root: The data root; `data_root()` by default.
        verify: Whether to compare the checksums of all files, besides their sizes.
        mmap: Whether to memory-map the images instead of reading them.

    Returns:
        The arrays of the set.

    Raises:
        UnknownNameError: If there is no image set of this name.
        InputError: If the set is not prepared or is damaged.

    Examples:
        images = load_image_set("cifar100")
        images.x_train.shape  # (50000, 32, 32, 3)
    """
    folder = _folder(name, root)
    if not folder.exists():
        raise InputError(
            f"The image set {name} is not prepared in {folder.parent}: run `{_command(folder)}`."
        )
    meta = _read_meta(folder, verify)
    try:
        x_train, y_train, x_test, y_test = (
            _array(folder / f"{array}.npy", mmap and array[0] == "x") for array in ARRAYS
        )
        candidates = None
        if CANDIDATES in meta["files"]:
            with np.load(folder / CANDIDATES, allow_pickle=False) as packed:
                candidates = _unpacked(packed["offsets"], packed["labels"], meta["classes"])
    except InputError as error:
        raise _damaged(folder, str(error).rstrip(".")) from None
    except Exception as error:  # numpy and zipfile raise many kinds of errors for damaged files
        raise _damaged(folder, first_line(error)) from None
    classes = tuple(meta["classes"])
    for split, x, y, n in (
        ("train", x_train, y_train, meta["n_train"]),
        ("test", x_test, y_test, meta["n_test"]),
    ):
        if x.dtype != np.uint8 or x.ndim != 4 or x.shape[-1] != 3 or len(x) != n:
            raise _damaged(
                folder,
                f"x_{split}.npy has shape {x.shape} and type {x.dtype} instead of ({n}, height, width, 3) and uint8",
            )
        if y.dtype != np.int64 or y.shape != (n,):
            raise _damaged(
                folder,
                f"y_{split}.npy has shape {y.shape} and type {y.dtype} instead of ({n},) and int64",
            )
        if n and not 0 <= int(y.min()) <= int(y.max()) < len(classes):
            raise _damaged(
                folder,
                f"y_{split}.npy has labels from {y.min()} to {y.max()}, but there are {len(classes)} classes",
            )
    if candidates is not None and len(candidates) != len(y_train):
        raise _damaged(
            folder,
            f"there {are(len(candidates))} {counted(len(candidates), 'candidate set')} for {counted(len(y_train), 'image')}",
        )
    superclass = (
        None if meta.get("superclass") is None else np.asarray(meta["superclass"], dtype=np.int64)
    )
    superclasses = None if meta.get("superclasses") is None else tuple(meta["superclasses"])
    return ImageSet(
        name, x_train, y_train, x_test, y_test, classes, superclass, candidates, superclasses
    )


def _array(path: Path, mmap: bool) -> npt.NDArray[Any]:
    found = np.load(path, allow_pickle=False, mmap_mode="r" if mmap else None)
    if not isinstance(found, np.ndarray):  # numpy goes by the content of a file, not by its name
        raise InputError(f"{path.name} is not an array.")
    return found


def list_image_sets(
    root: str | Path | None = None, *, verify: bool = False
) -> list[ImageSetStatus]:
    """The status of every known set, prepared or not; a damaged one is listed with its problem."""
    listed = []
    for name in IMAGE_SETS:
        folder = _folder(name, root)
        if not folder.exists():
            listed.append(ImageSetStatus(name, folder, prepared=False))
            continue
        try:
            meta = _read_meta(folder, verify)
        except InputError as error:
            listed.append(ImageSetStatus(name, folder, prepared=True, problem=str(error)))
            continue
        n_bytes = sum(file["bytes"] for file in meta["files"].values())
        listed.append(
            ImageSetStatus(
                name,
                folder,
                True,
                meta["n_train"],
                meta["n_test"],
                len(meta["classes"]),
                n_bytes,
                verified=verify,
            )
        )
    return listed


def _command(folder: Path) -> str:
    return command(
        "ltpll-research",
        "data",
        "prepare",
        folder.name,
        *(() if folder.parent == data_root() else ("--data-root", folder.parent)),
    )


def _damaged(folder: Path, problem: str) -> InputError:
    return InputError(
        f"The image set in {folder} is damaged ({problem}): run `{_command(folder)}` to prepare it again."
    )


def _read_meta(folder: Path, verify: bool) -> Mapping[str, Any]:
    """Read the description of a set, and check that every file it names exists and has the right size."""
    if not (folder / META).is_file():
        raise InputError(
            f"{folder} is not an image set, since it has no {META}: move it, then run `{_command(folder)}`."
        )
    try:
        meta = parse_json((folder / META).read_bytes())
    except (OSError, ValueError) as error:
        raise _damaged(
            folder, f"{META}: {getattr(error, 'strerror', None) or 'not JSON'}"
        ) from None
    if (
        not isinstance(meta, dict)
        or meta.get("format") != FORMAT
        or meta.get("name") != folder.name
    ):
        raise _damaged(
            folder,
            f"{META} does not describe a set of the format {FORMAT!r} called {folder.name!r}",
        )
    problem = _problem_in(meta)
    if problem:
        raise _damaged(folder, f"{META} has {problem}")
    for file, expected in meta["files"].items():
        path = folder / file
        if not path.is_file():
            raise _damaged(folder, f"{file} is missing")
        if path.stat().st_size != expected["bytes"]:
            raise _damaged(
                folder, f"{file} has {path.stat().st_size} bytes instead of {expected['bytes']}"
            )
        if verify and _sha256(path) != expected["sha256"]:
            raise _damaged(folder, f"{file} has changed since it was written: its checksum differs")
    return meta


def _problem_in(meta: Mapping[str, Any]) -> str | None:
    classes, files = meta.get("classes"), meta.get("files")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        return "no list of classes"
    if any(not isinstance(meta.get(key), int) for key in ("n_train", "n_test")):
        return "no number of images"
    superclass, names = meta.get("superclass"), meta.get("superclasses")
    if superclass is not None and (
        not isinstance(superclass, list)
        or len(superclass) != len(classes)
        or not all(type(number) is int and 0 <= number < len(classes) for number in superclass)
    ):
        return f"no superclass for each of the {len(classes)} classes"
    if names is not None and not isinstance(names, list):
        return "no list of superclasses"
    allowed = {f"{array}.npy" for array in ARRAYS}
    if not isinstance(files, dict) or not allowed <= files.keys() <= allowed | {CANDIDATES}:
        return "no list of the array files"
    if not all(
        isinstance(f, dict) and isinstance(f.get("bytes"), int) and isinstance(f.get("sha256"), str)
        for f in files.values()
    ):
        return "no size and checksum for each file"
    return None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _unpacked(
    offsets: npt.NDArray[Any], labels: npt.NDArray[Any], classes: Sequence[str]
) -> Candidates:
    for array in (offsets, labels):
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iu":
            raise InputError("The candidate sets are not lists of numbers.")
    if (
        len(offsets) == 0
        or offsets[0] != 0
        or offsets[-1] != len(labels)
        or (np.diff(offsets) < 0).any()
    ):
        raise InputError("The candidate sets' offsets do not fit their labels.")
    return Candidates.from_flat(offsets, labels, len(classes), tuple(classes))
