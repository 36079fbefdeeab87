"""A backbone of five small layers for pictures of 16 × 16, and pictures whose colour tells the
class.
"""

import numpy as np
import torch
from torch import nn

from ltpll.backbones import Backbone, Preprocessing, efficientnet, embedder
from ltpll.backbones.backbone import save_backbone
from ltpll.synthetic import uniform_candidates

PREPROCESSING = Preprocessing(side=16, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.25))


def tiny_network():
    def block(inputs, outputs, stride):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
        )

    return nn.Sequential(
        block(3, 4, 2),
        block(4, 4, 1),
        block(4, 8, 2),
        block(8, 8, 1),
        block(8, 8, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def tiny_backbone(seed=0):
    """With weights and statistics that are always the same."""
    g = torch.Generator().manual_seed(seed)
    network = tiny_network()
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if "running_var" in name:
                tensor.copy_(0.5 + torch.rand(tensor.shape, generator=g))
            elif tensor.is_floating_point():
                tensor.copy_(
                    0.3 * torch.randn(tensor.shape, generator=g) + (name.endswith("1.weight"))
                )
    return Backbone(network.eval(), PREPROCESSING, name="tiny")


def make_efficientnets_shallow(patch):
    """Give EfficientNet-Lite0 a single stage, and do not export it to embed pictures faster."""
    patch.setattr(efficientnet, "STAGES", efficientnet.STAGES[:1])
    patch.setattr(embedder, "exported_model", None)


def write_efficientnet(path):
    """An EfficientNet-Lite0 with random weights for pictures of 32 × 32."""
    torch.manual_seed(0)
    network, how = efficientnet.EfficientNetLite0(), {"kind": efficientnet.NAME}
    save_backbone(Backbone(network, Preprocessing(32), name=path.stem, architecture=how), path)


def coloured_pictures(n=60, side=16, seed=0):
    """Pictures of noise around the colour of their class, 8-bit with channels last, their classes
    and candidate sets.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    colours = np.array([[200, 60, 60], [60, 200, 60], [60, 60, 200], [180, 180, 60]])
    x = np.clip(colours[y][:, None, None] + rng.normal(0, 40, (n, side, side, 3)), 0, 255).astype(
        np.uint8
    )
    return x, y, uniform_candidates(y, 4, 0.3, seed=seed)
