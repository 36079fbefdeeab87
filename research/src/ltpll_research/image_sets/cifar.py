"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): the binary versions, which need no unpickling."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from ltpll_research.image_sets.archives import read_members
from ltpll_research.image_sets.prepared import ImageSet

SIDE = 32


def read_cifar10(archives: Sequence[Path]) -> ImageSet:
    """Read CIFAR-10: five training files and a test file.

    Their records are a label and the red, green and blue planes.
    """
    files = _files(archives)
    train = b"".join(files[f"data_batch_{i}.bin"] for i in range(1, 6))
    labels, x_train = _records(train, 1)
    test_labels, x_test = _records(files["test_batch.bin"], 1)
    classes = _names(files["batches.meta.txt"])
    return ImageSet("cifar10", x_train, labels[:, 0], x_test, test_labels[:, 0], classes)


def read_cifar100(archives: Sequence[Path]) -> ImageSet:
    """Read CIFAR-100, whose records are a superclass, a class and the three planes."""
    files = _files(archives)
    classes, superclasses = (
        _names(files[f"{kind}_label_names.txt"]) for kind in ("fine", "coarse")
    )
    train, x_train = _records(files["train.bin"], 2)
    test, x_test = _records(files["test.bin"], 2)
    # Only the records tell the superclass of a class.
    superclass = np.unique(train[:, ::-1], axis=0)[:, 1]
    arrays = (x_train, train[:, 1], x_test, test[:, 1])
    return ImageSet("cifar100", *arrays, classes, superclass, None, superclasses)


def _files(archives: Sequence[Path]) -> dict[str, bytes]:
    def wanted(path: str) -> str | None:
        name = PurePosixPath(path).name
        return name if name.endswith((".bin", ".txt")) else None

    return dict(read_members(archives, wanted))


def _names(content: bytes) -> tuple[str, ...]:
    return tuple(line.strip() for line in content.decode().splitlines() if line.strip())


def _records(content: bytes, n_labels: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """The labels, one column per label of a record, and the images (N, 32, 32, 3)."""
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, n_labels + 3 * SIDE * SIDE)
    planes = records[:, n_labels:].reshape(-1, 3, SIDE, SIDE)
    labels = records[:, :n_labels].astype(np.int64)
    return labels, np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
