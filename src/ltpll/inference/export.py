"""Export: a fitted classifier as an ONNX model that takes inputs as they are and predicts debiased."""

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


class Debiased(nn.Module):
    """Inputs to debiased logits in one network: normalised first, the log-prior folded into the bias of the model's head."""

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
            raise InputError("Views of one's own cannot be exported: what they do to an input in prediction is not known.")
        self.register_buffer("mean", mean.cpu())
        self.register_buffer("std", std.cpu())
        self.model = deepcopy(predictor.passes.model).cpu().float().eval()
        self.method = deepcopy(predictor.method).cpu().eval()
        head = linear_head(self.model)
        rebalancer = predictor.rebalancer
        with torch.no_grad():
            log_prior = rebalancer.subtracted("prediction", linear_head(predictor.passes.model)).cpu()
            if type(predictor.method).predict is not Method.predict and bool(log_prior.any()):
                raise InputError(f"The method {self.method.name!r} with {rebalancer.name!r} cannot be exported: its bias cannot be folded.")
            if head.bias is None:
                head.bias = nn.Parameter(torch.zeros(head.out_features))
            head.bias.sub_(log_prior)

    def forward(self, x: Tensor) -> Tensor:
        logits, features = self.model((x.float() - self.mean) / self.std)
        return self.method.predict(Outputs((logits,), (features,))).logits[0]


def export_onnx(predictor: Predictor, shape: tuple[int, ...], path: Path) -> None:
    """Write `path`: input `x` (rows, …) of floats, output `logits` (rows, classes); any number of rows."""
    with required_by("Exporting", install="'ltpll[onnx]'"):
        import onnxscript  # noqa: F401
    if not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent} to write {path.name} to.")
    example = torch.zeros(2, *shape)
    rows = torch.export.Dim("rows", min=1)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own doings
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # likewise: what it says of packages that nobody needs here
        made = Path(folder) / "model.onnx"
        torch.onnx.export(
            Debiased(predictor),
            (example,),
            made,
            input_names=["x"],
            output_names=["logits"],
            dynamic_shapes={"x": {0: rows}},
            opset_version=18,  # the one that torch writes first, so that no version of it has to convert
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        write_atomically(path, made.read_bytes())
