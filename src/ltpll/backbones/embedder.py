"""`Embedder`: computes the features of pictures with a backbone, as fast as the machine allows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from ltpll.backbones.backbone import Backbone, PixelsToFeatures
from ltpll.backbones.onnx_models import exported_model, onnx_session
from ltpll.errors import InputError, shown
from ltpll.files import write_atomically
from ltpll.validation import chosen_device

BATCH_CPU, BATCH_CUDA = 8, 256  # pictures of 224 pixels at a time
TOLERANCE = 1e-3  # the largest difference between the engines, relative to the largest feature
FORMAT = 1  # of the exported networks in the cache; changes when `_PicturesToFeatures` does

Precision = Literal["float32", "bfloat16"]
Array = np.ndarray[Any, Any]


class Embedder:
    """Computes the features of 8-bit pictures.

    On a CPU, the network is exported to ONNX and run by onnxruntime if `ltpll[onnx]` is installed
    and its results agree with torch's, because that is several times as fast. The backbone itself
    is not changed.

    Args:
        backbone: The network and its preprocessing.
        device: "auto" (CUDA if available), "cpu", "cuda", or a torch device.
        precision: "float32", or "bfloat16" for mixed precision on CUDA.
        cache: A folder that keeps the exported network, which takes about ten seconds to make; None
            to keep it nowhere.

    Attributes:
        engine: "onnxruntime" or "torch".
        device: Where the network runs.
        batch_size: The number of pictures that keeps all threads or the GPU busy.

    Examples:
        >>> from ltpll.backbones import Preprocessing
        >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.AdaptiveAvgPool2d(1))
        >>> embedder = Embedder(Backbone(network, Preprocessing(side=32)), device="cpu")
        >>> embedder(np.zeros((5, 32, 32, 3), dtype=np.uint8)).shape
        (5, 8)
    """

    def __init__(
        self,
        backbone: Backbone,
        device: str | torch.device = "auto",
        precision: Precision = "float32",
        *,
        cache: Path | None = None,
    ) -> None:
        if precision not in get_args(Precision):
            choices = " or ".join(get_args(Precision))
            raise InputError(f"There is no precision {shown(precision)}: choose {choices}.")
        self.side, self.n_features = backbone.preprocessing.side, backbone.n_features
        network = _PicturesToFeatures(backbone)
        self.device = chosen_device(device)
        self._session: Any = None
        if self.device.type == "cpu":
            self._session = _exported(network.cpu(), backbone, cache)
        self.engine = "torch" if self._session is None else "onnxruntime"
        # Threads that share a picture wait for each other after each layer, above all while others
        # decode pictures.
        self._workers = 1 if self._session is None else torch.get_num_threads()
        at_224 = BATCH_CUDA if self.device.type == "cuda" else BATCH_CPU
        self._rows = max(1, min(at_224, at_224 * 224**2 // self.side**2))  # bounds the memory
        self.batch_size = self._rows * self._workers
        self._mixed = self.device.type == "cuda" and precision == "bfloat16"
        self._network: nn.Module | None = None
        if self._session is None:  # which has the weights
            last = torch.channels_last
            self._network = network.to(self.device, memory_format=last)  # type: ignore[call-overload]

    def __call__(self, pictures: Array) -> Array:
        """Compute features.

        Args:
            pictures: 8-bit pictures, (n, side, side, 3).

        Returns:
            The features, (n, n_features), float32.

        Raises:
            InputError: If the pictures have another type or shape.
        """
        rows = np.asarray(pictures)
        if rows.dtype != np.uint8 or rows.shape[1:] != (self.side, self.side, 3):
            raise InputError(
                f"The pictures have type {rows.dtype} and shape {rows.shape}: the backbone needs "
                f"8-bit pictures of shape (n, {self.side}, {self.side}, 3)."
            )
        features = np.empty((len(rows), self.n_features), np.float32)
        size = max(1, min(self._rows, -(-len(rows) // self._workers)))
        parts = [slice(start, start + size) for start in range(0, len(rows), size)]
        if self._workers == 1:
            # On a GPU, a part is computed while the next one is copied to it.
            computed = [self._features_of(rows[part]) for part in parts]
            for part, found in zip(parts, computed, strict=True):
                features[part] = found.cpu().numpy()
        else:
            with ThreadPoolExecutor(self._workers) as pool:
                done = pool.map(lambda part: self._features_of(rows[part]), parts)
                for part, found in zip(parts, done, strict=True):
                    features[part] = found.numpy()
        return features

    def _features_of(self, rows: Array) -> Tensor:
        if self._network is None:
            rows = np.require(rows, requirements=["C"])
            return torch.from_numpy(self._session.run(None, {"x": rows})[0])
        pictures = torch.from_numpy(np.require(rows, requirements=["C", "W"]))
        if self.device.type == "cuda":
            pictures = pictures.pin_memory().to(self.device, non_blocking=True)
        mixed = torch.autocast(self.device.type, torch.bfloat16, enabled=self._mixed)
        with torch.inference_mode(), mixed:
            found: Tensor = self._network(pictures).float()
        return found


class _PicturesToFeatures(PixelsToFeatures):
    """The same for 8-bit pictures with their channels last, (n, side, side, 3)."""

    def forward(self, pixels: Tensor) -> Tensor:
        features: Tensor = super().forward(pixels.permute(0, 3, 1, 2))
        return features


def _exported(network: _PicturesToFeatures, backbone: Backbone, cache: Path | None) -> Any:
    """A session of onnxruntime, from the cache or exported now, if one agrees with the network."""
    if not all(map(find_spec, ("onnx", "onnxscript", "onnxruntime"))):
        return None
    side = backbone.preprocessing.side
    # Three, where the export has two, so that the number of pictures is known to be free.
    pictures = np.random.default_rng(0).integers(0, 256, (3, side, side, 3), np.uint8)
    with torch.inference_mode():
        expected = network(torch.from_numpy(pictures)).numpy()
    file = None if cache is None else cache / f"{backbone.fingerprint()}-{FORMAT}.onnx"

    def agreeing(content: bytes) -> Any:
        """The session of a model, unless its results are not those of the network."""
        session = onnx_session(content, backbone.name, threads=1)
        features = session.run(None, {"x": pictures})[0]
        if features.shape != expected.shape:
            return None
        largest = np.abs(features - expected).max()
        return session if largest <= TOLERANCE * np.abs(expected).max() else None

    with suppress(Exception):  # a damaged file is written again
        if file is not None and (session := agreeing(file.read_bytes())) is not None:
            return session
    # The exporter does not know all operations, and models of 2 GB do not fit into a file.
    with suppress(Exception):
        example = torch.zeros(2, side, side, 3, dtype=torch.uint8)
        session = agreeing(content := exported_model(network, example, ["features"]))
        if session is not None and file is not None:
            with suppress(InputError):  # the cache is full or read-only
                write_atomically(file, content)
        return session
    return None
