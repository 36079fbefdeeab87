"""A training in a hundredth of a second: points on the plane, half of whose wrong labels are
candidates."""

import torch
from torch import nn

from ltpll.methods import METHODS
from ltpll.models import Classifier, build_model
from ltpll.synthetic import four_squares, uniform_candidates
from ltpll.training.callbacks import Callback
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.views import Jitter, Views

SIZES = (10, 20, 40, 80)


class OnResume(Callback):
    """Notes after how many epochs a training resumes."""

    def __init__(self, notes):
        self.notes = notes

    def on_resume(self, trainer):
        self.notes.append(trainer.epoch)


def toy(seed=0):
    x, y = four_squares(SIZES, seed=seed)
    return x, y, uniform_candidates(y, 4, 0.5, seed=seed)


def trainer(method="proden", rebalancer=None, extras=(), *, seed=0, model=None, **options):
    """Three epochs of four steps."""
    model = model or build_model("mlp", seed, n_inputs=2, n_classes=4, hidden=(8,))
    options = {
        "epochs": 3,
        "batch_size": 32,
        "lr": 0.1,
        "device": "cpu",
        "views": Views(strong=(Jitter(0.05),)),
        **options,
    }
    made = METHODS[method]() if isinstance(method, str) else method
    return PartialLabelTrainer(model, made, rebalancer, extras, seed=seed, **options)


def classifier(encoder):
    """An encoder of eight features and a head, with weights that are always the same."""
    model = Classifier(encoder, nn.Linear(8, 4))
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g))
    return model


def everything(one):
    """All that a step of a trainer can change, but random states and the counting of losses."""
    left_out = ("random", "generator", "total", "dropped")
    return {
        name: tensor.clone()
        for name, tensor in one.state.tensors().items()
        if not name.startswith(left_out)
    }


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name
