"""Export: a fitted classifier as an ONNX model that takes raw inputs and describes itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ltpll import __version__
from ltpll.backbones import Backbone
from ltpll.backbones.backbone import PixelsToFeatures
from ltpll.backbones.onnx_models import exported_model
from ltpll.errors import InputError, required_by
from ltpll.files import write_atomically
from ltpll.interfaces import Goal, Method, Outputs, linear_head
from ltpll.network.predictor import Predictor
from ltpll.views import ImageViews
from ltpll.views.features import FeatureViews


class PredictingNetwork(nn.Module):
    """Maps raw inputs to logits, which are corrected for the goal, and probabilities.

    It normalises the inputs, folds the log-prior into the bias of the model's head, and divides the
    logits by the temperature before they become probabilities.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, predictor: Predictor, goal: Goal = "balanced", temperature: float = 1.0
    ) -> None:
        super().__init__()
        self.goal, self.temperature = goal, temperature
        views = predictor.views
        self.pictures = isinstance(views, ImageViews)
        inside = getattr(predictor.forward_pass.model, "encoder", None)  # if it was fine-tuned
        self.preprocessing = inside.preprocessing if isinstance(inside, Backbone) else None
        if isinstance(views, ImageViews):
            mean, std = (
                255 * torch.tensor(figures).view(-1, 1, 1) for figures in (views.mean, views.std)
            )
        elif isinstance(views, FeatureViews):
            mean, std = views.mean, views.std
        else:
            raise InputError(
                "A classifier with custom views cannot be exported, because their normalisation is "
                "unknown."
            )
        self.register_buffer("mean", mean.cpu())
        self.register_buffer("std", std.cpu())
        self.model = deepcopy(predictor.forward_pass.model).cpu().float().eval()
        self.method = deepcopy(predictor.method).cpu().eval()
        # The head of an extra replaces the rebalancer's correction.
        balanced = predictor.balanced_head if goal == "balanced" else None
        self.balanced = None if balanced is None else deepcopy(balanced).cpu().eval()
        if goal == "balanced" and balanced is None:
            self._fold_in(predictor)

    def _fold_in(self, predictor: Predictor) -> None:
        """Subtract the log-prior from the bias of the head."""
        head, rebalancer = linear_head(self.model), predictor.rebalancer
        with torch.no_grad():
            fitted_head = linear_head(predictor.forward_pass.model)
            log_prior = rebalancer.subtracted("prediction", fitted_head).cpu()
            if type(predictor.method).predict is not Method.predict and bool(log_prior.any()):
                raise InputError(
                    f"The method {self.method.name!r} with {rebalancer.name!r} cannot be exported: "
                    "no single bias holds the log-prior."
                )
            if head.bias is None:
                head.bias = nn.Parameter(torch.zeros(head.out_features))
            head.bias.sub_(log_prior)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        raw, features = self.model(((x.to(self.mean.dtype) - self.mean) / self.std).float())
        predicted = self.method.predict(Outputs.from_views([(raw, features)]))
        balanced = None if self.balanced is None else self.balanced.balanced_logits(predicted)
        logits = predicted.logits[0] if balanced is None else balanced
        return logits, torch.softmax(logits / self.temperature, dim=1)


class PicturesToPredictions(PixelsToFeatures):
    """Maps pictures, with pixels from 0 to 255, to logits and probabilities.

    `network` is a `PredictingNetwork` for the backbone's features, or has its attributes.
    """

    pictures = True

    def __init__(self, backbone: Backbone, network: Any) -> None:
        super().__init__(backbone)
        self.network, self.preprocessing = network, backbone.preprocessing
        self.goal, self.temperature = network.goal, network.temperature

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = self.network(super().forward(pixels))
        return found


ML = "ai.onnx.ml"  # the operators for forests, and those that look up texts


