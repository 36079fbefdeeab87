"""ResNet-18 (He et al., CVPR 2016) with a stem for images of 32×32, or with ImageNet's stem."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from ltpll.errors import InputError, shown
from ltpll.kernels.support import runs_kernels
from ltpll.models.classifier import Classifier
from ltpll.models.norm import NormReLU


class Stem(nn.Conv2d):
    """The first 3×3 convolution; on a GPU, a matrix product with neighbourhoods of pixels."""

    def forward(self, x: Tensor) -> Tensor:
        if not runs_kernels(x) or x.requires_grad:
            return super().forward(x)
        from ltpll.kernels.conv_kernels import neighbourhoods

        around = neighbourhoods(x)
        weight = self.weight.permute(0, 2, 3, 1).flatten(1)
        padded = F.pad(weight, (0, around.shape[3] - weight.shape[1]))
        return F.linear(around, padded).permute(0, 3, 1, 2)


class Shortcut(nn.Conv2d):
    """A 1×1 convolution; on a GPU, a matrix product: cuDNN converts some layouts twice."""

    def forward(self, x: Tensor) -> Tensor:
        if not runs_kernels(x):
            return super().forward(x)
        return F.linear(x.permute(0, 2, 3, 1), self.weight.flatten(1)).permute(0, 3, 1, 2)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut; with more channels, the resolution is halved.

    The input of a shortcut that halves is already subsampled by the block before.
    """

    def __init__(self, inputs: int, outputs: int, next_halves: bool) -> None:
        super().__init__()
        self.halves = inputs != outputs
        stride = 2 if self.halves else 1
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = NormReLU(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = NormReLU(outputs, subsamples=next_halves)
        if self.halves:
            self.conv3 = Shortcut(inputs, outputs, 1, bias=False)
            self.bn3 = NormReLU(outputs, relu=False)

    def forward(self, x: Tensor, skip: Tensor) -> tuple[Tensor, Tensor]:
        shortcut = self.bn3(self.conv3(skip))[0] if self.halves else skip
        hidden, _ = self.bn1(self.conv1(x))
        result: tuple[Tensor, Tensor] = self.bn2(self.conv2(hidden), shortcut)
        return result


class ResNet18(nn.Module):
    """The encoder of `resnet18`: four stages of two blocks, then the mean over positions."""

    def __init__(
        self, n_channels: int, width: int, stem: Literal["small", "strided"] = "small"
    ) -> None:
        super().__init__()
        if stem not in ("small", "strided"):
            raise InputError(f"There is no stem {shown(stem)}: choose 'small' or 'strided'.")
        self.pools = stem == "strided"
        if self.pools:
            self.stem = nn.Conv2d(n_channels, width, 7, stride=2, padding=3, bias=False)
        else:
            self.stem = Stem(n_channels, width, 3, padding=1, bias=False)
        self.norm = NormReLU(width)
        widths = [width, *(width << stage for stage in range(4) for _ in range(2))]
        self.blocks = nn.ModuleList(
            BasicBlock(inputs, outputs, next_halves=after != outputs)
            for inputs, outputs, after in zip(
                widths, widths[1:], [*widths[2:], 8 * width], strict=False
            )
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        x, skip = self.norm(self.stem(images))
        if self.pools:
            x = skip = F.max_pool2d(x, 3, stride=2, padding=1)
        for block in self.blocks:
            x, skip = block(x, skip)
        features: Tensor = x.mean((2, 3))
        return features


def resnet18(
    n_classes: int,
    n_channels: int = 3,
    width: int = 64,
    stem: Literal["small", "strided"] = "small",
) -> Classifier:
    """A ResNet-18.

    Args:
        n_classes: The number of classes.
        n_channels: The number of input channels.
        width: The channels of the first stage; each further stage has twice as many. The paper uses
            64.
        stem: "small" (a 3×3 convolution, for images up to 64 pixels) or "strided" (a 7×7
            convolution and a pooling layer, which both halve the resolution, as for ImageNet).
    """
    return Classifier(ResNet18(n_channels, width, stem), nn.Linear(8 * width, n_classes))
