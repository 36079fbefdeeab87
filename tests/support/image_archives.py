"""Tiny archives in the official formats of the image sets, for tests."""

import gzip
import io
import tarfile

import numpy as np
from PIL import Image

from ltpll_research.image_sets.voc import CLASSES

NAMES10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
SUPERCLASS = np.random.default_rng(5).permutation(np.repeat(np.arange(20), 5))


def tar_bytes(files, *, packed=False):
    """A tar file of {name: content}; a content may also be a ready TarInfo, for what is no plain
    file.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in files.items():
            if isinstance(content, tarfile.TarInfo):
                tar.addfile(content)
            else:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), 1, mtime=0) if packed else buffer.getvalue()


def records(labels, seed):
    """Records as the publisher writes them, and the planes in them, (N, 3, 32, 32)."""
    planes = np.random.default_rng(seed).integers(0, 256, (len(labels), 3, 32, 32), dtype=np.uint8)
    rows = [
        bytes(np.atleast_1d(label).tolist()) + plane.tobytes()
        for label, plane in zip(labels, planes, strict=True)
    ]
    return b"".join(rows), planes


def cifar10_files(seed=0):
    """The members of a small cifar-10-binary.tar.gz, its training labels and planes, and its test
    labels and planes.
    """
    rng = np.random.default_rng(seed)
    files, labels, planes = {"cifar-10-batches-bin/readme.html": b"<html>"}, [], []
    for i in [3, 1, 2, 5, 4]:  # the order in the archive is not the order of the set
        y = rng.integers(0, 10, 4 + i)
        files[f"cifar-10-batches-bin/data_batch_{i}.bin"], x = records(y, seed * 10 + i)
        labels.append((i, y))
        planes.append((i, x))
    y_test = rng.permutation(10)
    files["cifar-10-batches-bin/test_batch.bin"], x_test = records(y_test, seed * 10 + 6)
    files["cifar-10-batches-bin/batches.meta.txt"] = (
        "\n".join(NAMES10) + "\n\n"
    ).encode()  # it ends in an empty line
    y_train, x_train = (
        np.concatenate([part for _, part in sorted(parts, key=lambda p: p[0])])
        for parts in (labels, planes)
    )
    return files, (y_train, x_train), (y_test, x_test)


def cifar100_files(seed=0):
    rng = np.random.default_rng(seed)
    files, splits = {}, []
    for split in ("train", "test"):
        y = rng.permutation(100)
        files[f"cifar-100-binary/{split}.bin"], x = records(
            np.stack([SUPERCLASS[y], y], 1), seed + len(files)
        )
        splits.append((y, x))
    files["cifar-100-binary/fine_label_names.txt"] = "".join(
        f"fine_{i}\n" for i in range(100)
    ).encode()
    files["cifar-100-binary/coarse_label_names.txt"] = "".join(
        f"coarse {i}\r\n" for i in range(20)
    ).encode()
    return files, *splits


HEAD = "VOCdevkit/VOC2007"


def jpeg(width, height, seed, quality=85):
    coarse = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).save(
        buffer, "JPEG", quality=quality
    )
    return buffer.getvalue()


def annotation(things, extra=""):
    objects = "".join(
        f"<object><name>{name}</name><difficult>{int(difficult)}</difficult><bndbox><xmax>{x2}</xmax><xmin>{x1}</xmin>"
        f"<ymin>{y1}</ymin><ymax>{y2}</ymax></bndbox>"
        f"<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part></object>"
        for name, (x1, y1, x2, y2), difficult in things
    )
    return f"<annotation><folder>VOC2007</folder>{extra}{objects}</annotation>".encode()


TRAIN = {
    "000012": [
        ("person", (1, 1, 60, 90), False),
        ("dog", (20, 30, 90, 50), True),
        ("person", (5, 5, 5, 5), False),
    ],
    "000003": [
        ("cat", (10, 10, 40, 70), False),
        ("cat", (2, 2, 9, 9), False),
    ],  # one class: not used
    "000007": [("car", (100, 1, 120, 90), False), ("bus", (1, 80, 120, 90), False)],
}


TEST = {
    f"{100 + i:06}": [
        (CLASSES[(i + k) % 20], (1 + k, 2 + k, 50 + i, 60 + k), k == 1)
        for k in range(3)
        if CLASSES[(i + k) % 20] != "sheep"
    ]
    for i in range(20)
} | {"000200": [("sheep", (1, 1, 30, 30), False), ("sheep", (10, 10, 30, 70), False)]}


def voc_files(train=TRAIN, test=TEST):
    """The members of the two archives; sizes differ from image to image."""
    archives = []
    for split, images in (("trainval", train), ("test", test)):
        files = {
            f"{HEAD}/Annotations/{image}.xml": annotation(things)
            for image, things in images.items()
        }
        files[f"{HEAD}/ImageSets/Main/{split}.txt"] = "".join(
            f"{image}\n" for image in images
        ).encode()
        files[f"{HEAD}/ImageSets/Main/cat_{split}.txt"] = b"not wanted"
        files |= {f"{HEAD}/JPEGImages/{image}.jpg": jpeg(120, 90, int(image)) for image in images}
        files[f"{HEAD}/SegmentationClass/000007.png"] = b"not wanted"
        archives.append(files)
    return archives
