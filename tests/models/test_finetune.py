"""A backbone with a new head: what is trained, how fast, and which statistics stay."""

import pickle

import pytest
import torch
from sklearn.base import clone
from torch import nn

from ltpll.backbones import Backbone, Preprocessing
from ltpll.methods import METHODS
from ltpll.models.finetune import FEWEST_ROWS_FOR_NORM, FineTune
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.views import ImageViews
from support.refusals import refusal
from support.tiny_backbones import PREPROCESSING, coloured_pictures, tiny_backbone, tiny_network

SHAPE = (3, 16, 16)


def trained(model, method="proden", epochs=2, **options):
    x, _, candidates = coloured_pictures()
    trainer = PartialLabelTrainer(
        model,
        METHODS[method](),
        views=ImageViews("flip-crop", PREPROCESSING.mean, PREPROCESSING.std),
        **{"epochs": epochs, "batch_size": 20, "lr": 0.05, "device": "cpu", **options},
    )
    return trainer.fit(torch.from_numpy(x).permute(0, 3, 1, 2), candidates)


def test_the_whole_copy_learns_and_the_backbone_that_was_given_stays_as_it_was():
    backbone = tiny_backbone()
    model = FineTune(backbone)(SHAPE, 4)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    trainer = trained(model)
    assert len(trainer.optimizer.state) == len(before)
    for name, parameter in model.named_parameters():
        assert not torch.equal(parameter, before[name]), name
    for ours, theirs in zip(backbone.parameters(), tiny_backbone().parameters(), strict=True):
        assert torch.equal(ours, theirs)


# ---- batch norm ----------------------------------------------------------------------------------


