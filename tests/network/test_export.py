import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import ltpll
from ltpll import Classifier, PartialLabelClassifier, build_model
from ltpll.cleaning.prediction import onnx_difference
from ltpll.errors import InputError
from ltpll.network.export import PredictingNetwork
from ltpll.synthetic import four_squares, uniform_candidates
from ltpll.views import Views
from support.refusals import refusal

onnxruntime = pytest.importorskip("onnxruntime")


def fitted(method="proden", rebalancer="records", **options):
    x, y = four_squares([20, 40, 60, 80], seed=0)
    x = x * [3, 0.1] + [5, 0]
    classifier = PartialLabelClassifier(
        method, rebalancer, epochs=3, device="cpu", **{"goal": "balanced", **options}
    )
    return classifier.fit(x, uniform_candidates(y, 4, 0.3, seed=0)), x.astype(np.float32)


def answers(path, x):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
        ["logits"], {"x": x}
    )[0]


@pytest.mark.parametrize("goal", ["accuracy", "balanced"])
@pytest.mark.parametrize("extras", [[], ["balanced-head"]])
def test_the_network_that_is_exported_predicts_for_the_goal(goal, extras):
    classifier, x = fitted("proden", "anchor", goal=goal, extras=extras)
    logits, probabilities = (
        output.detach().numpy()
        for output in PredictingNetwork(classifier._predictor, goal)(torch.from_numpy(x))
    )
    np.testing.assert_allclose(logits, classifier.decision_function(x), atol=1e-4)
    np.testing.assert_allclose(probabilities, classifier.predict_proba(x), atol=1e-5)


@pytest.mark.parametrize(
    ("method", "rebalancer"),
    [("proden", "records"), *((name, "none") for name in ("proden", "htc", "deacon", "solar"))],
)
def test_the_network_that_is_exported_gives_the_debiased_logits(method, rebalancer):
    classifier, x = fitted(
        method, rebalancer, options={"solar": {"la": True}} if method == "solar" else None
    )
    given = PredictingNetwork(classifier._predictor)(torch.from_numpy(x))[0].detach().numpy()
    np.testing.assert_allclose(given, classifier.decision_function(x), atol=1e-4)
    if rebalancer == "records":  # whose prior is not uniform
        raw = classifier._predictor.outputs(x).logits[0].numpy()
        assert (
            np.abs(
                (given - given.mean(1, keepdims=True)) - (raw - raw.mean(1, keepdims=True))
            ).max()
            > 0.05
        )


@pytest.mark.parametrize(("method", "rebalancer"), [("proden", "records"), ("htc", "none")])
def test_the_exported_file_gives_the_debiased_logits_for_any_number_of_rows(
    method, rebalancer, tmp_path
):
    """HTC predicts with a second head, through operations of its own."""
    classifier, x = fitted(method, rebalancer)
    before = classifier.predict_proba(x)
    classifier.to_onnx(tmp_path / "model.onnx")
    for n in (1, 7, len(x)):
        np.testing.assert_allclose(
            answers(tmp_path / "model.onnx", x[:n]), classifier.decision_function(x[:n]), atol=1e-4
        )
    np.testing.assert_array_equal(
        classifier.predict_proba(x), before
    )  # exporting leaves the classifier as it was


def test_a_model_of_features_that_float32_would_blur_takes_float64(tmp_path):
    x, y = four_squares([20, 40, 60, 80], seed=0)
    x = x.astype(np.float64) + 1e9
    classifier = PartialLabelClassifier("proden", "records", epochs=3, device="cpu").fit(
        x, uniform_candidates(y, 4, 0.3, seed=0)
    )
    classifier.to_onnx(tmp_path / "model.onnx")
    np.testing.assert_allclose(
        answers(tmp_path / "model.onnx", x), classifier.decision_function(x), atol=1e-4
    )
    assert json.loads((tmp_path / "model.onnx.json").read_text())["input"]["type"] == "float64"
    assert onnx_difference(classifier, tmp_path / "model.onnx") < 1e-4


PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
EXAMPLE = PAGE.partition("## Export")[2].partition("```python\n")[2].partition("```")[0]
USER = """
import json, sys
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
metadata = session.get_modelmeta().custom_metadata_map
facts = {name: json.loads(text) for name, text in metadata.items()}
x = np.load(sys.argv[2]).astype(facts["input"]["type"])
logits, probabilities = session.run(None, {facts["input"]["name"]: x})
assert facts == json.load(open(sys.argv[1] + ".json", encoding="utf-8"))
assert [output.name for output in session.get_outputs()] == facts["outputs"]
assert session.get_inputs()[0].shape == facts["input"]["shape"]
assert not {"ltpll", "torch"} & set(sys.modules)
np.savez(sys.argv[3], logits=logits, probabilities=probabilities)
print(json.dumps(facts))
"""


