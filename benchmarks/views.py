"""Measures the speed of the batched image views, compared on a CPU with a loop over Pillow
images.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from torch import Tensor

from ltpll.interfaces import ViewKind
from ltpll.runs.environment import environment
from ltpll.views.crops import HOLE
from ltpll.views.images import ImageViews

POLICIES = ("flip-crop", "paper")
KINDS: tuple[ViewKind, ...] = ("weak", "strong")
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


# ---- the same views, one image at a time ---------------------------------------------------------


def pillow_crop(image: Image.Image, policy: str) -> Image.Image:
    width, height = image.size
    if policy == "flip-crop":
        pad = width // 8
        image = ImageOps.expand(image, pad, 0)
        left, top = random.randint(0, 2 * pad), random.randint(0, 2 * pad)
        image = image.crop((left, top, left + width, top + height))
    else:
        box = (0, 0, width, height)
        for _ in range(10):
            area = width * height * random.uniform(0.2, 1)
            ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                left, top = random.randint(0, width - w), random.randint(0, height - h)
                box = (left, top, left + w, top + h)
                break
        image = image.crop(box).resize((width, height), Image.Resampling.BILINEAR)
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image


def pillow_hue(image: Image.Image, turns: float) -> Image.Image:
    hue, saturation, value = image.convert("HSV").split()
    moved = Image.fromarray(
        (np.asarray(hue, dtype=np.uint8).astype(np.int16) + int(turns * 255)).astype(np.uint8), "L"
    )
    return Image.merge("HSV", (moved, saturation, value)).convert("RGB")


def pillow_weak(image: Image.Image, policy: str) -> Image.Image:
    image = pillow_crop(image, policy)
    if policy == "flip-crop":
        return image
    if random.random() < 0.8:
        steps: list[Callable[[Image.Image], Image.Image]] = [
            lambda i: ImageEnhance.Brightness(i).enhance(random.uniform(0.6, 1.4)),
            lambda i: ImageEnhance.Contrast(i).enhance(random.uniform(0.6, 1.4)),
            lambda i: ImageEnhance.Color(i).enhance(random.uniform(0.6, 1.4)),
            lambda i: pillow_hue(i, random.uniform(-0.1, 0.1)),
        ]
        random.shuffle(steps)
        for step in steps:
            image = step(image)
    return image.convert("L").convert("RGB") if random.random() < 0.2 else image


def affine(*matrix: float) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, matrix)


def enhance(
    kind: Callable[[Image.Image], ImageEnhance._Enhance],
) -> Callable[[Image.Image], Image.Image]:
    return lambda image: kind(image).enhance(random.uniform(0.05, 0.95))


PILLOW_OPERATIONS: list[Callable[[Image.Image], Image.Image]] = [
    lambda image: image,
    ImageOps.autocontrast,
    ImageOps.equalize,
    enhance(ImageEnhance.Brightness),
    enhance(ImageEnhance.Contrast),
    enhance(ImageEnhance.Color),
    enhance(ImageEnhance.Sharpness),
    lambda image: ImageOps.posterize(image, random.randint(4, 7)),
    lambda image: ImageOps.solarize(image, random.randint(0, 256)),
    lambda image: image.rotate(random.uniform(-30, 30)),
    lambda image: affine(1, random.uniform(-0.3, 0.3), 0, 0, 1, 0)(image),
    lambda image: affine(1, 0, 0, random.uniform(-0.3, 0.3), 1, 0)(image),
    lambda image: affine(1, 0, random.uniform(-0.3, 0.3) * image.width, 0, 1, 0)(image),
    lambda image: affine(1, 0, 0, 0, 1, random.uniform(-0.3, 0.3) * image.height)(image),
]


def pillow_strong(image: Image.Image, policy: str) -> Image.Image:
    image = pillow_crop(image, policy)
    for _ in range(3):
        image = random.choice(PILLOW_OPERATIONS)(image)
    side = random.uniform(0, image.width / 2)
    x, y = (int(max(0, random.uniform(0, length) - side / 2)) for length in image.size)
    image = image.copy()
    ImageDraw.Draw(image).rectangle((x, y, x + side, y + side), tuple(int(v) for v in HOLE))
    return image


def pillow_views(images: np.ndarray, kind: str, policy: str) -> np.ndarray:
    view = pillow_weak if kind == "weak" else pillow_strong
    mean, std = np.array(MEAN, dtype=np.float32), np.array(STD, dtype=np.float32)
    out = [
        (np.asarray(view(Image.fromarray(image), policy), dtype=np.float32) / 255 - mean) / std
        for image in images
    ]
    return np.stack(out).transpose(0, 3, 1, 2)


# ---- timing --------------------------------------------------------------------------------------


def seconds(function: Callable[[], object], device: torch.device, at_least: float) -> float:
    """The shortest time of one call after a warm-up, which is the one least disturbed by other work
    on the machine.
    """

    def once() -> float:
        start = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    for _ in range(3):
        once()
    times: list[float] = []
    while sum(times) < at_least or len(times) < 5:
        times.append(once())
    return min(times)


def draw(
    views: ImageViews,
    apply: Callable[..., Tensor],
    x: Tensor,
    kind: ViewKind,
    generator: torch.Generator,
) -> Tensor:
    """Draw one view like `ImageViews.draw`; `apply` is its deterministic part, compiled or not."""
    return apply(x, views.parameters(kind, len(x), (x.shape[2], x.shape[3]), x.device, generator))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--compile", action="store_true", help="compile the deterministic part of drawing a view"
    )
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--batch", type=int, nargs="+", default=[256, 4096])
    parser.add_argument("--policy", choices=POLICIES, nargs="+", default=POLICIES)
    parser.add_argument("--bfloat16", action="store_true", help="bfloat16, channels last")
    parser.add_argument("--seconds", type=float, default=1.0, help="time spent on each measurement")
    parser.add_argument("--out", type=Path, help="also write the figures to this JSON file")
    options = parser.parse_args()
    device = torch.device(options.device)
    name = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"CPU, {torch.get_num_threads()} threads"
    )
    print(
        f"{name}, torch {torch.__version__}, images of {options.size} × "
        f"{options.size}{', compiled' if options.compile else ''}"
    )
    generator = torch.Generator(device).manual_seed(0)
    rows = []
    smooth = torch.nn.functional.interpolate(
        torch.rand(max(options.batch), 3, 8, 8), size=options.size, mode="bilinear"
    )
    images = ((smooth * 230) + 25 * torch.rand(smooth.shape)).to(torch.uint8)
    for policy in options.policy:
        dtype = torch.bfloat16 if options.bfloat16 else torch.float32
        views = ImageViews(policy, MEAN, STD, dtype=dtype, channels_last=options.bfloat16)
        apply = (
            torch.compile(views.apply, fullgraph=True, dynamic=False)
            if options.compile
            else views.apply
        )
        for kind in KINDS:
            loop = None
            if device.type == "cpu":
                few = images[:256].permute(0, 2, 3, 1).contiguous().numpy()
                loop = seconds(
                    partial(pillow_views, few, kind, policy), device, options.seconds
                ) / len(few)
                print(
                    f"{policy:9} {kind:6} Pillow, 1 thread  {loop * 1e6:8.2f} µs per view  "
                    f"{1 / loop:12,.0f} views/s"
                )
            for batch in options.batch:
                each = (
                    seconds(
                        partial(draw, views, apply, images[:batch].to(device), kind, generator),
                        device,
                        options.seconds,
                    )
                    / batch
                )
                ratio = f"  {loop / each:5.1f} × Pillow" if loop else ""
                print(
                    f"{policy:9} {kind:6} batch {batch:5}       {each * 1e6:8.3f} µs per view  "
                    f"{1 / each:12,.0f} views/s{ratio}"
                )
                microseconds = {
                    "batched": round(each * 1e6, 3),
                    "pillow": None if loop is None else round(loop * 1e6, 2),
                }
                rows.append(
                    {"policy": policy, "kind": kind, "batch": batch, "microseconds": microseconds}
                )
    if options.out:
        record = {"environment": environment(options.device), "side": options.size, "rows": rows}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
