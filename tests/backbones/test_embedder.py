import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from ltpll import Backbone, Embedder
from ltpll.backbones import Preprocessing, embedder
from support.refusals import refusal

PREPROCESSING = Preprocessing(16, mean=(0.1, 0.4, 0.6), std=(0.2, 0.3, 0.1))


class Network(nn.Module):
    """Has what a copy must get right: batch norm, dropout, and the order of the channels."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.dropout = (
            nn.Conv2d(3, 8, 3, stride=2),
            nn.BatchNorm2d(8),
            nn.Dropout(0.5),
        )
        self.norm.running_mean += torch.arange(8) / 8

    def forward(self, x):
        return self.dropout(self.norm(self.conv(x)).relu()).mean((2, 3), keepdim=True)


class Unexportable(Network):
    def forward(self, x):
        if float(x.sum()) > 1e9:  # depends on the pictures
            return super().forward(x) + 1
        return super().forward(x)


def backbone_of(network=Network):
    torch.manual_seed(0)
    return Backbone(network(), PREPROCESSING)


def pictures(n, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 16, 16, 3), np.uint8)


def plain_loop(backbone, pictures):
    """One picture at a time, in eager torch."""
    network = backbone.encoder
    was_training, rows = network.training, []
    network.eval()
    for picture in pictures:
        x = torch.tensor(picture).permute(2, 0, 1)[None].float() / 255
        x = (x - torch.tensor(PREPROCESSING.mean).view(3, 1, 1)) / torch.tensor(
            PREPROCESSING.std
        ).view(3, 1, 1)
        with torch.no_grad():
            rows.append(network(x).flatten().numpy())
    network.train(was_training)
    return np.array(rows)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache with the exported `Network`, which takes seconds to make."""
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("cache")
    Embedder(backbone_of(), "cpu", cache=folder)
    assert len(list(folder.iterdir())) == 1
    return folder


@pytest.fixture
def no_export(monkeypatch):
    """An exporter that fails."""

    def fail(*_):
        raise RuntimeError("cannot be exported")

    monkeypatch.setattr(embedder, "exported_model", fail)


