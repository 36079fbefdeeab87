"""ResNet-18 (He et al., CVPR 2016) with a 3×3 stem and no pooling in front, the usual form for 32×32 images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ltpll.models.classifier import Classifier


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


def resnet18(n_classes: int, n_channels: int = 3, width: int = 64) -> Classifier:
    """Four stages of two blocks at widths w, 2w, 4w, 8w (w = 64 in the paper), then the mean over positions."""
    layers: list[nn.Module] = [nn.Conv2d(n_channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inputs = width
    for stage in range(4):
        outputs = width << stage
        layers += [BasicBlock(inputs, outputs, 1 if stage == 0 else 2), BasicBlock(outputs, outputs, 1)]
        inputs = outputs
    encoder = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for module in encoder.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return Classifier(encoder, nn.Linear(inputs, n_classes))
