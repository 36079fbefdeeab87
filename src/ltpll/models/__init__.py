"""Models: any network whose forward gives (logits, features) and whose last linear layer is `.head`; builders by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

import torch

from ltpll.errors import InputError, UnknownNameError
from ltpll.models.classifier import Classifier, split_head
from ltpll.models.cnn import small_cnn
from ltpll.models.mlp import mlp
from ltpll.models.resnet import resnet18

MODELS: Mapping[str, Callable[..., Classifier]] = {"mlp": mlp, "small-cnn": small_cnn, "resnet18": resnet18}


def build_model(name: str, seed: int, **options: Any) -> Classifier:
    """A freshly initialised model; the same seed gives the same weights, and the caller's random state is left alone."""
    if name not in MODELS:
        guess = get_close_matches(name, MODELS, n=1)
        hint = f" Did you mean {guess[0]!r}?" if guess else ""
        raise UnknownNameError(f"There is no model {name!r}.{hint} Available: {', '.join(sorted(MODELS))}.")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # not torch.manual_seed, which seeds every GPU too
        try:
            return MODELS[name](**options)
        except TypeError as error:
            raise InputError(f"The model {name!r} cannot be built from {sorted(options)}: {error}.") from error


__all__ = ["MODELS", "Classifier", "build_model", "mlp", "resnet18", "small_cnn", "split_head"]
