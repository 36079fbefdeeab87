"""Export: write a fitted classifier as an ONNX model that takes raw inputs and returns debiased logits."""

from __future__ import annotations

import logging
import tempfile
import warnings
from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor, nn

from ltpll.errors import InputError, required_by
from ltpll.files import write_atomically
from ltpll.inference.predictor import Predictor
from ltpll.interfaces import Method, Outputs, linear_head
from ltpll.views import ImageViews
from ltpll.views.features import FeatureViews


class DebiasedNetwork(nn.Module):
    """Maps raw inputs to debiased logits: it normalises the inputs and folds the log-prior into the bias of the model's head."""

    mean: Tensor
    std: Tensor

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        views = predictor.views
        if isinstance(views, ImageViews):
            mean, std = (255 * torch.tensor(figures).view(-1, 1, 1) for figures in (views.mean, views.std))
        elif isinstance(views, FeatureViews):
            mean, std = views.mean, views.std
        else:
            raise InputError("A classifier with custom views cannot be exported, because their normalisation is unknown.")
        self.register_buffer("mean", mean.cpu())
        self.register_buffer("std", std.cpu())
        self.model = deepcopy(predictor.forward_pass.model).cpu().float().eval()
        self.method = deepcopy(predictor.method).cpu().eval()
        head = linear_head(self.model)
        rebalancer = predictor.rebalancer
        with torch.no_grad():
            log_prior = rebalancer.subtracted("prediction", linear_head(predictor.forward_pass.model)).cpu()
            if type(predictor.method).predict is not Method.predict and bool(log_prior.any()):
                raise InputError(
                    f"The method {self.method.name!r} with {rebalancer.name!r} cannot be exported: no single bias holds the log-prior."
                )
            if head.bias is None:
                head.bias = nn.Parameter(torch.zeros(head.out_features))
            head.bias.sub_(log_prior)

    def forward(self, x: Tensor) -> Tensor:
        logits, features = self.model((x.float() - self.mean) / self.std)
        return self.method.predict(Outputs.from_views([(logits, features)])).logits[0]


def export_onnx(predictor: Predictor, shape: tuple[int, ...], path: Path) -> None:
    """Write an ONNX model with the input `x`, (rows, …) floats, and the output `logits`, (rows, classes), for any number of rows.

    Args:
        predictor: The fitted predictor.
        shape: The shape of one example.
        path: The file to write.

    Raises:
        InputError: If the folder does not exist, the views or the method cannot be exported, or `ltpll[onnx]` is not installed.
    """
    with required_by("Exporting", install="'ltpll[onnx]'"):
        import onnxscript  # noqa: F401
    if not path.parent.is_dir():
        raise InputError(f"Cannot write {path.name}: the folder {path.parent} does not exist.")
    example = torch.zeros(2, *shape)
    rows = torch.export.Dim("rows", min=1)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from inside the exporter
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it reports optional packages that are not needed
        made = Path(folder) / "model.onnx"
        torch.onnx.export(
            DebiasedNetwork(predictor),
            (example,),
            made,
            input_names=["x"],
            output_names=["logits"],
            dynamic_shapes={"x": {0: rows}},
            opset_version=18,  # the version that torch writes without converting
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        write_atomically(path, made.read_bytes())