def changed_statistics(freeze_norm):
    model = FineTune(tiny_backbone(), freeze_norm=freeze_norm)(SHAPE, 4)
    before = {
        name: tensor.clone() for name, tensor in model.state_dict().items() if "running" in name
    }
    trained(model)
    model.eval()
    model.train()
    assert model.training
    modes = [module.training for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    changed = [
        not torch.equal(model.state_dict()[name], tensor)
        for name, tensor in before.items()
        if "mean" in name
    ]
    assert modes == changed  # a norm in evaluation mode keeps its statistics, and only such a norm
    return changed


@pytest.mark.parametrize(
    ("freeze_norm", "changes"), [(True, False), ("auto", False), (False, True)]
)
def test_frozen_norms_keep_their_statistics_in_training(freeze_norm, changes):
    assert changed_statistics(freeze_norm) == [changes] * 5


@pytest.mark.parametrize(
    ("n_rows", "trains"),
    [(None, False), (FEWEST_ROWS_FOR_NORM - 1, False), (FEWEST_ROWS_FOR_NORM, True)],
)
def test_norms_are_frozen_for_small_sets(n_rows, trains):
    model = FineTune(tiny_backbone())(SHAPE, 4, n_rows)
    assert [
        module.training for module in model.modules() if isinstance(module, nn.BatchNorm2d)
    ] == [trains] * 5


def test_a_momentum_encoder_has_frozen_norms_too():
    model = FineTune(tiny_backbone())(SHAPE, 4)
    trainer = trained(model, "pico", epochs=1)
    copies = [module for module in trainer.method.modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(copies) == 5
    for copy, original in zip(
        copies, (m for m in tiny_backbone().modules() if isinstance(m, nn.BatchNorm2d)), strict=True
    ):
        assert torch.equal(copy.running_mean, original.running_mean)


# ---- learning rates ------------------------------------------------------------------------------


def test_the_backbone_learns_at_a_tenth_of_the_heads_rate():
    """One step of SGD on the whole set, recomputed by hand."""
    model = FineTune(tiny_backbone(), lr_factor=0.1)(SHAPE, 4)
    x, _, candidates = coloured_pictures()
    pictures = torch.from_numpy(x).permute(0, 3, 1, 2)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    targets = candidates.dense().float() / candidates.dense().sum(1, keepdim=True)
    loss = (
        -(targets * torch.log_softmax(model(PREPROCESSING.normalise(pictures))[0], 1)).sum(1).mean()
    )
    gradients = torch.autograd.grad(loss, list(model.parameters()))

    class Plain(ImageViews):
        def draw(self, x, kinds, generator, places=None):
            return (self.plain(x),) * len(kinds)

    trainer = PartialLabelTrainer(
        model,
        METHODS["proden"](),
        views=Plain("crop", PREPROCESSING.mean, PREPROCESSING.std),
        epochs=1,
        batch_size=60,
        lr=0.3,
        weight_decay=0.01,
        device="cpu",
    ).fit(pictures, candidates)
    assert [group["lr"] for group in trainer.optimizer.param_groups] == [pytest.approx(0.03), 0.3]
    for (name, after), old, gradient in zip(
        model.named_parameters(), before, gradients, strict=True
    ):
        rate = 0.3 if name.startswith("head") else 0.03
        torch.testing.assert_close(
            after.detach(), old - rate * (gradient + 0.01 * old), atol=1e-6, rtol=1e-4, msg=name
        )


def test_a_backbone_whose_features_are_magnified_learns_more_slowly():
    model = FineTune(tiny_backbone(), lr_factor=0.1)(SHAPE, 4)
    first = next(model.encoder.parameters())
    for scale, factor in ((0.5, 0.1), (1.0, 0.1), (4.0, 0.1 / 16)):
        model.scale.fill_(scale)
        assert model.lr_factor_of(first) == pytest.approx(factor)
        assert model.lr_factor_of(model.head.weight) == 1.0


# ---- refusals and options ------------------------------------------------------------------------


class FixedSize(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3 * 8 * 8, 5)

    def forward(self, x):
        return self.layer(x.flatten(1))


@pytest.mark.parametrize(
    ("make", "shape", "words"),
    [
        (
            lambda: FineTune(Backbone(FixedSize(), Preprocessing(side=8))),
            (3, 9, 9),
            "fails on a picture of 9 × 9 pixels",
        ),
        (lambda: FineTune(tiny_backbone()), (7,), "takes colour pictures"),
        (lambda: FineTune(tiny_backbone(), lr_factor=0), SHAPE, "lr_factor"),
        (lambda: FineTune(tiny_backbone(), freeze_norm="never"), SHAPE, "freeze_norm"),
        (lambda: FineTune(tiny_network()), SHAPE, "give a Backbone"),
    ],
)
def test_what_cannot_be_fine_tuned_is_refused(make, shape, words):
    assert words in refusal(lambda: make()(shape, 4))


def test_pictures_of_another_size_are_taken_if_the_encoder_takes_them():
    logits, features = FineTune(tiny_backbone())((3, 24, 20), 4)(torch.zeros(2, 3, 24, 20))
    assert logits.shape == (2, 4)
    assert features.shape == (2, 8)


def test_a_clone_shares_the_backbone_and_has_options_of_its_own():
    original = FineTune(tiny_backbone(), freeze_norm=True)
    copy = clone(original).set_params(lr_factor=0.5)
    assert copy.backbone is original.backbone
    assert (copy.freeze_norm, copy.lr_factor, original.lr_factor) == (True, 0.5, 0.1)
    assert pickle.loads(pickle.dumps(original)).freeze_norm is True


# ---- the length of features ----------------------------------------------------------------------


def test_calibrated_features_are_centred_and_of_one_length_whatever_the_backbone_returns():
    pictures = PREPROCESSING.normalise(
        torch.from_numpy(coloured_pictures(40)[0]).permute(0, 3, 1, 2)
    )
    expected = None
    for factor in (1.0, 100.0):
        backbone = tiny_backbone()
        backbone.encoder[4].append(Times(factor))
        model = FineTune(backbone)(SHAPE, 4)
        plain = backbone(pictures).detach()
        assert torch.equal(model.eval()(pictures)[1], plain)
        model.calibrate(pictures)
        features = model.eval()(pictures)[1].detach()
        torch.testing.assert_close(features.mean(0), torch.zeros(8), atol=1e-3, rtol=0)
        assert features.square().sum(1).mean() == pytest.approx(128, rel=1e-4)
        torch.testing.assert_close(
            features / features[0, 0],
            (plain - plain.mean(0)) / (plain - plain.mean(0))[0, 0],
            atol=1e-3,
            rtol=1e-3,
        )
        expected = features if expected is None else expected
        torch.testing.assert_close(features, expected, atol=1e-3, rtol=1e-3)


def test_features_that_hardly_differ_are_not_magnified_without_limit():
    model = FineTune(tiny_backbone())(SHAPE, 4)
    pictures = torch.zeros(5, *SHAPE)
    squared = model.encoder(pictures)[0].detach().square().sum()
    model.calibrate(pictures)
    assert model.scale**2 == pytest.approx(float(128 / (0.1 * squared)), rel=1e-4)
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.zero_()
    model.calibrate(pictures)
    assert model.scale == 1  # no features at all


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x
