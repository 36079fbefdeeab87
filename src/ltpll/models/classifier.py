"""Classifier: an encoder and a linear head, the shape that every method and rebalancer relies on."""

from __future__ import annotations

from torch import Tensor, nn

from ltpll.errors import InputError


class Classifier(nn.Module):
    """`forward(x)` gives the head's logits and the features that the head saw."""

    def __init__(self, encoder: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(x)
        return self.head(features), features


def split_head(network: nn.Module, head: str) -> Classifier:
    """A Classifier out of any network that ends in a linear layer named `head` (such as "fc" or "classifier.1").

    The layer is taken out of the network, which then returns what the layer used to see; weights are kept.
    """
    *path, last = head.split(".")
    parent = network
    for part in path:
        parent = getattr(parent, part, nn.Identity())
    layer = getattr(parent, last, None)
    if not isinstance(layer, nn.Linear):
        linear = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
        raise InputError(f"The network has no linear layer {head!r} to take as its head; its linear layers: {', '.join(linear) or 'none'}.")
    setattr(parent, last, nn.Identity())
    return Classifier(network, layer)
