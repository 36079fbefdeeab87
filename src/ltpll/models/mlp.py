"""A multi-layer perceptron and a linear model for feature vectors."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from ltpll.models.classifier import Classifier


def mlp(
    n_inputs: int, n_classes: int, hidden: Sequence[int] = (256,), batch_norm: bool = False
) -> Classifier:
    """Linear layers with ReLU, for inputs of any shape, which are flattened.

    Args:
        n_inputs: The number of values of an input.
        n_classes: The number of classes.
        hidden: The widths of the hidden layers; the last one gives the features.
        batch_norm: Whether each hidden layer has batch norm.
    """
    layers: list[nn.Module] = [nn.Flatten()]
    width = n_inputs
    for size in hidden:
        norm = [nn.BatchNorm1d(size)] if batch_norm else []
        layers += [nn.Linear(width, size), *norm, nn.ReLU()]
        width = size
    return Classifier(nn.Sequential(*layers), nn.Linear(width, n_classes))


def linear(n_inputs: int, n_classes: int) -> Classifier:
    """One linear layer, for inputs of any shape, which are flattened.

    Args:
        n_inputs: The number of values of an input.
        n_classes: The number of classes.
    """
    return mlp(n_inputs, n_classes, hidden=())
