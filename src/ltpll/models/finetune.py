"""Fine-tuning: a pretrained backbone with a new head, which train together."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from ltpll.backbones import Backbone
from ltpll.errors import InputError, shown
from ltpll.models.classifier import Classifier
from ltpll.registry import Configurable
from ltpll.settings import Positive

# With fewer rows, batch norm keeps its statistics: they come from more than a million pictures.
# Statistics of small batches are noisier, and running means would drift to the few pictures of the
# set and to their strong views, which are not what the network predicts on.
FEWEST_ROWS_FOR_NORM = 10_000
# With this length, a learning rate of 0.02 suits a linear layer: ten times the length diverges, and
# a tenth learns nothing in few epochs.
SQUARED_LENGTH = 128.0
# The share of the squared length of features that is taken for their variance, at least.
LEAST_SPREAD = 0.1
CALIBRATION_BATCH = 32
BatchNorm = nn.modules.batchnorm._NormBase  # all layers with running statistics


class FineTune(Configurable):
    """Builds a classifier from a pretrained backbone and a new linear head.

    The backbone itself is never changed: every classifier gets a copy.

    Args:
        backbone: The pretrained network.
        lr_factor: The learning rate of the backbone, as a multiple of the head's.
        freeze_norm: Whether batch norm keeps its running statistics and uses them in training too;
            its scale and offset are trained all the same. "auto" freezes them if there are fewer
            than 10,000 rows.

    Examples:
        >>> backbone = Backbone.from_pretrained("efficientnet-lite0")
        >>> classifier = PartialLabelClassifier(model=FineTune(backbone, lr_factor=0.2))
    """

    def __init__(
        self,
        backbone: Backbone,
        lr_factor: Positive = 0.1,
        freeze_norm: bool | Literal["auto"] = "auto",
    ) -> None:
        self.backbone = backbone
        self.lr_factor = lr_factor
        self.freeze_norm = freeze_norm

    def __call__(
        self, shape: tuple[int, ...], n_classes: int, n_rows: int | None = None
    ) -> FineTunedClassifier:
        """Build a classifier; its head is initialised from torch's global random state.

        The shape is that of a picture, (3, height, width). If the number of training rows is not
        known, `freeze_norm="auto"` freezes batch norm.

        Raises:
            InputError: If the backbone cannot be trained or does not take such pictures, or if an
                option is wrong.
        """
        self._check(shape)
        freeze_norm = bool(self.freeze_norm)
        if self.freeze_norm == "auto":
            freeze_norm = n_rows is None or n_rows < FEWEST_ROWS_FOR_NORM
        encoder = deepcopy(self.backbone).requires_grad_(True)
        head = nn.Linear(encoder.n_features, n_classes)
        return FineTunedClassifier(encoder, head, self.lr_factor, freeze_norm).train()

    def _check(self, shape: tuple[int, ...]) -> None:
        backbone = self.backbone
        if not isinstance(backbone, Backbone):
            raise InputError(
                f"The backbone is {shown(backbone)}: give a Backbone, such as "
                "Backbone.from_pretrained('efficientnet-lite0')."
            )
        if len(shape) != 3 or shape[0] != 3:
            raise InputError(
                f"A backbone takes colour pictures, but each example has the shape {tuple(shape)}."
            )
        side = backbone.preprocessing.side
        if shape[1:] != (side, side) and backbone.count_features(*shape[1:]) != backbone.n_features:
            raise InputError(
                f"The backbone {backbone.name!r} returns {backbone.n_features} features for pictures "
                f"of {side} × {side} pixels, and others for the given ones: read them with side "
                f"{side}."
            )

    def __sklearn_clone__(self) -> Self:
        return self.fresh()  # with the same backbone, because it is never changed

    def __repr__(self) -> str:
        options = {name: value for name, value in self.get_params().items() if name != "backbone"}
        listed = ", ".join(f"{name}={value!r}" for name, value in options.items())
        return f"FineTune({self.backbone.name!r}, {listed})"

    def record(self) -> dict[str, Any]:
        """Everything but the weights, as JSON values; networks of one's own are refused."""
        return {**self.get_params(), "backbone": self.backbone.record()}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> FineTune:
        """What `record` describes, with a backbone whose weights are not set."""
        kept = {name: value for name, value in record.items() if name != "layers"}  # of 0.2.0
        return cls(**{**kept, "backbone": Backbone.from_record(record["backbone"])})


class FineTunedClassifier(Classifier):
    """A classifier with a backbone as encoder, whose batch norms may stay in evaluation mode.

    The features of pretrained networks differ in length by orders of magnitude, and so would the
    learning rates that suit the head. `calibrate` therefore fixes an offset and a scale of the
    features.
    """

    encoder: Backbone
    mean: Tensor
    scale: Tensor

    def __init__(
        self, encoder: Backbone, head: nn.Linear, lr_factor: float, freeze_norm: bool
    ) -> None:
        super().__init__(encoder, head)
        self.lr_factor, self._freeze_norm = lr_factor, freeze_norm
        self.register_buffer("mean", torch.zeros(encoder.n_features))
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = (self.encoder(x) - self.mean) * self.scale
        return self.head(features), features

    @torch.no_grad()
    def calibrate(self, pictures: Tensor) -> None:
        """Centre the features of normalised pictures, and scale their mean squared length to 128.

        This comes before training, with a few dozen pictures. Features that hardly differ get a
        smaller scale, because noise would be magnified as well.
        """
        self.eval()
        parts = [self.encoder(part) for part in pictures.split(CALIBRATION_BATCH)]
        features = torch.cat(parts).double()
        self.train()
        mean = features.mean(0)
        spread = (features - mean).square().sum(1).mean()
        length = torch.maximum(spread, LEAST_SPREAD * features.square().sum(1).mean())
        self.mean.copy_(mean)
        self.scale.copy_((SQUARED_LENGTH / length).sqrt() if length > 0 else torch.ones(()))

    def train(self, mode: bool = True) -> Self:
        """Set the mode of all layers but frozen batch norms, which stay in evaluation mode."""
        super().train(mode)
        for module in self.encoder.modules() if self._freeze_norm else ():
            if isinstance(module, BatchNorm):
                module.eval()
        return self

    def lr_factor_of(self, parameter: nn.Parameter) -> float:
        """The learning rate of a parameter, as a multiple of the trainer's."""
        if not any(parameter is own for own in self.encoder.parameters()):
            return 1.0
        # Features that are magnified magnify both the gradients of the backbone and the effect of
        # its changes.
        return self.lr_factor / max(float(self.scale), 1.0) ** 2
