"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): the binary versions, which need no unpickling."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError
from ltpll_research.image_sets.archives import missing_member, read_members
from ltpll_research.image_sets.prepared import ImageSet

SIDE = 32
PIXELS = 3 * SIDE * SIDE


def read_cifar10(archives: Sequence[Path]) -> ImageSet:
    """Read CIFAR-10: five training files and a test file.

    Their records are a label and the red, green and blue planes.
    """
    train = [f"data_batch_{i}.bin" for i in range(1, 6)]
    files = _files(archives, [*train, "test_batch.bin", "batches.meta.txt"])
    classes = _names(files, "batches.meta.txt", 10)
    parts = [_records(files, name, [10]) for name in train]
    labels, x_test = _records(files, "test_batch.bin", [10])
    return ImageSet(
        "cifar10",
        np.concatenate([images for _, images in parts]),
        np.concatenate([label[:, 0] for label, _ in parts]),
        x_test,
        labels[:, 0],
        classes,
    )


def read_cifar100(archives: Sequence[Path]) -> ImageSet:
    """Read CIFAR-100, whose records are a superclass, a class and the three planes."""
    names = ["train.bin", "test.bin", "fine_label_names.txt", "coarse_label_names.txt"]
    files = _files(archives, names)
    classes = _names(files, "fine_label_names.txt", 100)
    superclasses = _names(files, "coarse_label_names.txt", 20)
    train, x_train = _records(files, "train.bin", [20, 100])
    test, x_test = _records(files, "test.bin", [20, 100])
    # Only the records tell the superclass of a class.
    pairs = np.unique(np.concatenate([train, test])[:, ::-1], axis=0)
    if pairs[:, 0].tolist() != list(range(100)):
        raise InputError(
            "Not every class has images of exactly one superclass: download the archive again."
        )
    y_train, y_test, superclass = train[:, 1], test[:, 1], pairs[:, 1].copy()
    return ImageSet(
        "cifar100", x_train, y_train, x_test, y_test, classes, superclass, None, superclasses
    )


def _files(archives: Sequence[Path], names: Sequence[str]) -> dict[str, bytes]:
    def wanted(path: str) -> str | None:
        name = PurePosixPath(path).name
        return name if name in names else None

    files = dict(read_members(archives, wanted))
    for name in names:
        if name not in files:
            raise missing_member(archives, name)
    return files


def _names(files: dict[str, bytes], file: str, n: int) -> tuple[str, ...]:
    lines = files[file].decode("utf-8", "replace").split("\n")
    names = tuple(name for line in lines if (name := line.strip()))
    if len(names) != n or len(set(names)) != n:
        raise InputError(f"{file} does not have {n} distinct names: download the archive again.")
    return names


def _records(
    files: dict[str, bytes], file: str, n_labels: Sequence[int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """The labels, one column per entry of `n_labels`, and the images (N, 32, 32, 3)."""
    content = files.pop(file)  # frees the bytes once the images are copied below
    width = len(n_labels) + PIXELS
    whole = len(content) > 0 and len(content) % width == 0
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, width) if whole else None
    if records is None or (records[:, : len(n_labels)] >= np.asarray(n_labels)).any():
        raise InputError(
            f"{file} does not hold records of {width} bytes with labels below "
            f"{' and '.join(map(str, n_labels))}: download the archive again."
        )
    labels = records[:, : len(n_labels)].astype(np.int64)
    planes = records[:, len(n_labels) :].reshape(-1, 3, SIDE, SIDE)
    return labels, np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
