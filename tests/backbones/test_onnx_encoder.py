import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import ltpll
from ltpll import Backbone, Embedder
from ltpll.backbones import Preprocessing
from ltpll.backbones.preprocessing import IMAGENET_MEAN
from support.refusals import refusal

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper, FLOAT, UINT8 = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8

WEIGHT = np.random.default_rng(0).normal(size=(5, 3, 1, 1)).astype(np.float32)


def written(
    path, nodes, shape=("n", 3, "h", "w"), dtype=FLOAT, outputs=("features",), metadata=None
):
    """Write a model with an input `x` and a constant `weight`."""
    results = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    inputs = [helper.make_tensor_value_info("x", dtype, shape)]
    graph = helper.make_graph(
        nodes, "encoder", inputs, results, [onnx.numpy_helper.from_array(WEIGHT, "weight")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, metadata or {})
    path.write_bytes(model.SerializeToString())
    return path


def encoder(
    path, shape=("n", 3, "h", "w"), outputs=("features",), pool="GlobalAveragePool", metadata=None
):
    """Write an encoder of channel averages times `WEIGHT`; other outputs are the averages."""
    nodes = [
        helper.make_node(pool, ["x"], ["pooled"]),
        helper.make_node("Conv", ["pooled", "weight"], [outputs[-1]]),
    ]
    nodes += [helper.make_node("Relu", ["pooled"], [name]) for name in outputs[:-1]]
    return written(path, nodes, shape, outputs=outputs, metadata=metadata)


def expected(pictures):
    return pictures.mean((2, 3)) @ WEIGHT[:, :, 0, 0].T


@pytest.mark.parametrize("batch", ["n", 1])
def test_features_equal_a_product_for_any_number_of_pictures(tmp_path, batch):
    backbone = Backbone.from_pretrained(encoder(tmp_path / "net.onnx", (batch, 3, 16, 16)))
    pictures = np.random.default_rng(0).normal(size=(6, 3, 16, 16)).astype(np.float32)
    np.testing.assert_allclose(
        backbone(torch.from_numpy(pictures)).numpy(), expected(pictures), atol=1e-5
    )
    assert backbone.n_features == 5
    assert not backbone.trainable
    assert backbone.preprocessing == Preprocessing(16)


def test_onnxruntime_reports_nothing_and_leaves_nothing_in_the_home_folder(tmp_path):
    path = encoder(tmp_path / "net.onnx")
    home = tmp_path / "home"
    home.mkdir()
    program = (
        "from ltpll.backbones.onnx_encoder import onnx_session; "
        f"onnx_session(open({str(path)!r}, 'rb').read(), 'x')"
    )
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("ORT_DISABLE_TELEMETRY", "CI", "XDG_CACHE_HOME")
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | {"HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(home.rglob("*onnxruntime*"))


def test_only_one_module_imports_onnxruntime():
    found = [
        path.name
        for path in Path(ltpll.__file__).parent.rglob("*.py")
        if "import onnxruntime" in path.read_text(encoding="utf-8")
    ]
    assert found == ["onnx_encoder.py"]


def test_the_output_called_features_is_used_wherever_it_stands(tmp_path):
    assert (
        Backbone.from_pretrained(
            encoder(tmp_path / "net.onnx", outputs=("other", "embeddings"))
        ).n_features
        == 5
    )
    assert (
        Backbone.from_pretrained(
            encoder(tmp_path / "net.onnx", outputs=("other", "second"))
        ).n_features
        == 3
    )


def test_preprocessing_comes_from_the_file_beside_it_or_else_imagenet(tmp_path):
    path = encoder(tmp_path / "net.onnx")
    assert Backbone.from_pretrained(path).preprocessing == Preprocessing(224)
    values = {"side": 64.0, "std": [1, 1, 1], "fit": "crop"}
    (tmp_path / "net.onnx.json").write_text(json.dumps(values))
    read = Backbone.from_pretrained(path).preprocessing
    assert read == Preprocessing(64, IMAGENET_MEAN, (1, 1, 1), "crop")
    assert isinstance(read.side, int)


def test_a_record_and_a_state_dict_a_copy_and_a_pickle_restore_it(tmp_path):
    backbone = Backbone.from_pretrained(encoder(tmp_path / "net.onnx", ("n", 3, 16, 16)))
    pictures = torch.randn(2, 3, 16, 16)
    features = backbone(pictures)
    restored = Backbone.from_record(json.loads(json.dumps(backbone.record())))
    restored.load_state_dict(backbone.state_dict())
    for other in (restored, copy.deepcopy(backbone), pickle.loads(pickle.dumps(backbone))):
        assert other.fingerprint() == backbone.fingerprint()
        torch.testing.assert_close(other(pictures), features)


def test_a_state_dict_that_is_not_a_model_is_refused_when_it_is_used(tmp_path):
    backbone = Backbone.from_pretrained(encoder(tmp_path / "net.onnx", ("n", 3, 16, 16)))
    backbone.load_state_dict({"encoder.content": torch.zeros(100, dtype=torch.uint8)})
    assert "cannot be run" in refusal(lambda: backbone(torch.zeros(1, 3, 16, 16)))


def with_external_data(path, location):
    encoder(path)
    model = onnx.load(path)
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], location)
    (path.parent.parent / "weights.bin").write_bytes(WEIGHT.tobytes())
    (path.parent / "weights.bin").write_bytes(WEIGHT.tobytes())
    model.graph.initializer[0].ClearField("raw_data")
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_beside_the_file_are_read_and_become_part_of_the_backbone(tmp_path):
    (tmp_path / "model").mkdir()
    path = with_external_data(tmp_path / "model" / "net.onnx", "weights.bin")
    backbone = Backbone.from_pretrained(path)
    path.unlink()
    (path.parent / "weights.bin").unlink()
    restored = Backbone.from_record(backbone.record())
    restored.load_state_dict(backbone.state_dict())
    pictures = np.ones((1, 3, 224, 224), np.float32)
    np.testing.assert_allclose(
        restored(torch.from_numpy(pictures)).numpy(), expected(pictures), atol=1e-5
    )


