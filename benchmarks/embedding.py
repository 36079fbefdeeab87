"""Measures how fast photos are embedded on a CPU, and how much memory that takes.

    python benchmarks/embedding.py PACK --out results/bench/embedding-cpu.json

Speed: EfficientNet-Lite0 over JPEGs made from the crops of voc_pll_128.npz (PACK), scaled to the
size of photos with some noise. A plain loop decodes 32 pictures with Pillow and then runs the
network, in torch or in onnxruntime with its default settings; `embedded_pictures` decodes in threads
meanwhile, and stores features in an empty cache. Preparing the network is not counted. CPU time is
changed less by other programs.

Memory: the peak resident set over 1,000, 10,000 and 100,000 small pictures with different content,
with a network that takes no time.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image

from ltpll.backbones import Backbone, Preprocessing
from ltpll.backbones.embedder import Embedder
from ltpll.pictures.embedding import embedded_pictures
from ltpll.pictures.files import list_pictures
from ltpll.runs.environment import environment

SIZES = {
    (640, 480): 1200,
    (2048, 1536): 400,
    (128, 128): 1200,
}  # and the number of pictures: many more than are decoded ahead
BATCH = 32
COUNTS = (1_000, 10_000, 100_000)
FEATURES = 1280


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pack", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["speed", "memory"])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(peak(options.pack, int(options.child))))
        return
    found: dict[str, Any] = (
        json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    )
    measured = {"speed": speeds(options.pack, options.repeats), "memory": memory()}
    for what, rows in measured.items():
        if options.only not in (None, what):
            continue
        found[what] = {"environment": environment("cpu"), "rows": []}
        for row in rows:
            found[what]["rows"].append(row)
            print(row, flush=True)
            if options.out:  # after every row, so that an interrupted benchmark leaves what it has
                options.out.write_text(json.dumps(found, indent=1) + "\n")


# ---- speed ---------------------------------------------------------------------------------------


def speeds(pack: Path, repeats: int) -> Iterator[dict[str, Any]]:
    backbone = Backbone.from_pretrained("efficientnet-lite0")
    with tempfile.TemporaryDirectory() as folder:
        embedder = Embedder(backbone, "cpu", cache=Path(folder))
        ways = {
            "plain loop, torch": plain_loop(eager(backbone)),
            "plain loop, onnxruntime": plain_loop(plain_session(next(Path(folder).glob("*.onnx")))),
            "embedder, threads decode": lambda files: stream(files, backbone, embedder),
        }
        for size, n in SIZES.items():
            photos = Path(folder) / f"{size[0]}"
            write_photos(pack, photos, size, n)
            files = [str(photos / path) for path in list_pictures(photos)]
            turns: dict[str, list[float]] = {how: [] for how in ways}
            cpu: dict[str, list[float]] = {how: [] for how in ways}
            reference: Any = None
            for _ in range(repeats):
                for how, embed in ways.items():
                    some = files[: n // 12] if how == "plain loop, torch" else files  # it is slow
                    before = cpu_seconds()
                    seconds, features = embed(some)
                    turns[how].append(round(len(some) / seconds, 1))
                    cpu[how].append(round(1000 * (cpu_seconds() - before) / len(some), 1))
                    reference = features if reference is None else reference
                    difference = float(abs(features[: len(reference)] - reference).max())
                    print(
                        size,
                        how,
                        turns[how][-1],
                        cpu[how][-1],
                        f"difference {difference:.2g}",
                        flush=True,
                    )
            for how, found in turns.items():
                median = statistics.median(found)
                row = {
                    "width": size[0],
                    "height": size[1],
                    "how": how,
                    "pictures": n,
                    "per_second": median,
                    "all": found,
                }
                yield {**row, "cpu_ms": statistics.median(cpu[how]), "load": os.getloadavg()[0]}


def cpu_seconds() -> float:
    return sum(os.times()[:2])


def write_photos(pack: Path, folder: Path, size: tuple[int, int], n: int) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir()
    with np.load(pack) as crops:
        content, offsets = crops["train_buf"], crops["train_off"]
    for i in range(n):
        crop = (
            Image.open(io.BytesIO(content[offsets[i] : offsets[i + 1]].tobytes()))
            .convert("RGB")
            .resize(size, Image.Resampling.BICUBIC)
        )
        noisy = np.asarray(crop).astype(np.int16) + rng.integers(
            -8, 9, (size[1], size[0], 1), dtype=np.int16
        )
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(
            folder / f"{i:05d}.jpg", quality=90
        )


def plain_loop(embed: Callable[[Any], Any]) -> Callable[[Sequence[str]], tuple[float, Any]]:
    def run(files: Sequence[str]) -> tuple[float, Any]:
        began = time.perf_counter()
        features = [
            embed(np.stack([plain_decode(file) for file in files[i : i + BATCH]]))
            for i in range(0, len(files), BATCH)
        ]
        return time.perf_counter() - began, np.concatenate(features)

    return run


def plain_decode(file: str, side: int = 224) -> Any:
    """What a user would write: scale to fit, and pad."""
    picture = Image.open(file).convert("RGB")
    scale = side / max(picture.size)
    picture = picture.resize(
        [round(edge * scale) for edge in picture.size], Image.Resampling.BILINEAR
    )
    square = Image.new("RGB", (side, side))
    square.paste(picture, ((side - picture.width) // 2, (side - picture.height) // 2))
    return np.asarray(square)


def eager(backbone: Backbone) -> Callable[[Any], Any]:
    def embed(pictures: Any) -> Any:
        with torch.inference_mode():
            return backbone(
                backbone.preprocessing.normalise(torch.from_numpy(pictures).permute(0, 3, 1, 2))
            ).numpy()

    return embed


def plain_session(model: Path) -> Callable[[Any], Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return lambda pictures: session.run(None, {"x": pictures})[0]


def stream(files: Sequence[str], backbone: Backbone, embedder: Embedder) -> tuple[float, Any]:
    folder, paths = Path(files[0]).parent, [Path(file).name for file in files]
    with (
        tempfile.TemporaryDirectory() as cache,
        patch("ltpll.backbones.embedder.Embedder", lambda *_, **__: embedder),
    ):
        began = time.perf_counter()
        features = embedded_pictures(folder, paths, backbone, cache=Path(cache)).x
        return time.perf_counter() - began, features


# ---- memory --------------------------------------------------------------------------------------


class NoNetwork:
    """Takes no time, so that a hundred thousand pictures take minutes."""

    n_features, batch_size = FEATURES, 16

    def __call__(self, pictures: Any) -> Any:
        return np.repeat(
            pictures.reshape(len(pictures), -1).mean(1, dtype=np.float32)[:, None], FEATURES, axis=1
        )


def memory() -> Iterator[dict[str, Any]]:
    """Every measurement in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        picture = io.BytesIO()
        Image.fromarray(
            np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
        ).save(picture, "JPEG")
        for i in range(COUNTS[-1]):
            inner = Path(folder) / str(i // 1000)
            if i % 1000 == 0:
                inner.mkdir()
            # What follows the end of a JPEG is ignored, but it changes the hash.
            (inner / f"{i:06d}.jpg").write_bytes(picture.getvalue() + i.to_bytes(4, "big"))
        for n in COUNTS:
            command = [sys.executable, __file__, folder, "--child", str(n)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            yield {**json.loads(done.stdout), "load": os.getloadavg()[0]}


def peak(folder: Path, n: int) -> dict[str, Any]:
    backbone = Backbone(torch.nn.AvgPool2d(32), Preprocessing(32), name="none")
    backbone.n_features = FEATURES
    before = peak_of_this_process()
    with (
        tempfile.TemporaryDirectory() as out,
        patch("ltpll.backbones.embedder.Embedder", lambda *_, **__: NoNetwork()),
    ):
        began = time.perf_counter()
        paths = list_pictures(folder)[:n]
        places = {"out": Path(out) / "e.npy", "cache": Path(out) / "cache"}
        embedded_pictures(folder, paths, backbone, **places)
        seconds = time.perf_counter() - began
    return {
        "pictures": n,
        "before_mib": round(before, 1),
        "main_mib": round(peak_of_this_process(), 1),
        "per_second": round(n / seconds, 1),
    }


def peak_of_this_process() -> float:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


if __name__ == "__main__":
    main()
