"""Export of a committee as an ONNX model that takes raw features and describes itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ltpll.backbones import Backbone
from ltpll.columns import PiecewiseLinear
from ltpll.committee.forest import SoftForest
from ltpll.committee.training import FittedMember
from ltpll.errors import InputError, shown
from ltpll.estimator import PartialLabelClassifier
from ltpll.network.export import ML, NodeWriter, PredictingNetwork, write_onnx
from ltpll.number_types import blurred_by_float32

if TYPE_CHECKING:
    from ltpll.committee.committee import Committee

Numbers = npt.NDArray[Any]
LEAST_SUM = 1e-30  # as in `with_shares`
TINY = np.finfo(np.float32).tiny


class Bins(nn.Module):
    """`PiecewiseLinear` as a module."""

    columns: Tensor
    low: Tensor
    width: Tensor

    def __init__(self, bins: PiecewiseLinear) -> None:
        super().__init__()
        counts = torch.tensor([max(0, len(edges) - 1) for edges in bins.edges_])
        columns = torch.arange(len(counts)).repeat_interleave(counts)
        self.register_buffer("columns", columns)
        for name, parts in (
            ("low", [edges[:-1] for edges in bins.edges_]),
            ("width", [np.diff(edges) for edges in bins.edges_]),
        ):
            self.register_buffer(name, torch.from_numpy(np.concatenate(parts)))

    def forward(self, x: Tensor) -> Tensor:
        places = (x[:, self.columns].double() - self.low) / self.width
        return torch.cat([x, places.clamp(0, 1).float()], dim=1)


class NetworkOfCommittee(nn.Module):
    """Maps scaled features to what a network adds to the mixture."""

    factors: Tensor

    def __init__(self, member: FittedMember, factors: Numbers) -> None:
        super().__init__()
        own = member.classifier
        self.network = PredictingNetwork(own._predictor, own._goal, own._goal_temperature)
        self.bins = nn.Identity() if member.bins is None else Bins(member.bins)
        self.weight = member.weight
        self.register_buffer("factors", torch.from_numpy(factors))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.network(self.bins(x))[1] * self.factors
        return self.weight * (found / found.sum(1, keepdim=True).clamp(min=LEAST_SUM))


class NetworksOfCommittee(nn.Module):
    """Maps raw features to scaled ones, and to what all networks add to the mixture.

    It has the attributes of a `PredictingNetwork`.

    Args:
        committee: A fitted committee.
        networks: Its networks.
        kind: The type of the raw features, which are scaled in double precision as for training.
    """

    mean: Tensor
    std: Tensor
    centre: Tensor
    scale: Tensor
    pictures = False

    def __init__(
        self, committee: Committee, networks: Sequence[nn.Module], kind: torch.dtype
    ) -> None:
        super().__init__()
        self.goal = committee._goal
        self.networks, self.n_classes = nn.ModuleList(networks), len(committee.classes_)
        self.temperature = committee._goal_temperature
        centre, scale = (torch.from_numpy(one) for one in _scaling(committee))
        buffers = {"centre": centre, "scale": scale, "mean": centre.to(kind), "std": scale.to(kind)}
        for name, one in buffers.items():
            self.register_buffer(name, one)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scaled = ((x.double() - self.centre) / self.scale).float()
        found = scaled.new_zeros(scaled.shape[0], self.n_classes)
        for network in self.networks:
            found = found + network(scaled)
        return scaled, found


def export_committee(
    committee: Committee,
    path: Path,
    feature_names: Sequence[str] = (),
    backbone: Backbone | None = None,
) -> None:
    """Write an ONNX model of a committee, with the contract of `write_onnx`.

    Its logits are logarithms of the mixture's probabilities.

    Args:
        committee: A fitted committee of networks and forests of its own.
        path: The file to write.
        feature_names: The names of the features, if they are known.
        backbone: The backbone whose features the committee was trained on, if the model shall take
            pictures.

    Raises:
        InputError: A member is another classifier, or the file cannot be written.
    """
    networks, forests, goal = [], [], committee._goal
    for member in committee._fitted:
        factors = (committee._shared / member.mean).astype(np.float32)
        if isinstance(member.classifier, PartialLabelClassifier):
            networks.append(NetworkOfCommittee(member, factors))
        elif isinstance(member.classifier, SoftForest):
            forests.append((member.classifier, factors, member.weight))
        else:
            raise InputError(
                f"The member {shown(member.name)} cannot be exported: only networks and the forest "
                "of a committee can."
            )
    mean, scale = _scaling(committee)
    doubles = backbone is None and blurred_by_float32(mean - scale, mean + scale)
    kind = torch.float64 if doubles else torch.float32
    classes = committee.classes_.tolist()
    log_prior = np.log(committee.class_prior_) if goal == "balanced" else np.zeros(1)
    finish = partial(_finish, forests=forests, log_prior=log_prior, t=committee._goal_temperature)
    networks_of = NetworksOfCommittee(committee, networks, kind)
    shape = committee.input_shape_
    write_onnx(networks_of, shape, path, classes, feature_names, backbone, finish)


def _scaling(committee: Committee) -> tuple[Numbers, Numbers]:
    return committee._scaler.mean_, committee._scaler.scale_


def _finish(model: Any, forests: Sequence[Any], log_prior: Numbers, t: float) -> None:
    """Add forests to the graph, and make logits and probabilities of the mixture."""
    graph = model.graph
    scaled, mixture = "scaled", "mixture 0"
    renamed = dict(zip(("logits", "probabilities"), (scaled, mixture), strict=True))
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    graph.output[0].type.CopyFrom(graph.output[1].type)  # both are (rows, classes)

    writer, single = NodeWriter(), np.float32
    add = writer.add
    for k, (forest, factors, weight) in enumerate(forests, 1):
        one = f"forest {k}"
        add("TreeEnsembleRegressor", [scaled], one, domain=ML, **forest_attributes(forest))
        weighed = add("Mul", [one, factors], f"{one}, weighed")
        total = add("ReduceSum", [weighed, np.asarray([1])], f"{one}, total")
        total = add("Max", [total, single(LEAST_SUM)], f"{one}, divisor")
        share = add("Div", [weighed, total], f"{one}, probabilities")
        part = add("Mul", [share, single(weight)], f"{one}, part")
        mixture = add("Add", [mixture, part], f"mixture {k}")
    logs = add("Log", [add("Max", [mixture, single(TINY)], "positive")], "logarithms")
    add("Sub", [logs, log_prior.astype(single)], "logits")
    add("Softmax", [add("Div", ["logits", single(t)], "cooled")], "probabilities", axis=1)
    writer.append_to(model)


def forest_attributes(forest: SoftForest) -> dict[str, Any]:
    """What TreeEnsembleRegressor calls the arrays of a forest."""
    own = forest.arrays()
    nodes, inner = np.arange(len(own["left"])), own["left"] >= 0
    tree = np.searchsorted(own["roots"], nodes, side="right") - 1
    first = own["roots"][tree]  # nodes are numbered tree by tree
    # The largest float32 that is not above the threshold: no float32 lies between the two.
    threshold = own["threshold"].astype(np.float32)
    above = threshold > own["threshold"]
    threshold[above] = np.nextafter(threshold[above], np.float32(-np.inf))
    entries = np.repeat(nodes, np.diff(own["starts"]))
    return {
        "n_targets": forest.n_classes,
        "aggregate_function": "AVERAGE",
        "nodes_treeids": tree,
        "nodes_nodeids": nodes - first,
        "nodes_modes": np.where(inner, "BRANCH_LEQ", "LEAF").tolist(),
        "nodes_featureids": np.where(inner, own["feature"], 0),
        "nodes_values": np.where(inner, threshold, np.float32(0)),
        "nodes_truenodeids": np.where(inner, own["left"] - first, 0),
        "nodes_falsenodeids": np.where(inner, own["right"] - first, 0),
        "target_treeids": tree[entries],
        "target_nodeids": (nodes - first)[entries],
        "target_ids": own["labels"],
        "target_weights": own["shares"],
    }
