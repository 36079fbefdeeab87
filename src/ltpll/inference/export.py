"""Export: write a fitted classifier as an ONNX model that takes raw inputs and returns the logits it predicts with."""

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
from ltpll.interfaces import Goal, Method, Outputs, linear_head
from ltpll.views import ImageViews
from ltpll.views.features import FeatureViews


class PredictingNetwork(nn.Module):
    """Maps raw inputs to the logits used for prediction: it normalises them and folds the log-prior into the bias of the model's head.

    Args:
        predictor: The fitted predictor.
        goal: "balanced" or "accuracy", as for `Predictor.adjusted`.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, predictor: Predictor, goal: Goal = "balanced") -> None:
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
        # The head of an extra replaces the rebalancer's correction.
        self.balanced = deepcopy(predictor.balanced_head).cpu().eval() if goal == "balanced" and predictor.balanced_head else None
        if goal == "balanced" and self.balanced is None:
            self._fold_in(predictor)

    def _fold_in(self, predictor: Predictor) -> None:
        """Subtract the log-prior from the bias of the head."""
        head, rebalancer = linear_head(self.model), predictor.rebalancer
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
        predicted = self.method.predict(Outputs.from_views([(logits, features)]))
        balanced = None if self.balanced is None else self.balanced.balanced_logits(predicted)
        return predicted.logits[0] if balanced is None else balanced


def export_onnx(predictor: Predictor, shape: tuple[int, ...], path: Path, goal: Goal = "balanced") -> None:
    """Write an ONNX model with the input `x`, (rows, …) floats, and the output `logits`, (rows, classes), for any number of rows.

    Args:
        predictor: The fitted predictor.
        shape: The shape of one example.
        path: The file to write.
        goal: "balanced" corrects for the class prior, "accuracy" does not.

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
            PredictingNetwork(predictor, goal),
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
