"""Small networks: for feature vectors, and for images of 8×8 to 28×28."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from ltpll.models.classifier import Classifier


def mlp(n_inputs: int, n_classes: int, hidden: Sequence[int] = (256,)) -> Classifier:
    """Linear layers with ReLU, for inputs of any shape, which are flattened.

    Args:
        n_inputs: The number of values of an input.
        n_classes: The number of classes.
        hidden: The widths of the hidden layers; the last one gives the features.
    """
    layers: list[nn.Module] = [nn.Flatten()]
    width = n_inputs
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return Classifier(nn.Sequential(*layers), nn.Linear(width, n_classes))


def linear(n_inputs: int, n_classes: int) -> Classifier:
    """One linear layer, for inputs of any shape, which are flattened.

    Args:
        n_inputs: The number of values of an input.
        n_classes: The number of classes.
    """
    return mlp(n_inputs, n_classes, hidden=())


def small_cnn(n_classes: int, n_channels: int = 1, width: int = 32) -> Classifier:
    """Three 3×3 convolutions with batch norm, two with stride 2, then the mean over positions.

    Args:
        n_classes: The number of classes.
        n_channels: The number of input channels.
        width: The channels of the first convolution; the others have two and four times as many.
    """

    def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        return [
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]

    encoder = nn.Sequential(
        *block(n_channels, width, 1),
        *block(width, 2 * width, 2),
        *block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return Classifier(encoder, nn.Linear(4 * width, n_classes))
