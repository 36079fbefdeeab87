"""Converts benchmark packs (the encoded images of a set in one .npz file) into image sets under a
data root.

A CIFAR pack holds the test images and, class by class, only those training images that an imbalance
of 50 or more needs.
"""

from __future__ import annotations

import argparse
import io
import sys
import zipfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll_research.image_sets.archives import PublishedArchive, md5_of_file
from ltpll_research.image_sets.prepared import ImageSet, write_image_set


def images(pack: Mapping[str, npt.NDArray[Any]], split: str, side: int) -> npt.NDArray[np.uint8]:
    """All images of a split; an encoded picture is one image or a vertical strip of several."""
    from PIL import Image

    encoded, offsets = pack[f"{split}_buf"], pack[f"{split}_off"]
    parts = []
    for start, stop in pairwise(offsets):
        with Image.open(
            io.BytesIO(encoded[start:stop].tobytes()), formats=["WEBP", "JPEG", "PNG"]
        ) as image:
            parts.append(np.asarray(image.convert("RGB")).reshape(-1, side, side, 3))
    return np.concatenate(parts)


def read_pack(path: Path) -> ImageSet:
    """Read a pack as an image set, whose name follows from its content."""
    try:
        with np.load(path, allow_pickle=False) as file:
            pack = {key: file[key] for key in file.files}
        classes = tuple(str(name) for name in pack["names"])
        name = "voc2007" if "candidates" in pack else {10: "cifar10", 100: "cifar100"}[len(classes)]
        side = int(pack["size"]) if "size" in pack else 32
        labels = [pack[f"y_{split}"].astype(np.int64) for split in ("train", "test")]
        arrays = [images(pack, split, side) for split in ("train", "test")]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} is not a benchmark pack ({type(error).__name__}: {error})."
        ) from None
    for split, x, y in zip(("train", "test"), arrays, labels, strict=True):
        if len(x) != len(y):
            raise InputError(f"{path} has {len(x)} {split} images for {len(y)} labels.")
    coarse, coarse_names = pack.get("coarse_of_fine"), pack.get("coarse_names")
    return ImageSet(
        name,
        arrays[0],
        labels[0],
        arrays[1],
        labels[1],
        classes,
        None if coarse is None else coarse.astype(np.int64),
        Candidates.from_matrix(pack["candidates"], classes=classes)
        if "candidates" in pack
        else None,
        None if coarse_names is None else tuple(str(name) for name in coarse_names),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("packs", nargs="+", type=Path, metavar="PACK")
    parser.add_argument(
        "--data-root",
        type=Path,
        help="folder of the image sets (default: $LTPLL_DATA, else the user's cache folder)",
    )
    arguments = parser.parse_args()
    try:
        for path in arguments.packs:
            image_set = read_pack(path)
            folder = write_image_set(
                image_set, arguments.data_root, [PublishedArchive(path.name, md5_of_file(path))]
            )
            print(
                f"{image_set.name}: {len(image_set.y_train)} training and "
                f"{len(image_set.y_test)} test images in {folder}"
            )
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
