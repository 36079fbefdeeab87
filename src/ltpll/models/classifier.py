"""`Classifier`, an encoder with a linear head, the form that all parts rely on."""

from __future__ import annotations

from torch import Tensor, nn

from ltpll.errors import InputError


class Classifier(nn.Module):
    """An encoder and a linear head; `forward(x)` returns the logits and the features.

    Args:
        encoder: A network that maps inputs to features, (batch, dim).
        head: The linear layer that maps features to logits.

    Examples:
        >>> model = Classifier(nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.Linear(32, 5))
        >>> logits, features = model(torch.randn(4, 8))
        >>> logits.shape, features.shape
        (torch.Size([4, 5]), torch.Size([4, 32]))
    """

    def __init__(self, encoder: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(x)
        return self.head(features), features


def split_head(network: nn.Module, head: str) -> Classifier:
    """Turn a network that ends in a linear layer into a `Classifier`.

    Args:
        network: The network; its last layer is replaced by the identity, so that it returns
            features. Weights are kept.
        head: The name of the last layer, such as "fc" or "classifier.1".

    Returns:
        A classifier with the network as encoder and the layer as head.

    Raises:
        InputError: If the network has no linear layer of that name.

    Examples:
        >>> network = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 5))
        >>> split_head(network, "2").head
        Linear(in_features=32, out_features=5, bias=True)
    """
    *path, last = head.split(".")
    parent = network
    for part in path:
        parent = getattr(parent, part, nn.Identity())
    layer = getattr(parent, last, None)
    if not isinstance(layer, nn.Linear):
        linear = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
        raise InputError(
            f"The network has no linear layer {head!r} to use as its head; "
            f"its linear layers: {', '.join(linear) or 'none'}."
        )
    setattr(parent, last, nn.Identity())
    return Classifier(network, layer)
