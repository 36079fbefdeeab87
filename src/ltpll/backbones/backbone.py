"""`Backbone`: a pretrained network that turns pictures into features, and its preprocessing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ltpll.backbones import efficientnet, hub, onnx_encoder
from ltpll.backbones.preprocessing import Preprocessing
from ltpll.errors import InputError, first_line, shown


class Backbone(nn.Module):
    """An encoder and its preprocessing.

    `forward` maps normalised pictures, (batch, 3, side, side), to features, (batch, n_features).

    Args:
        encoder: Any network that returns features, (batch, dim) or (batch, dim, 1, 1).
        preprocessing: What it expects; by default ImageNet's mean and deviation, 224 pixels.
        name: What messages and records call it.
        architecture: How the encoder can be built again without its weights, as JSON values; None
            if it cannot: then a classifier with this backbone can be pickled, but not saved.
        n_features: The number of features; by default, the encoder is run once to find out.

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
        n_features: int | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.preprocessing = preprocessing or Preprocessing()
        self.name = name
        self.architecture = None if architecture is None else dict(architecture)
        self.n_features = self._counted_features() if n_features is None else n_features

    def forward(self, pictures: Tensor) -> Tensor:
        features: Tensor = self.encoder(pictures)
        return features.flatten(1)

    @property
    def trainable(self) -> bool:
        """Whether the encoder has weights that can be fine-tuned."""
        return any(True for _ in self.encoder.parameters())

    def _counted_features(self) -> int:
        """Run the encoder once, to learn the number of its features."""
        was_training, side = self.encoder.training, self.preprocessing.side
        self.encoder.eval()
        like = next(self.encoder.parameters(), torch.empty(0))
        try:
            with torch.no_grad():
                features: Any = self.encoder(like.new_zeros(1, 3, side, side))
        except Exception as error:  # whatever a user's network raises
            raise InputError(
                f"The backbone {self.name!r} fails on a picture of {side} × {side} pixels "
                f"({first_line(error)}): check its network and its preprocessing."
            ) from error
        finally:
            self.encoder.train(was_training)
        shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        if not isinstance(shape, tuple) or shape[:1] != (1,) or shape[1:2] != (features.numel(),):
            raise InputError(
                f"The backbone {self.name!r} returns {shape} for one picture: it must return one "
                "row of features."
            )
        return int(features.numel())

    def fingerprint(self) -> str:
        """A hash of weights and preprocessing: equal for backbones that give equal features."""
        described = json.dumps([self.preprocessing.record(), self.architecture], sort_keys=True)
        digest = hashlib.sha256(described.encode())
        for name, tensor in sorted(self.encoder.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            if tensor.ndim:
                digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
            else:
                digest.update(str(tensor.item()).encode())
        return digest.hexdigest()[:16]

    @classmethod
    def from_pretrained(cls, source: str | Path) -> Backbone:
        """Load a pretrained network.

        Args:
            source: "efficientnet-lite0"; a folder with the config.json, preprocessor_config.json
                and weights of a model of `transformers`; an .onnx file; a file that `save_backbone`
                has written; or the name of a model on the Hugging Face hub, which is downloaded
                unless it is in the local cache.

        Raises:
            InputError: If there is no such network, it cannot be read, or it does not turn pictures
                into features.

        Examples:
            >>> Backbone.from_pretrained("efficientnet-lite0").n_features
            1280
            >>> Backbone.from_pretrained("facebook/dinov2-small")  # downloads it  # doctest: +SKIP
        """
        path = Path(source)
        if str(source) == efficientnet.NAME:
            preprocessing = Preprocessing(efficientnet.SIDE, efficientnet.MEAN, efficientnet.STD)
            architecture: dict[str, Any] = {"kind": efficientnet.NAME}
            network: nn.Module = efficientnet.load_efficientnet()
            return cls(network, preprocessing, name=str(source), architecture=architecture)
        if path.suffix.lower() == ".safetensors":
            from ltpll.backbones.stored import load_backbone

            return load_backbone(path)
        if path.suffix.lower() == ".onnx":
            encoder, preprocessing = onnx_encoder.read_onnx_encoder(path)
            architecture, n = encoder.architecture, encoder.n_features
            return cls(
                encoder, preprocessing, name=path.name, architecture=architecture, n_features=n
            )
        network, preprocessing, architecture = hub.load_pretrained(source)
        name = path.resolve().name if path.is_dir() else str(source)
        return cls(network, preprocessing, name=name, architecture=architecture)

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
        architecture = record.get("architecture") if isinstance(record, Mapping) else None
        if not isinstance(architecture, Mapping) or not {"name", "preprocessing"} <= set(record):
            raise InputError(
                f"The record {shown(record)} does not describe a backbone: save the classifier "
                "again."
            )
        preprocessing, name = (
            Preprocessing.from_record(record["preprocessing"]),
            str(record["name"]),
        )
        kind, n = architecture.get("kind"), None
        encoder: nn.Module
        if kind == efficientnet.NAME:
            encoder = efficientnet.EfficientNetLite0()
        elif kind == hub.KIND:
            encoder = hub.encoder_from_architecture(architecture)
        elif kind == onnx_encoder.KIND:
            encoder = onnx_encoder.OnnxEncoder.from_architecture(architecture)
            n = encoder.n_features
        else:
            raise InputError(
                f"This version does not know the architecture {shown(str(kind))} of a saved "
                "backbone."
            )
        return cls(encoder, preprocessing, name=name, architecture=architecture, n_features=n)
