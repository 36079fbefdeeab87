import numpy as np
import onnxruntime
import pytest
import torch

from ltpll import Classifier, PartialLabelClassifier, build_model
from ltpll.data.synthetic import four_squares, uniform_candidates
from ltpll.errors import InputError
from ltpll.inference.export import PredictingNetwork
from ltpll.views import Views
from support.refusals import refusal


def fitted(method="proden", rebalancer="records", **options):
    x, y = four_squares([20, 40, 60, 80], seed=0)
    x = x * [3, 0.1] + [5, 0]
    classifier = PartialLabelClassifier(method, rebalancer, epochs=3, device="cpu", **{"goal": "balanced", **options})
    return classifier.fit(x, uniform_candidates(y, 4, 0.3, seed=0)), x.astype(np.float32)


def answers(path, x):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(["logits"], {"x": x})[0]


@pytest.mark.parametrize("goal", ["accuracy", "balanced"])
@pytest.mark.parametrize("extras", [[], ["balanced-head"]])
def test_the_network_that_is_exported_predicts_for_the_goal(goal, extras):
    classifier, x = fitted("proden", "anchor", goal=goal, extras=extras)
    given = PredictingNetwork(classifier._predictor, goal)(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(given, classifier.decision_function(x), atol=1e-4)


@pytest.mark.parametrize(("method", "rebalancer"), [("proden", "records"), ("proden", "none"), ("htc", "none"), ("solar", "none")])
def test_the_network_that_is_exported_gives_the_debiased_logits(method, rebalancer):
    classifier, x = fitted(method, rebalancer, options={"solar": {"la": True}} if method == "solar" else None)
    given = PredictingNetwork(classifier._predictor)(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(given, classifier.decision_function(x), atol=1e-4)
    if rebalancer == "records":  # whose prior is not uniform
        raw = classifier._predictor.outputs(x).logits[0].numpy()
        assert np.abs((given - given.mean(1, keepdims=True)) - (raw - raw.mean(1, keepdims=True))).max() > 0.05


@pytest.mark.parametrize(("method", "rebalancer"), [("proden", "records"), ("htc", "none")])
def test_the_exported_file_gives_the_debiased_logits_for_any_number_of_rows(method, rebalancer, tmp_path):
    """HTC predicts with a second head, through operations of its own."""
    classifier, x = fitted(method, rebalancer)
    before = classifier.predict_proba(x)
    classifier.to_onnx(tmp_path / "model.onnx")
    for n in (1, 7, len(x)):
        np.testing.assert_allclose(answers(tmp_path / "model.onnx", x[:n]), classifier.decision_function(x[:n]), atol=1e-4)
    np.testing.assert_array_equal(classifier.predict_proba(x), before)  # exporting leaves the classifier as it was


def start_of_resnet(shape, n_classes):
    """Two blocks of ResNet-18, the second of which halves the image: every operation of the network."""
    encoder = build_model("resnet18", 0, n_classes=n_classes, width=4).encoder
    encoder.blocks = encoder.blocks[1:3]
    return Classifier(encoder, torch.nn.Linear(8, n_classes))


def test_an_exported_network_for_images_takes_bytes_as_numbers(tmp_path):
    """tests/cleaning/test_commands.py exports the smaller network for images."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (20, 3, 16, 16), dtype=np.uint8)
    classifier = PartialLabelClassifier(model=start_of_resnet, epochs=1, device="cpu").fit(x, np.arange(20) % 4)
    classifier.to_onnx(tmp_path / "model.onnx")
    np.testing.assert_allclose(answers(tmp_path / "model.onnx", x[:5].astype(np.float32)), classifier.decision_function(x[:5]), atol=1e-3)


def test_what_cannot_be_exported_is_refused_in_a_sentence_and_leaves_no_file(tmp_path):
    own, _ = fitted(views=Views())
    assert "custom views" in refusal(lambda: own.to_onnx(tmp_path / "model.onnx"), InputError)
    plain, _ = fitted()
    assert "does not exist" in refusal(lambda: plain.to_onnx(tmp_path / "nowhere" / "model.onnx"), InputError)
    assert not list(tmp_path.iterdir())