def used_with_onnxruntime_alone(folder, x):
    """What a program reads and computes that has nothing but onnxruntime and numpy."""
    np.save(folder / "x.npy", x)
    arguments = [folder / "model.onnx", folder / "x.npy", folder / "found.npz"]
    done = subprocess.run(
        [sys.executable, "-c", USER, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), np.load(folder / "found.npz")


def test_a_program_with_onnxruntime_alone_gets_class_names_and_the_probabilities_of_predict_proba(
    tmp_path, monkeypatch
):
    import pandas as pd

    rng = np.random.default_rng(0)
    names = np.asarray(["Füchse", "cat|dog", "owl"])
    labels = rng.integers(0, 3, 90)
    table = pd.DataFrame(
        rng.normal(size=(90, 2)) + 4 * np.eye(3, 2)[labels], columns=["größe", "weight"]
    ) * [3, 0.1]
    classifier = PartialLabelClassifier(
        "proden", "records", goal="balanced", epochs=3, device="cpu"
    ).fit(table, names[labels])
    classifier.to_onnx(tmp_path / "model.onnx")
    facts, found = used_with_onnxruntime_alone(tmp_path, table.to_numpy())
    np.testing.assert_allclose(found["probabilities"], classifier.predict_proba(table), atol=1e-5)
    np.testing.assert_allclose(found["logits"], classifier.decision_function(table), atol=1e-4)
    assert [facts["classes"][k] for k in found["probabilities"].argmax(1)] == classifier.predict(
        table
    ).tolist()
    assert facts["input"]["features"] == ["größe", "weight"]
    assert facts["goal"] == "balanced"
    assert facts["version"] == f"ltpll {ltpll.__version__}"
    np.testing.assert_allclose(facts["preprocessing"]["mean"], table.mean(), rtol=1e-4)
    np.testing.assert_allclose(facts["preprocessing"]["std"], table.std(ddof=0), rtol=1e-4)
    monkeypatch.chdir(tmp_path)
    exec(EXAMPLE, example := {"rows": table})
    assert example["labels"] == classifier.predict(table).tolist()


def test_a_temperature_softens_probabilities_and_leaves_logits_alone():
    classifier, x = fitted()
    logits, probabilities = (
        output.detach()
        for output in PredictingNetwork(classifier._predictor, temperature=2.5)(torch.from_numpy(x))
    )
    np.testing.assert_allclose(logits, classifier.decision_function(x), atol=1e-4)
    expected = np.exp(logits.numpy() / 2.5)
    np.testing.assert_allclose(probabilities, expected / expected.sum(1, keepdims=True), atol=1e-5)


def start_of_resnet(shape, n_classes):
    """Two blocks of ResNet-18, the second of which halves the image: every operation of the
    network."""
    encoder = build_model("resnet18", 0, n_classes=n_classes, width=4).encoder
    encoder.blocks = encoder.blocks[1:3]
    return Classifier(encoder, torch.nn.Linear(8, n_classes))


def test_an_exported_network_for_images_takes_bytes_as_numbers(tmp_path):
    """tests/cleaning/test_commands.py exports the smaller network for images."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (20, 3, 16, 16), dtype=np.uint8)
    classifier = PartialLabelClassifier(model=start_of_resnet, epochs=1, device="cpu").fit(
        x, np.arange(20) % 4
    )
    classifier.to_onnx(tmp_path / "model.onnx")
    facts, found = used_with_onnxruntime_alone(tmp_path, x[:5])
    np.testing.assert_allclose(found["logits"], classifier.decision_function(x[:5]), atol=1e-3)
    np.testing.assert_allclose(found["probabilities"], classifier.predict_proba(x[:5]), atol=1e-4)
    assert facts["classes"] == [0, 1, 2, 3]
    described = {
        "name": "x",
        "shape": ["rows", 3, 16, 16],
        "type": "float32",
        "channels": "RGB",
        "height": 16,
        "width": 16,
    }
    assert {name: facts["input"][name] for name in described} == described
    np.testing.assert_allclose(facts["preprocessing"]["mean"], x.mean((0, 2, 3)), rtol=1e-4)


def test_what_cannot_be_exported_is_refused_in_a_sentence_and_leaves_no_file(tmp_path):
    own, _ = fitted(views=Views())
    assert "custom views" in refusal(lambda: own.to_onnx(tmp_path / "model.onnx"), InputError)
    plain, _ = fitted()
    assert "does not exist" in refusal(
        lambda: plain.to_onnx(tmp_path / "nowhere" / "model.onnx"), InputError
    )
    assert not list(tmp_path.iterdir())