@pytest.fixture
def threads(request):
    """The number of threads of torch, which an embedder uses."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 3], indirect=True)
@pytest.mark.parametrize("n", [1, 2, 65])
def test_features_equal_a_plain_loop(cache, no_export, n, threads):
    embed = Embedder(backbone_of(), "cpu", cache=cache)
    assert embed.engine == "onnxruntime"
    features = embed(pictures(n))
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, plain_loop(backbone_of(), pictures(n)), atol=1e-5)


def test_a_network_that_cannot_be_exported_runs_in_torch(no_export):
    embed = Embedder(backbone_of(), "cpu")
    assert embed.engine == "torch"
    np.testing.assert_allclose(
        embed(pictures(20)), plain_loop(backbone_of(), pictures(20)), atol=1e-5
    )


def test_a_network_that_depends_on_the_pictures_runs_in_torch():
    embed = Embedder(backbone_of(Unexportable), "cpu")
    assert embed.engine == "torch"
    np.testing.assert_allclose(
        embed(pictures(3)), plain_loop(backbone_of(Unexportable), pictures(3)), atol=1e-5
    )


def test_without_onnxruntime_it_runs_in_torch(cache, monkeypatch):
    monkeypatch.setattr(embedder, "find_spec", lambda name: None)
    assert Embedder(backbone_of(), "cpu", cache=cache).engine == "torch"


def test_an_exported_network_that_disagrees_with_torch_is_not_used(cache, no_export, tmp_path):
    other = backbone_of()
    with torch.no_grad():
        other.encoder.conv.weight[0] += 1
    exported = next(cache.iterdir()).read_bytes()
    (tmp_path / f"{other.fingerprint()}-{embedder.FORMAT}.onnx").write_bytes(exported)
    embed = Embedder(other, "cpu", cache=tmp_path)
    assert embed.engine == "torch"
    np.testing.assert_allclose(embed(pictures(3)), plain_loop(other, pictures(3)), atol=1e-5)


def test_a_damaged_file_in_the_cache_is_replaced(cache, monkeypatch, tmp_path):
    exported = next(cache.iterdir())
    damaged = tmp_path / exported.name
    damaged.write_bytes(b"damaged")
    monkeypatch.setattr(embedder, "exported_model", lambda *_: exported.read_bytes())
    assert Embedder(backbone_of(), "cpu", cache=tmp_path).engine == "onnxruntime"
    assert damaged.read_bytes() == exported.read_bytes()


def test_a_cache_that_cannot_be_written_is_done_without(cache, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(embedder, "exported_model", lambda *_: next(cache.iterdir()).read_bytes())
    assert Embedder(backbone_of(), "cpu", cache=tmp_path / "file").engine == "onnxruntime"


@pytest.mark.parametrize("training", [True, False])
def test_the_backbone_is_not_changed(no_export, training):
    backbone = backbone_of().train(training)
    before, flags = (
        backbone.fingerprint(),
        [weight.requires_grad for weight in backbone.parameters()],
    )
    Embedder(backbone, "cpu")(pictures(3))
    assert backbone.fingerprint() == before
    assert [module.training for module in backbone.modules()] == [training] * len(
        list(backbone.modules())
    )
    assert [weight.requires_grad for weight in backbone.parameters()] == flags


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_it_works_from_several_threads_at_once(cache, no_export, threads):
    embed = Embedder(backbone_of(), "cpu", cache=cache)
    together = threading.Barrier(4)

    def features(seed):
        together.wait()
        return embed(pictures(40, seed))

    with ThreadPoolExecutor(4) as pool:
        for seed, found in enumerate(pool.map(features, range(4))):
            np.testing.assert_allclose(
                found, plain_loop(backbone_of(), pictures(40, seed)), atol=1e-5
            )


def test_pictures_that_may_not_be_written_to_are_read_without_a_warning(no_export, recwarn):
    x = pictures(4)
    x.flags.writeable = False
    Embedder(backbone_of(), "cpu")(x)
    assert not [warning for warning in recwarn if "writable" in str(warning.message)]


def test_pictures_with_other_strides_are_read(cache, no_export):
    embed, x = Embedder(backbone_of(), "cpu", cache=cache), pictures(4)
    np.testing.assert_array_equal(embed(x[::-1, ::-1]), embed(x[::-1, ::-1].copy()))


def test_no_pictures_have_no_features(no_export):
    assert Embedder(backbone_of(), "cpu")(pictures(0)).shape == (0, 8)


@pytest.mark.parametrize(
    "x",
    [
        pictures(2).astype(np.float32),
        pictures(2)[:, :8],
        pictures(1)[0],
        pictures(2).transpose(0, 3, 1, 2),
    ],
)
def test_other_arrays_are_refused(no_export, x):
    assert "8-bit pictures of shape (n, 16, 16, 3)" in refusal(
        lambda: Embedder(backbone_of(), "cpu")(x)
    )


@pytest.mark.parametrize("wrong", [{"precision": "float16"}, {"device": "tpu"}])
def test_settings_are_checked(wrong):
    refusal(lambda: Embedder(backbone_of(), **wrong))


def test_the_rows_computed_at_a_time_bound_the_memory_of_large_pictures(no_export):
    largest = []
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network.register_forward_pre_hook(lambda _, inputs: largest.append(inputs[0].numel()))
    embed = Embedder(Backbone(network, Preprocessing(448)), "cpu")
    largest.clear()
    embed(np.zeros((9, 448, 448, 3), np.uint8))
    assert max(largest) <= embedder.BATCH_CPU * 3 * 224**2


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-3), ("bfloat16", 3e-2)])
def test_features_on_a_gpu_equal_a_plain_loop(precision, tolerance):
    backbone = backbone_of()
    embed = Embedder(backbone, "cuda", precision)
    assert embed.engine == "torch"
    np.testing.assert_allclose(
        embed(pictures(600)), plain_loop(backbone, pictures(600)), atol=tolerance
    )
    assert next(backbone.parameters()).device.type == "cpu"
