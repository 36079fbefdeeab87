"""Converters: what people have on disk becomes an image set, and people's labels become its sets."""

from __future__ import annotations

import gzip
import math
import re
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.errors import InputError, first_line, shown
from ltpll.files import parse_json
from ltpll.formatting import counted
from ltpll.pictures.files import list_pictures
from ltpll.pictures.reading import read_pictures, suitable_side
from ltpll.tables.memory_limits import check_expansion
from ltpll.tables.opening import read_array
from ltpll.validation import in_range
from ltpll_research.image_sets.prepared import IMAGE_SETS, ImageSet, as_rgb

Array = npt.NDArray[Any]
COMBINE = ("union", "largest")
TEST_FOLDERS = ("test", "val", "valid", "validation")  # the first of them that a folder has is used
# Of the files of MNIST, Fashion-MNIST and KMNIST, by what they hold.
IDX_FILES = {
    f"{array}_{split}": rf"{prefix}-{what}[-.]idx\d-ubyte(\.gz)?"
    for split, prefix in (("train", "train"), ("test", "t10k"))
    for array, what in (("x", "images"), ("y", "labels"))
}
MAT_TO_NPZ = """
import sys, numpy, scipy.io
found = scipy.io.loadmat(sys.argv[1], variable_names=["X", "y"])
assert found["X"].ndim == 4
numpy.savez(sys.argv[2], X=found["X"].astype("u1"), y=found["y"].astype("u1"))
"""
MAT_FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}  # of SVHN


def check_name(name: str) -> str:
    """The name of a new set, which becomes that of its folder."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name) or name in IMAGE_SETS:
        raise InputError(
            f"An image set cannot be called {shown(name)}: choose another --name, of letters, digits "
            "and -_., and not that of a published set."
        )
    return name


def read_images(
    source: Path, name: str, *, side: int | None = None, test_share: float = 0.2
) -> ImageSet:
    """Read images and labels.

    Args:
        source: One of the formats that docs/benchmarks.md lists.
        name: The name of the set.
        side: Pictures in folders are scaled to squares of so many pixels; 32, 64 or 128 by default.
        test_share: The share of each class that is held out where there is no test split.

    Returns:
        The image set; grey images have three equal channels.

    Raises:
        InputError: The source is none of these, or is damaged.
    """
    in_range(test_share, "The test share", 0, 1, above=True)
    if source.suffix == ".npz":
        return _of_arrays(name, *_read_archive(source))
    if not source.is_dir():
        raise InputError(f"{source} is neither a folder nor an .npz archive of images.")
    if idx := _matching_files(source, IDX_FILES):
        return _of_arrays(name, {key: _read_idx(path) for key, path in idx.items()})
    if mat := _matching_files(source, {key: re.escape(one) for key, one in MAT_FILES.items()}):
        return _of_arrays(name, _read_svhn(mat))
    return _read_class_folders(source, name, side, test_share)


def _matching_files(folder: Path, patterns: Mapping[str, str]) -> dict[str, Path]:
    """The files that patterns name; empty unless there is one for each."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    found = {
        key: next((path for path in files if re.fullmatch(pattern, path.name)), None)
        for key, pattern in patterns.items()
    }
    return {key: path for key, path in found.items() if path} if all(found.values()) else {}


def _of_arrays(name: str, arrays: Mapping[str, Array], classes: Sequence[str] = ()) -> ImageSet:
    """The set of these arrays, checked; without names, classes are called by their numbers."""
    parts: list[Array] = []
    for split in ("train", "test"):
        x, y = as_rgb(arrays[f"x_{split}"]), np.asarray(arrays[f"y_{split}"])
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if x.dtype != np.uint8 or x.ndim != 4 or x.shape[3] != 3:
            raise InputError(
                f"The {split} images of {name} have the shape {x.shape} and the type {x.dtype}: "
                "they must be unsigned bytes, N × height × width × 3, or × 1 for grey ones."
            )
        if y.shape != (len(x),) or y.dtype.kind not in "iu" or (y.size and y.min() < 0):
            raise InputError(f"The {split} labels of {name} are not one class number per image.")
        parts += [x, y.astype(np.int64)]
    if not (len(parts[1]) and len(parts[3])) or parts[0].shape[1:] != parts[2].shape[1:]:
        raise InputError(f"{name} needs training and test images, all of one size.")
    n_classes = 1 + int(max(parts[1].max(), parts[3].max()))
    if (classes and len(classes) < n_classes) or n_classes > len(parts[1]):
        raise InputError(f"{name} has the label {n_classes - 1}, which no class name fits.")
    x, y, x_test, y_test = parts
    names = tuple(classes) or tuple(map(str, range(n_classes)))
    return ImageSet(name, x, y, x_test, y_test, names)