def test_external_data_elsewhere_are_refused(tmp_path):
    (tmp_path / "model").mkdir()
    path = with_external_data(tmp_path / "model" / "net.onnx", "../weights.bin")
    assert "net.onnx is not an ONNX model that can be read" in refusal(
        lambda: Backbone.from_pretrained(path)
    )
    path = with_external_data(tmp_path / "model" / "net.onnx", str(tmp_path / "weights.bin"))
    assert "net.onnx is not an ONNX model that can be read" in refusal(
        lambda: Backbone.from_pretrained(path)
    )


def test_external_data_in_a_state_dict_are_refused(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    content = with_external_data(tmp_path / "model" / "net.onnx", "weights.bin").read_bytes()
    monkeypatch.chdir(tmp_path / "model")
    backbone = Backbone.from_record(
        {"name": "x", "preprocessing": {}, "architecture": {"kind": "onnx", "n_features": 5}}
    )
    backbone.load_state_dict(
        {"encoder.content": torch.frombuffer(bytearray(content), dtype=torch.uint8)}
    )
    assert "cannot be run" in refusal(lambda: backbone(torch.zeros(1, 3, 16, 16)))


REFUSED = {
    "a rectangle": ({"shape": ("n", 3, 16, 32)}, "side, side)"),
    "several at once": ({"shape": (4, 3, 16, 16)}, "dynamic batch"),
    "maps": ({"pool": "Relu"}, "must return one row of features"),
    "a classifier of this library": ({"outputs": ("logits", "probabilities")}, "is a classifier"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_network_is_refused(tmp_path, case, capfd):
    options, words = REFUSED[case]
    path = encoder(tmp_path / "net.onnx", **options)
    assert words in refusal(lambda: Backbone.from_pretrained(path))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("shape", "dtype", "words"),
    [
        (("n", 3), FLOAT, "must read floats of shape (batch, 3, side, side)"),
        (("n", 4, 16, 16), FLOAT, "must read floats of shape (batch, 3, side, side)"),
        (("n", 16, 16, 3), FLOAT, "must read floats of shape (batch, 3, side, side)"),
        (("n", 3, 16, 16), UINT8, "must read floats of shape (batch, 3, side, side)"),
    ],
)
def test_other_inputs_are_refused(tmp_path, shape, dtype, words):
    path = written(
        tmp_path / "net.onnx",
        [helper.make_node("Cast", ["x"], ["features"], to=FLOAT)],
        shape,
        dtype,
    )
    assert words in refusal(lambda: Backbone.from_pretrained(path))


def test_several_inputs_are_refused(tmp_path):
    path = encoder(tmp_path / "net.onnx")
    model = onnx.load(path)
    model.graph.input.append(helper.make_tensor_value_info("y", FLOAT, ("n",)))
    path.write_bytes(model.SerializeToString())
    assert "must read floats of shape (batch, 3, side, side)" in refusal(
        lambda: Backbone.from_pretrained(path)
    )


@pytest.mark.parametrize("content", [b"", b"not a model", None])
def test_a_file_that_is_not_a_model_is_refused(tmp_path, content):
    path = encoder(tmp_path / "net.onnx")
    path.write_bytes(path.read_bytes()[:-40] if content is None else content)
    assert "net.onnx" in refusal(lambda: Backbone.from_pretrained(path))


def test_a_missing_file_and_a_damaged_description_are_refused(tmp_path):
    assert "No such file" in refusal(lambda: Backbone.from_pretrained(tmp_path / "net.onnx"))
    path = encoder(tmp_path / "net.onnx")
    for text in ("{", "[]", '{"side": 1e9}', '{"side": "large"}', '{"std": [0, 0, 0]}', '{"x": 1}'):
        (tmp_path / "net.onnx.json").write_text(text)
        assert "net.onnx" in refusal(lambda: Backbone.from_pretrained(path))


def test_without_onnx_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "pip install 'ltpll[onnx]'" in refusal(
        lambda: Backbone.from_pretrained(tmp_path / "net.onnx")
    )


def test_an_embedder_normalises_pictures_and_runs_it(tmp_path):
    backbone = Backbone.from_pretrained(encoder(tmp_path / "net.onnx", (1, 3, 16, 16)))
    pictures = np.random.default_rng(0).integers(0, 256, (10, 16, 16, 3), np.uint8)
    embedder = Embedder(backbone)
    assert embedder.engine == "onnxruntime"
    normalised = backbone.preprocessing.normalise(
        torch.from_numpy(pictures).permute(0, 3, 1, 2)
    ).numpy()
    np.testing.assert_allclose(embedder(pictures), expected(normalised), atol=1e-5)
