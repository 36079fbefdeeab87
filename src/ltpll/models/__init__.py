"""Models: networks that return (logits, features) and end in `.head`, and builders by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ltpll.errors import InputError, first_line
from ltpll.models.classifier import Classifier as Classifier
from ltpll.models.classifier import split_head as split_head
from ltpll.models.finetune import FineTune as FineTune
from ltpll.models.resnet import resnet18 as resnet18
from ltpll.models.small_networks import linear as linear
from ltpll.models.small_networks import mlp as mlp
from ltpll.models.small_networks import small_cnn as small_cnn
from ltpll.registry import unknown_name_error
from ltpll.rng import seeded_layers

MODELS: Mapping[str, Callable[..., Classifier]] = {
    "mlp": mlp,
    "linear": linear,
    "small-cnn": small_cnn,
    "resnet18": resnet18,
}


def build_model(name: str, seed: int, **options: Any) -> Classifier:
    """Build a newly initialised model, without touching the caller's random state.

    Args:
        name: A name in `MODELS`: "mlp", "linear", "small-cnn" or "resnet18".
        seed: The seed of the weights.
        **options: Arguments of the builder, such as `n_classes`, `n_inputs` (mlp, linear) or
            `n_channels` (others).

    Raises:
        UnknownNameError: If there is no model of that name.
        InputError: If an option is unknown or missing.

    Examples:
        >>> model = build_model("mlp", seed=0, n_inputs=2, n_classes=4, hidden=(32,))
    """
    if name not in MODELS:
        raise unknown_name_error("model", name, MODELS)
    with seeded_layers(seed):
        try:
            return MODELS[name](**options)
        except TypeError as error:
            raise InputError(
                f"The model {name!r} cannot be built from {sorted(options)}: {first_line(error)}."
            ) from error
