"""Models: any network whose forward gives (logits, features) and whose last linear layer is `.head`; builders by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ltpll.errors import InputError, first_line
from ltpll.models.classifier import Classifier, split_head
from ltpll.models.cnn import small_cnn
from ltpll.models.mlp import mlp
from ltpll.models.resnet import resnet18
from ltpll.registry import unknown_name

MODELS: Mapping[str, Callable[..., Classifier]] = {"mlp": mlp, "small-cnn": small_cnn, "resnet18": resnet18}


def build_model(name: str, seed: int, **options: Any) -> Classifier:
    """A freshly initialised model; the same seed gives the same weights, and the caller's random state is left alone."""
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # not torch.manual_seed, which seeds every GPU too
        try:
            return MODELS[name](**options)
        except TypeError as error:
            raise InputError(f"The model {name!r} cannot be built from {sorted(options)}: {first_line(error)}.") from error


__all__ = ["MODELS", "Classifier", "build_model", "mlp", "resnet18", "small_cnn", "split_head"]
