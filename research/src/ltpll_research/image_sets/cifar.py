"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), read from the binary versions, which need no unpickling."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError
from ltpll_research.image_sets.archives import ByteProgress, missing_member, read_members
from ltpll_research.image_sets.prepared import ImageSet

Bytes = npt.NDArray[np.uint8]

SIDE = 32
PIXELS = 3 * SIDE * SIDE


def read_cifar10(archives: Sequence[Path], on_progress: ByteProgress | None = None) -> ImageSet:
    """Read CIFAR-10: five training files and a test file, whose records are a label and the red, green and blue planes."""
    train = [f"data_batch_{i}.bin" for i in range(1, 6)]
    files = _files(archives, [*train, "test_batch.bin", "batches.meta.txt"], on_progress)
    classes = _names(files, "batches.meta.txt", 10)
    parts = [_records(files, name, {"label": 10}) for name in train]
    labels, x_test = _records(files, "test_batch.bin", {"label": 10})
    return ImageSet(
        "cifar10",
        np.concatenate([images for _, images in parts]),
        np.concatenate([label[:, 0] for label, _ in parts]),
        x_test,
        labels[:, 0],
        classes,
    )


def read_cifar100(archives: Sequence[Path], on_progress: ByteProgress | None = None) -> ImageSet:
    """Read CIFAR-100, whose records are a superclass, a class and the three planes; only they tell the superclass of a class."""
    files = _files(
        archives,
        ["train.bin", "test.bin", "fine_label_names.txt", "coarse_label_names.txt"],
        on_progress,
    )
    classes = _names(files, "fine_label_names.txt", 100)
    superclasses = _names(files, "coarse_label_names.txt", 20)
    ranges = {"coarse label": 20, "fine label": 100}
    train, x_train = _records(files, "train.bin", ranges)
    test, x_test = _records(files, "test.bin", ranges)
    superclass = _superclass_of(np.concatenate([train, test]), classes)
    return ImageSet(
        "cifar100",
        x_train,
        train[:, 1],
        x_test,
        test[:, 1],
        classes,
        superclass,
        superclasses=superclasses,
    )


def _files(
    archives: Sequence[Path], names: Sequence[str], on_progress: ByteProgress | None
) -> dict[str, bytes]:
    def wanted(path: str) -> str | None:
        name = PurePosixPath(path).name
        return name if name in names else None

    files = dict(read_members(archives, wanted, on_progress=on_progress))
    for name in names:
        if name not in files:
            raise missing_member(archives, name)
    return files


def _names(files: dict[str, bytes], file: str, n: int) -> tuple[str, ...]:
    try:
        lines = files[file].decode().split("\n")
    except UnicodeDecodeError:
        raise InputError(
            f"{file} in the archive is not text: download the archive again."
        ) from None
    names = tuple(name for line in lines if (name := line.strip()))
    if len(names) != n or len(set(names)) != n:
        raise InputError(
            f"{file} in the archive has {len(set(names))} distinct names instead of {n}: download the archive again."
        )
    return names


def _records(
    files: dict[str, bytes], file: str, ranges: dict[str, int]
) -> tuple[npt.NDArray[np.int64], Bytes]:
    """The labels, one column per entry of `ranges`, and the images (N, 32, 32, 3)."""
    content = files.pop(file)  # frees the bytes once the images are copied below
    width = len(ranges) + PIXELS
    if len(content) == 0 or len(content) % width:
        raise InputError(
            f"{file} in the archive has {len(content)} bytes, not a whole number of records of {width}: download the archive again."
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, width)
    labels = records[:, : len(ranges)].astype(np.int64)
    for column, (what, n) in enumerate(ranges.items()):
        wrong = np.flatnonzero(labels[:, column] >= n)
        if len(wrong):
            row = int(wrong[0])
            raise InputError(
                f"Record {row} of {file} has the {what} {labels[row, column]}, not one of 0 to {n - 1}: download the archive again."
            )
    planes = records[:, len(ranges) :].reshape(-1, 3, SIDE, SIDE)
    return labels, np.ascontiguousarray(planes.transpose(0, 2, 3, 1))


def _superclass_of(labels: npt.NDArray[np.int64], classes: Sequence[str]) -> npt.NDArray[np.int64]:
    pairs = np.unique(labels[:, ::-1], axis=0)
    counts = np.bincount(pairs[:, 0], minlength=len(classes))
    wrong = np.flatnonzero(counts != 1)
    if len(wrong):
        c = int(wrong[0])
        problem = "no images" if counts[c] == 0 else f"images of {counts[c]} superclasses"
        raise InputError(
            f"The class {classes[c]!r} has {problem} in the archive instead of one superclass: download it again."
        )
    return pairs[:, 1].copy()
