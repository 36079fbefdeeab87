"""`Backbone`: a pretrained network that turns pictures into features, and its preprocessing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ltpll.backbones import efficientnet, hub
from ltpll.backbones.preprocessing import Preprocessing
from ltpll.errors import InputError, first_line, shown
from ltpll.files import parse_json, write_atomically

KEY = "backbone"  # in the header of a file


class Backbone(nn.Module):
    """An encoder and its preprocessing.

    `forward` maps normalised pictures, (batch, 3, side, side), to features, (batch, n_features).

    Args:
        encoder: Any network that returns features, (batch, dim) or (batch, dim, 1, 1).
        preprocessing: What it expects; by default ImageNet's mean and deviation, 224 pixels.
        name: What messages and records call it.
        architecture: How the encoder can be built again without its weights, as JSON values; None
            if it cannot: then a classifier with this backbone can be pickled, but not saved.

    Attributes:
        n_features: The number of features.

    Examples:
        >>> from ltpll.backbones import Preprocessing
        >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.AdaptiveAvgPool2d(1))
        >>> backbone = Backbone(network, Preprocessing(side=32))
        >>> pictures = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
        >>> backbone(backbone.preprocessing.normalise(pictures)).shape
        torch.Size([4, 8])
    """

    def __init__(
        self,
        encoder: nn.Module,
        preprocessing: Preprocessing | None = None,
        *,
        name: str = "own",
        architecture: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.preprocessing = preprocessing or Preprocessing()
        self.name = name
        self.architecture = None if architecture is None else dict(architecture)
        side = self.preprocessing.side
        self.n_features = self.count_features(side, side)

    def forward(self, pictures: Tensor) -> Tensor:
        features: Tensor = self.encoder(pictures)
        return features.flatten(1)

    @torch.no_grad()
    def count_features(self, height: int, width: int) -> int:
        """Run the encoder once on a picture of this size, and return the number of its features."""
        modes = {module: module.training for module in self.modules()}
        self.eval()
        like = next(self.encoder.parameters(), torch.empty(0))
        try:
            features: Any = self.encoder(like.new_zeros(1, 3, height, width))
        except Exception as error:  # whatever a user's network raises
            raise InputError(
                f"The backbone {self.name!r} fails on a picture of {height} × {width} pixels "
                f"({first_line(error)}): give it pictures of another size, or correct its network."
            ) from error
        finally:
            for module, mode in modes.items():
                module.training = mode
        shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        if not isinstance(shape, tuple) or shape[:2] != (1, features.numel()):
            raise InputError(
                f"The backbone {self.name!r} returns {shape} for one picture: it must return one "
                "row of features."
            )
        return int(features.numel())

    def fingerprint(self) -> str:
        """A hash of weights and preprocessing: equal for backbones that give equal features."""
        described = json.dumps([self.preprocessing.record(), self.architecture], sort_keys=True)
        return hash_of_weights(described, self.encoder)

    @classmethod
    def from_pretrained(cls, source: str | Path) -> Backbone:
        """Load a pretrained network.

        Args:
            source: "efficientnet-lite0"; a folder with the config.json, preprocessor_config.json
                and weights of a model of `transformers`; a file that `save_backbone` has written;
                or the name of a model on the Hugging Face hub, which is downloaded unless it is in
                the local cache.

        Raises:
            InputError: If there is no such network, it cannot be read, or it does not turn pictures
                into features.

        Examples:
            >>> Backbone.from_pretrained("efficientnet-lite0").n_features
            1280
            >>> Backbone.from_pretrained("facebook/dinov2-small")  # downloads it  # doctest: +SKIP
        """
        path, name = Path(source), str(source)
        if path.suffix.lower() == ".safetensors":
            return load_backbone(path)
        encoder: nn.Module
        if name == efficientnet.NAME:
            encoder = efficientnet.load_efficientnet()
            figures = (efficientnet.SIDE, efficientnet.MEAN, efficientnet.STD)
            preprocessing, architecture = Preprocessing(*figures), {"kind": efficientnet.NAME}
        else:
            encoder, preprocessing, architecture = hub.load_pretrained(source)
        name = path.resolve().name if path.exists() else name
        return cls(encoder, preprocessing, name=name, architecture=architecture)

    def record(self) -> dict[str, Any]:
        """Everything but the weights, as JSON values."""
        if self.architecture is None:
            raise InputError(
                f"The backbone {self.name!r} is a network of your own, which cannot be saved as "
                "numbers and text: pickle it."
            )
        return {
            "name": self.name,
            "architecture": self.architecture,
            "preprocessing": self.preprocessing.record(),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Backbone:
        """The backbone of a record with weights that are not set; load its `state_dict` next.

        Raises:
            InputError: If its architecture is unknown, or the record is damaged.
        """
        try:
            name, architecture = str(record["name"]), record["architecture"]
            preprocessing = Preprocessing.from_record(record["preprocessing"])
            kind = architecture["kind"]
        except (KeyError, TypeError):
            raise InputError(
                f"The record {shown(record)} does not describe a backbone: save the classifier "
                "again."
            ) from None
        encoder: nn.Module
        if kind == efficientnet.NAME:
            encoder = efficientnet.EfficientNetLite0()
        elif kind == hub.KIND:
            encoder = hub.encoder_from_architecture(architecture)
        else:
            raise InputError(
                f"This version does not know the architecture {shown(str(kind))} of a saved "
                "backbone."
            )
        return cls(encoder, preprocessing, name=name, architecture=architecture)


class PixelsToFeatures(nn.Module):
    """A copy of a backbone that starts from pixels from 0 to 255, (batch, 3, side, side)."""

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.encoder = deepcopy(backbone.encoder).float().eval().requires_grad_(False)
        for name in ("mean", "std"):
            values = torch.tensor(getattr(backbone.preprocessing, name))
            self.register_buffer(name, 255 * values.view(-1, 1, 1))

    def forward(self, pixels: Tensor) -> Any:
        features: Tensor = self.encoder((pixels.float() - self.mean) / self.std)
        return features.flatten(1)


def hash_of_weights(described: str, network: nn.Module) -> str:
    """A hash of a network's weights and of a text."""
    digest = hashlib.sha256(described.encode())
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if tensor.ndim:
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        else:
            digest.update(str(tensor.item()).encode())
    return digest.hexdigest()[:16]


def save_backbone(backbone: Backbone, path: Path) -> None:
    """Write a safetensors file of the weights, with the rest as text in its header."""
    header = {KEY: json.dumps(backbone.record())}
    tensors = backbone.state_dict().items()
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors}
    write_atomically(path, save(held, header))


def load_backbone(path: Path) -> Backbone:
    """Read a backbone from a file that `save_backbone` has written."""
    try:
        with safe_open(path, framework="pt") as file:
            record = parse_json((file.metadata() or {}).get(KEY) or "null")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        backbone = Backbone.from_record(record)
        backbone.load_state_dict(tensors)
    except Exception as error:  # whatever a damaged file makes safetensors and torch raise
        raise InputError(
            f"{path} does not hold a backbone, or is damaged ({first_line(error)}): save it again."
        ) from None
    return backbone.eval()