# ---- folders of pictures -------------------------------------------------------------------------


def _read_class_folders(source: Path, name: str, side: int | None, test_share: float) -> ImageSet:
    paths = list_pictures(source)
    folders = [PurePosixPath(path).parts[:-1] for path in paths]
    first = {parts[0].lower() for parts in folders if parts}
    test_folder = next((one for one in TEST_FOLDERS if one in first), "")
    has_splits = "train" in first and bool(test_folder)
    if has_splits:  # pictures in any other folder, such as a validation set, are left out
        used = [i for i, parts in enumerate(folders) if parts[0].lower() in ("train", test_folder)]
        is_test = np.asarray([folders[i][0].lower() == test_folder for i in used])
        paths, folders = [paths[i] for i in used], [folders[i][1:] for i in used]
    depths = set(map(len, folders))
    if depths - {1, 2} or len(depths) > 1:
        raise InputError(
            f"The pictures of {source} are not in one folder per class, such as cat/1.png or "
            "train/cat/1.png, or animal/cat/1.png with superclasses."
        )
    classes, y = np.unique([parts[-1] for parts in folders], return_inverse=True)
    if not has_splits:
        rng = np.random.default_rng(0)
        is_test = np.zeros(len(y), dtype=bool)
        for c in range(len(classes)):
            rows = rng.permutation(np.flatnonzero(y == c))
            is_test[rows[: max(1, round(test_share * len(rows)))]] = True
    x = read_pictures(source, paths, side or suitable_side(source, paths)).x
    arrays = {"x_train": x[~is_test], "y_train": y[~is_test], "x_test": x[is_test]}
    found = _of_arrays(name, arrays | {"y_test": y[is_test]}, classes.tolist())
    if missing := set(range(len(classes))) - set(found.y_train.tolist()):
        raise InputError(f"The class {shown(classes[min(missing)])} has no training pictures.")
    if depths == {1}:
        return found
    above = dict(zip(y.tolist(), (parts[0] for parts in folders), strict=True))
    names = sorted(set(above.values()))
    superclass = np.asarray([names.index(above[c]) for c in range(len(classes))])
    return found._replace(superclass=superclass, superclasses=tuple(names))


# ---- arrays --------------------------------------------------------------------------------------


def _read_archive(path: Path) -> tuple[dict[str, Array], list[str]]:
    """The arrays x_train, y_train, x_test and y_test, or train_images and so on, and `classes`."""
    stored = _array_names(path)
    found = {}
    for split in ("train", "test"):
        for letter, word in (("x", "images"), ("y", "labels")):
            names = (f"{letter}_{split}", f"{split}_{word}")
            name = next((one for one in names if one in stored), names[0])
            found[names[0]] = _array(path, name)
    classes = _array(path, "classes") if "classes" in stored else np.empty(0)
    return found, [str(one) for one in classes.ravel()]


def _array_names(path: Path) -> list[str]:
    names: list[str] = []

    def choose(stored: Sequence[str]) -> str:
        names.extend(stored)
        return max(stored)  # such as y_train, which is smaller than the images

    read_array(path, choose)
    return names


def _array(path: Path, name: str) -> Array:
    return read_array(path, lambda _: name)


def _read_idx(path: Path) -> Array:
    """An array of bytes: a type, the number of dimensions, each of them, and the values."""
    opened = partial(gzip.open, path) if path.suffix == ".gz" else path.open
    try:
        with opened("rb") as file:
            start = file.read(4)
            if start[:3] != b"\0\0\x08":
                raise ValueError("it does not hold unsigned bytes")
            shape = tuple(np.frombuffer(file.read(4 * start[3]), ">u4").tolist())
            check_expansion(path, path.stat().st_size, math.prod(shape))
            values = np.frombuffer(file.read(math.prod(shape) + 1), np.uint8)
        return values.reshape(shape)
    except (OSError, EOFError, ValueError, IndexError, zlib.error) as error:
        raise InputError(f"{path} is not an idx file ({first_line(error)}).") from None