class NodeWriter:
    """Adds nodes with one output to an ONNX model.

    Args:
        prefix: What the names of outputs begin with that are not given.
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(
        self, kind: str, given: Sequence[Any], made: str | None = None, **attributes: Any
    ) -> str:
        """Add a node, and return the name of its output.

        Args:
            kind: The operator.
            given: Its inputs: names, or arrays, which become constants.
            made: The name of its output; by default the number of the node.
            attributes: Its attributes, and perhaps `domain`.
        """
        from onnx import helper, numpy_helper

        made, names = made or f"{self.prefix}{len(self.nodes)}", []
        for k, one in enumerate(given):
            names.append(one if isinstance(one, str) else f"{made}/{k}")
            if not isinstance(one, str):
                self.constants.append(numpy_helper.from_array(np.asarray(one), names[-1]))
        self.nodes.append(helper.make_node(kind, names, [made], **attributes))
        return made

    def append_to(self, model: Any) -> None:
        """Append the nodes and their constants to a model."""
        from onnx import helper

        model.graph.node.extend(self.nodes)
        model.graph.initializer.extend(self.constants)
        known = {one.domain for one in model.opset_import}
        if ML not in known and any(node.domain == ML for node in self.nodes):
            model.opset_import.append(helper.make_opsetid(ML, 3))


def sidecar(path: Path) -> Path:
    """The JSON file beside an ONNX model that describes it."""
    return path.with_name(f"{path.name}.json")


def write_onnx(
    network: Any,
    shape: tuple[int, ...],
    path: Path,
    classes: Sequence[Any],
    feature_names: Sequence[str] = (),
    backbone: Backbone | None = None,
    finish: Callable[[Any], None] = lambda model: None,
) -> None:
    """Write an ONNX model and, beside it, a JSON file with the description in its metadata.

    The input is `x`, (rows, …) floats, for any number of rows; the outputs are `logits` and
    `probabilities`, (rows, classes). Each entry of the description is an entry of the model's
    metadata, whose value is JSON.

    Args:
        network: A `PredictingNetwork`, or another module with its attributes.
        shape: The shape of one example.
        path: The file to write.
        classes: The names of the classes.
        feature_names: The names of the features, if they are known.
        backbone: The backbone whose features the network was trained on; the model then takes
            pictures instead of features.
        finish: Called with the model, to make logits and probabilities of what `network` returns
            if that is something else.

    Raises:
        InputError: If the folder does not exist, the backbone cannot be exported, or `ltpll[onnx]`
            is not installed.
    """
    with required_by("Exporting", install="'ltpll[onnx]'"):
        import onnx
        import onnxscript  # noqa: F401
    if not path.parent.is_dir():
        raise InputError(f"Cannot write {path.name}: the folder {path.parent} does not exist.")
    if backbone is not None:
        if network.pictures or shape != (backbone.n_features,):
            raise InputError(
                f"The backbone {backbone.name!r} gives {backbone.n_features} features, but the "
                f"classifier takes inputs of shape {tuple(shape)}: export it with the backbone "
                "whose features it was trained on."
            )
        network = PicturesToPredictions(backbone, network).cpu()
        shape = (3, backbone.preprocessing.side, backbone.preprocessing.side)
    example = torch.zeros(2, *shape, dtype=network.mean.dtype)
    model = onnx.load_from_string(exported_model(network, example, ["logits", "probabilities"]))
    finish(model)
    to_text = partial(json.dumps, ensure_ascii=False)
    facts = _description(network, shape, classes, feature_names)
    onnx.helper.set_model_props(model, {name: to_text(each) for name, each in facts.items()})
    sidecar(path).unlink(missing_ok=True)  # first, so that it never describes another model
    write_atomically(path, model.SerializeToString())
    write_atomically(sidecar(path), f"{to_text(facts, indent=1)}\n".encode())


def _description(
    network: Any, shape: tuple[int, ...], classes: Sequence[Any], feature_names: Sequence[str]
) -> dict[str, Any]:
    """What a user of an exported model needs to know, as JSON values (docs/python.md)."""
    kind = str(network.mean.dtype).removeprefix("torch.")
    given: dict[str, Any] = {"name": "x", "shape": ["rows", *shape], "type": kind}
    layout, standardised = "rows, channels, height, width", "(x - mean) / std"
    if network.pictures:
        given |= {"values": "pixels from 0 to 255", "layout": layout, "channels": "RGB"}
        given |= {"height": shape[1], "width": shape[2]}
        if (how := network.preprocessing) is not None:
            given |= {"fit": how.fit, "resize": how.resize, "resample": how.resample}
    elif len(shape) == 3:
        given |= {"values": "images of the numbers used for training", "layout": layout}
    else:
        given["values"] = "features as used for training, not standardised"
        given["features"] = list(feature_names) or None
    return {
        "classes": [name if isinstance(name, str | int | float) else str(name) for name in classes],
        "input": given,
        "preprocessing": {
            "inside_model": standardised + (", for each channel" if len(shape) == 3 else ""),
            "mean": network.mean.flatten().tolist(),
            "std": network.std.flatten().tolist(),
        },
        "outputs": ["logits", "probabilities"],
        "goal": network.goal,
        "temperature": network.temperature,
        "version": f"ltpll {__version__}",
    }
