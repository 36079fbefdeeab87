"""Networks as ONNX models: exported by torch, run by onnxruntime, and nothing else happens."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import ltpll
from ltpll.backbones.onnx_models import exported_model, onnx_session
from support.refusals import refusal

pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def model():
    return exported_model(NETWORK, torch.zeros(2, 3), ["features"])


torch.manual_seed(0)
NETWORK = nn.Linear(3, 5).eval()


@pytest.mark.parametrize("n", [1, 7])
def test_an_exported_network_gives_its_results_for_any_number_of_rows(model, n):
    x = torch.randn(n, 3)
    found = onnx_session(model, "net", threads=1).run(None, {"x": x.numpy()})[0]
    np.testing.assert_allclose(found, NETWORK(x).detach().numpy(), atol=1e-6)


def test_onnxruntime_reports_nothing_and_leaves_nothing_in_the_home_folder(model, tmp_path):
    (tmp_path / "net.onnx").write_bytes(model)
    home = tmp_path / "home"
    home.mkdir()
    program = (
        "from ltpll.backbones.onnx_models import onnx_session; "
        f"onnx_session(open({str(tmp_path / 'net.onnx')!r}, 'rb').read(), 'x')"
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
    assert found == ["onnx_models.py"]


@pytest.mark.parametrize("content", [b"", b"not a model", None])
def test_what_is_not_a_model_is_refused(model, content, capfd):
    content = model[: len(model) // 2] if content is None else content
    assert "The network net cannot be run" in refusal(lambda: onnx_session(content, "net"))
    assert capfd.readouterr() == ("", "")


def test_without_onnxruntime_the_message_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install 'ltpll[onnx]'" in refusal(lambda: onnx_session(model, "net"))