def _read_svhn(files: Mapping[str, Path]) -> dict[str, Array]:
    """SVHN: images are the last dimension of X, and the label of a zero is 10."""
    found = {}
    with TemporaryDirectory() as folder:
        for split, path in files.items():
            plain = Path(folder) / f"{split}.npz"
            # In a process of its own, which a damaged file may crash.
            command = [sys.executable, "-c", MAT_TO_NPZ, str(path), str(plain)]
            if subprocess.run(command, capture_output=True).returncode:
                raise InputError(f"{path} does not hold the images X and the labels y of SVHN.")
            found[f"x_{split}"] = np.ascontiguousarray(_array(plain, "X").transpose(3, 0, 1, 2))
            found[f"y_{split}"] = _array(plain, "y").astype(np.int64).reshape(-1) % 10
    return found


# ---- sets of candidates --------------------------------------------------------------------------


def with_labels_of_people(images: ImageSet, path: Path, combine: str = "union") -> ImageSet:
    """Give an image set candidate sets that people made.

    The file is one of those that `read_sets` reads. Labels for as many images as the test split
    has, such as those of CIFAR-10H, exchange the splits. An InputError if they do not fit.
    """
    if path.suffix == ".npz" and "clean_label" in _array_names(path):
        truth = _array(path, "clean_label")
        if not np.array_equal(truth, images.y_train):
            raise InputError(
                f"The clean labels in {path} are not those of {images.name}: its rows have another "
                "order, or it belongs to another image set."
            )
    sets = read_sets(path, images.classes, combine)
    if len(sets) == len(images.y_test) != len(images.y_train):
        x, y, x_test, y_test = images[3], images[4], images[1], images[2]
        images = images._replace(x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    if len(sets) != len(images.y_train):
        raise InputError(
            f"{path} has {counted(len(sets), 'set')}, but {images.name} has "
            f"{len(images.y_train)} training and {len(images.y_test)} test images."
        )
    return images._replace(candidates=sets)


def read_sets(path: Path, classes: Sequence[str], combine: str = "union") -> Candidates:
    """Read candidate sets from what several people said about each image.

    A matrix with a column per class has sets where it is positive (0/1, votes of CIFAR-10H, or
    shares). A matrix of class numbers, and the arrays random_label1, random_label2, … or
    noisy_label of CIFAR-10N and CIFAR-100N, have the label of one person per column. JSON has the
    sets of all people for each row, as PLCIFAR10 does: a list, or an object by row number.

    Args:
        path: The .npy, .npz or .json file.
        classes: The names of the classes.
        combine: "union" (PLCIFAR10-Aggregate), or "largest", one person's set (its Vaguest).

    Raises:
        InputError: The file cannot be read, or holds something else.
    """
    if combine not in COMBINE:
        raise InputError(f"Sets cannot be combined by {shown(combine)}: choose union or largest.")
    if path.suffix in (".npy", ".npz"):
        names = _array_names(path) if path.suffix == ".npz" else [""]
        people = [one for one in names if re.fullmatch(r"random_label\d+|noisy_label", one)]
        matrix = np.stack([_array(path, one).reshape(-1) for one in people], 1) if people else None
        matrix = _array(path, names[0]) if matrix is None else matrix
        if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            raise InputError(f"{path} holds no matrix of labels, or of one column per class.")
        if matrix.shape[1] == len(classes) and not people:
            return Candidates.from_matrix((matrix > 0).astype(np.uint8), classes=classes)
        rows: Any = [[[one] for one in row] for row in matrix.tolist()]
    else:
        rows = _rows_of_json(path)
    try:
        if combine == "largest":
            rows = [[max(row, key=len)] for row in rows]
        chosen = [sorted({int(one) for own in row for one in own}) for row in rows]
        offsets = np.cumsum([0, *map(len, chosen)])
        labels = np.asarray([one for row in chosen for one in row], dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{path} does not hold lists of class numbers for each person and image."
        ) from None
    return Candidates.from_flat(offsets, labels, len(classes), tuple(classes))


def _rows_of_json(path: Path) -> list[Any]:
    try:
        content = parse_json(path.read_bytes())
        if isinstance(content, dict):
            content = [content[str(row)] for row in range(len(content))]
        return list(content)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path} cannot be read as .npy, .npz or .json ({first_line(error)}); docs/benchmarks.md "
            "says how pickled labels are converted."
        ) from None
