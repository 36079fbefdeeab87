"""Image processors of `transformers`: their preprocessing, measured by what they make of examples.

There are almost a hundred classes of them, and the same setting means different things to each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np

from ltpll.backbones.preprocessing import LARGEST_SIDE, Preprocessing, Resample

RESAMPLES = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # PIL's numbers
# Of the example: a white square in the middle of a black picture.
HEIGHT, WIDTH, SQUARE = 400, 600, 100

Array = np.ndarray[Any, Any]


def read_processor(folder: Path) -> tuple[Preprocessing, bool]:
    """What the image processor of a model does to a picture, and whether it reverses the channels."""
    from transformers import AutoImageProcessor

    processor = AutoImageProcessor.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False, backend="pil"
    )
    settings = processor.to_dict()
    for name in ("size", "crop_size", "pad_size"):
        for value in filter(None, dict(settings.get(name) or {}).values()):
            if not 1 <= value <= LARGEST_SIDE:
                raise ValueError(f"its pictures have {value} pixels, more than {LARGEST_SIDE}")
    resample = RESAMPLES[int(settings.get("resample", 2))]
    return _measured(processor, cast(Resample, resample))


def _measured(processor: Any, resample: Resample) -> tuple[Preprocessing, bool]:
    def processed(picture: Array) -> Array:
        how = {"return_tensors": "np", "input_data_format": "channels_last"}
        result = np.asarray(processor(images=picture, **how)["pixel_values"], np.float64)
        if result.ndim != 4 or result.shape[:2] != (1, 3):
            raise ValueError(f"its image processor returns an array of shape {result.shape}")
        return cast(Array, result[0])

    def middle(colour: tuple[int, int, int]) -> Array:
        result = processed(np.full((HEIGHT, WIDTH, 3), colour, np.uint8))
        return result[:, result.shape[1] // 2, result.shape[2] // 2]

    black, white, red = middle((0, 0, 0)), middle((255, 255, 255)), middle((255, 0, 0))
    reverse = bool(np.allclose(red, [*black[:2], white[2]]))
    if not reverse and not np.allclose(red, [white[0], *black[1:]]):
        raise ValueError("its image processor mixes the channels")
    std = 1 / (white - black)
    mean = -black * std

    example = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    top, left = (HEIGHT - SQUARE) // 2, (WIDTH - SQUARE) // 2
    example[top : top + SQUARE, left : left + SQUARE] = 255
    result = (processed(example) * std[:, None, None] + mean[:, None, None])[0]
    height, width = result.shape
    # Resampling keeps the area of the square, so its edges are known to a fraction of a pixel.
    tall, wide = result[:, width // 2].sum() / SQUARE, result[height // 2].sum() / SQUARE
    shorter, side = round(tall * HEIGHT), min(height, width)
    stretched = abs(wide * WIDTH / (tall * HEIGHT) - 1) < 0.02
    if (
        (height, width) == (HEIGHT, WIDTH)
        or max(result[0].max(), result[:, 0].max()) > 0.5  # cuts off most of a picture
        or (not stretched and abs(wide / tall - 1) > 0.02)  # changes the aspect ratio otherwise
        or shorter < side - 1  # adds a border
    ):
        raise ValueError(
            "its image processor does not scale pictures to squares that are known here"
        )
    means, stds = (
        tuple(round(float(value), 6) for value in (values[::-1] if reverse else values))
        for values in (mean, std)
    )
    if stretched and height == width and abs(shorter - side) <= 1:
        return Preprocessing(side, means, stds, fit="stretch", resample=resample), reverse
    # Some processors stretch a picture to a square and then crop it; the networks were trained on
    # crops that keep the aspect ratio.
    resize = max(shorter, side)
    return Preprocessing(side, means, stds, "crop", resize, resample), reverse
