import json
import pickle
import shutil
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from ltpll import Backbone
from ltpll.backbones import hub
from support.refusals import refusal

transformers = pytest.importorskip("transformers")

SQUARE = {"height": 32, "width": 32}
TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 32,
    "patch_size": 8,
}
TEXT = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 50000,
}
CONVOLUTIONS = {"hidden_sizes": [8, 16], "depths": [1, 1]}


def models():
    """For each kind of model, its config and image processor."""
    return {
        "vit": (transformers.ViTConfig(**TINY), transformers.ViTImageProcessorPil(size=SQUARE)),
        "dinov2": (
            transformers.Dinov2Config(**TINY),
            transformers.BitImageProcessorPil(size={"shortest_edge": 40}, crop_size=SQUARE),
        ),
        "mae": (transformers.ViTMAEConfig(**TINY), transformers.ViTImageProcessorPil(size=SQUARE)),
        "resnet": (
            transformers.ResNetConfig(embedding_size=8, layer_type="basic", **CONVOLUTIONS),
            transformers.ConvNextImageProcessorPil(size={"shortest_edge": 32}, crop_pct=0.8),
        ),
        "convnext": (
            transformers.ConvNextConfig(hidden_sizes=[8, 8, 8, 16], depths=[1] * 4),
            transformers.ConvNextImageProcessorPil(size={"shortest_edge": 384}),
        ),
        "mobilevit": (
            transformers.MobileViTConfig(
                hidden_sizes=[16] * 3,
                neck_hidden_sizes=[8] * 6 + [16],
                num_attention_heads=2,
                image_size=32,
            ),
            transformers.MobileViTImageProcessorPil(size={"shortest_edge": 36}, crop_size=SQUARE),
        ),
        "clip": (
            transformers.CLIPConfig(vision_config=TINY, text_config=TEXT, projection_dim=8),
            transformers.CLIPImageProcessorPil(
                size={"shortest_edge": 32}, crop_size=SQUARE, rescale_factor=1 / 127.5
            ),
        ),
    }


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Random models as `save_pretrained` writes them."""
    top = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    for name, (config, processor) in models().items():
        model = transformers.AutoModel.from_config(config)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.1 * torch.randn_like(weight))  # they start with zeros in places
        model.save_pretrained(top / name)
        processor.save_pretrained(top / name)
    return top


@pytest.fixture
def vit(folders, tmp_path):
    """A folder that a test may damage."""
    return Path(shutil.copytree(folders / "vit", tmp_path / "vit"))


@pytest.fixture(scope="module")
def photo():
    """Smooth blobs of colour with some noise, wider than high."""
    noise = np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)
    smooth = np.asarray(
        Image.fromarray(noise).resize((450, 300), Image.Resampling.BICUBIC), np.int64
    )
    return np.clip(smooth + np.random.default_rng(1).integers(-9, 10, smooth.shape), 0, 255).astype(
        np.uint8
    )


def fitted(photo, preprocessing):
    """The geometry, naively."""
    image, side = Image.fromarray(photo), preprocessing.side
    resample = Image.Resampling[preprocessing.resample.upper()]
    if preprocessing.fit == "stretch":
        return image.resize((side, side), resample)
    shorter = preprocessing.resize or side
    image = image.resize([int(shorter * edge / min(image.size)) for edge in image.size], resample)
    left, top = ((edge - side) // 2 for edge in image.size)
    return image.crop((left, top, left + side, top + side))


def expected_features(folder, pixels):
    """What the model itself makes of the pictures of its own processor."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        if folder.name == "clip":
            return model.vision_model(pixel_values=pixels).pooler_output
        if folder.name == "mae":
            model.config.mask_ratio = 0.0
            return model(pixel_values=pixels).last_hidden_state.mean(1)
        return model(pixel_values=pixels).pooler_output.flatten(1)


@pytest.mark.parametrize(
    "name", ["vit", "dinov2", "mae", "resnet", "convnext", "mobilevit", "clip"]
)
def test_pictures_and_features_equal_those_of_the_models_own_processor_and_network(
    folders, photo, name
):
    pixels = models()[name][1](Image.fromarray(photo), return_tensors="pt")["pixel_values"]
    backbone = Backbone.from_pretrained(folders / name)
    ours = torch.from_numpy(np.array(fitted(photo, backbone.preprocessing))).permute(2, 0, 1)[None]
    normalised = backbone.preprocessing.normalise(ours)
    seen_by_model = normalised.flip(1) if name == "mobilevit" else normalised
    np.testing.assert_allclose(seen_by_model.numpy(), pixels.numpy(), atol=1e-4)
    with torch.no_grad():
        features = backbone(normalised)
    assert features.shape == (1, backbone.n_features)
    torch.testing.assert_close(
        features, expected_features(folders / name, pixels), atol=1e-3, rtol=1e-3
    )


@pytest.mark.parametrize("name", ["vit", "resnet", "clip"])
def test_a_record_in_json_and_a_state_dict_restore_it(folders, name):
    backbone = Backbone.from_pretrained(folders / name)
    assert not any("text" in weight for weight in backbone.state_dict())
    restored = Backbone.from_record(json.loads(json.dumps(backbone.record())))
    restored.load_state_dict(backbone.state_dict())
    assert restored.fingerprint() == backbone.fingerprint()
    pictures = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(restored.eval()(pictures), backbone(pictures))


def test_a_classifier_without_a_pooler_gives_its_first_token(folders, tmp_path):
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**TINY)).eval()
    folder = tmp_path / "classifier"
    model.save_pretrained(folder)
    models()["vit"][1].save_pretrained(folder)
    backbone, pictures = Backbone.from_pretrained(folder), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(model.classifier(backbone(pictures)), model(pictures).logits)
    restored = Backbone.from_record(backbone.record())
    restored.load_state_dict(backbone.state_dict())
    assert restored.fingerprint() == backbone.fingerprint()


def test_weights_in_several_files_are_read(vit):
    before, weights = Backbone.from_pretrained(vit), load_file(vit / "model.safetensors")
    parts = {"model-1.safetensors": list(weights)[:9], "model-2.safetensors": list(weights)[9:]}
    for file, names in parts.items():
        save_file({name: weights[name] for name in names}, vit / file, {"format": "pt"})
    (vit / "model.safetensors").unlink()
    index = {
        "metadata": {},
        "weight_map": {name: file for file, names in parts.items() for name in names},
    }
    (vit / "model.safetensors.index.json").write_text(json.dumps(index))
    assert Backbone.from_pretrained(vit).fingerprint() == before.fingerprint()
    (vit / "model-2.safetensors").unlink()
    assert "model-2.safetensors" in refusal(lambda: Backbone.from_pretrained(vit))


def test_loading_prints_nothing(folders, capfd):
    Backbone.from_pretrained(folders / "clip")
    assert capfd.readouterr() == ("", "")


def test_loading_restores_the_log_level(folders):
    before = transformers.logging.get_verbosity()
    Backbone.from_pretrained(folders / "vit")
    assert transformers.logging.get_verbosity() == before


# ---- refusals ------------------------------------------------------------------------------------


def rewritten(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


class Evil:
    def __reduce__(self):
        return print, ("unpickled",)


def without_config(folder):
    (folder / "config.json").unlink()


def without_weights(folder):
    (folder / "model.safetensors").unlink()


def with_a_pickle(folder):
    without_weights(folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))


def with_damaged_weights(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def with_a_layer_too_few(folder):
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: weight for name, weight in weights.items() if ".1." not in name},
        folder / "model.safetensors",
        {"format": "pt"},
    )


def with_index_that_leads_out(folder):
    (folder.parent / "other.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    without_weights(folder)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"x": "../other.safetensors"}})
    )


def changing(file, **changes):
    return lambda folder: rewritten(folder / file, **changes)


FITS = "do not fit its config.json"
BUILDS = "cannot build the model_type"
CONFIG, PROCESSOR = "config.json", "preprocessor_config.json"
DAMAGES = {
    "without a config": (without_config, "no config.json"),
    "without weights": (without_weights, "no model*.safetensors"),
    "with a pickle": (with_a_pickle, "no model*.safetensors"),
    "with damaged weights": (with_damaged_weights, "incomplete metadata"),
    "with a layer too few": (with_a_layer_too_few, FITS),
    "with another width": (changing(CONFIG, hidden_size=8), FITS),
    "with weights elsewhere": (with_index_that_leads_out, "no model*.safetensors"),
    "of another kind": (changing(CONFIG, model_type="resnet"), FITS),
    "of an unknown kind": (changing(CONFIG, model_type="none"), f"{BUILDS} 'none'"),
    "of no kind": (changing(CONFIG, model_type=None), f"{BUILDS} None"),
    "with remote code": (
        changing(CONFIG, model_type="own", auto_map={"AutoModel": "code.Model"}),
        f"{BUILDS} 'own'",
    ),
    "for text": (changing(CONFIG, model_type="bert"), FITS),
    "with endless layers": (changing(CONFIG, num_hidden_layers=10**8), "too large"),
    "with heads that do not divide": (changing(CONFIG, num_attention_heads=3), "cannot be used"),
    "with no list": (lambda folder: (folder / CONFIG).write_text("[]"), BUILDS),
    "with a config that is not JSON": (
        lambda folder: (folder / CONFIG).write_text("{"),
        "Expecting property name",
    ),
    "without a processor": (
        lambda folder: (folder / PROCESSOR).unlink(),
        "no *processor_config.json",
    ),
    "with another size": (changing(PROCESSOR, size={"height": 48, "width": 48}), "48*48"),
    "with huge pictures": (
        changing(PROCESSOR, size={"height": 10**6, "width": 10**6}),
        "more than 4096",
    ),
    "with pictures that are not square": (
        changing(PROCESSOR, size={"height": 32, "width": 64}),
        "does not scale",
    ),
    "with no scaling": (changing(PROCESSOR, do_resize=False), "does not scale"),
    "with no deviation": (changing(PROCESSOR, image_std=[0, 0, 0]), "cannot be used"),
    "with text for a size": (changing(PROCESSOR, size="x"), "cannot be used"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_folder_is_refused(vit, damage, capfd):
    change, words = DAMAGES[damage]
    change(vit)
    assert words in refusal(lambda: Backbone.from_pretrained(vit))
    assert capfd.readouterr() == ("", "")


def test_a_single_file_is_refused(tmp_path):
    (tmp_path / "weights.pth").touch()
    assert "give the folder" in refusal(lambda: Backbone.from_pretrained(tmp_path / "weights.pth"))


@pytest.mark.parametrize("missing", ["transformers", "huggingface_hub"])
def test_without_the_package_the_message_says_what_to_install(folders, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    source = folders / "vit" if missing == "transformers" else "facebook/dinov2-small"
    assert "pip install 'ltpll[transformers]'" in refusal(lambda: Backbone.from_pretrained(source))


@pytest.mark.parametrize(
    "change",
    [
        {"config": None},
        {"config": {}},
        {"config": {"model_type": "bert"}},
        {"config": {"model_type": ["vit"]}},
        {"config": {"model_type": "vit", "hidden_size": 10**8, "num_attention_heads": 1}},
        {"config": {"model_type": "vit", "image_size": 10**7, "patch_size": 1}},
        {"config": {"model_type": "vit", "num_hidden_layers": 10**7}},
        {"config": {"model_type": "vit", "hidden_size": -1}},
        {"config": {"model_type": "vit", "hidden_size": "x"}},
        {"config": {"model_type": "vit", "patch_size": 0}},
        {"config": {"model_type": "vit", "hidden_act": "no such function"}},
        {"config": {"model_type": "vit", "hidden_size": 10**400}},
        {"pooling": "all"},
        {"pooling": ["first"]},
        {"reverse": "no"},
    ],
)
def test_a_damaged_record_is_refused(change):
    architecture = {
        "kind": "transformers",
        "config": {"model_type": "vit", **TINY},
        "pooling": "pooler",
        "reverse": False,
    }
    record = {"name": "x", "preprocessing": {"side": 32}, "architecture": architecture}
    assert Backbone.from_record(record).n_features == 16
    refusal(lambda: Backbone.from_record(record | {"architecture": architecture | change}))


# ---- the hub -------------------------------------------------------------------------------------


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """An empty cache, and a hub that accepts connections but never answers."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(
        "huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True
    )  # its own timeout is three seconds
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(
            "huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}"
        )
        yield tmp_path


def test_a_hub_that_does_not_answer_is_given_up_and_the_message_says_what_to_download(
    hub_cache, monkeypatch, capfd
):
    assert hub.CONNECT_SECONDS <= 5
    monkeypatch.setattr(hub, "CONNECT_SECONDS", 0.2)
    began = time.monotonic()
    message = refusal(lambda: Backbone.from_pretrained("owner/model"))
    assert time.monotonic() - began < 2
    assert "timed out" in message
    assert "hf download owner/model --local-dir DIR" in message
    assert capfd.readouterr() == ("", "")


def test_a_model_in_the_cache_is_loaded_without_a_connection(folders, hub_cache):
    snapshot = hub_cache / "models--owner--model" / "snapshots" / ("a" * 40)
    shutil.copytree(folders / "dinov2", snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("a" * 40)
    backbone = Backbone.from_pretrained("owner/model")
    assert backbone.name == "owner/model"
    assert backbone.fingerprint() == Backbone.from_pretrained(folders / "dinov2").fingerprint()


def test_offline_nothing_is_tried(hub_cache, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    began = time.monotonic()
    assert "hf download owner/model" in refusal(lambda: Backbone.from_pretrained("owner/model"))
    assert time.monotonic() - began < 2


def test_a_path_that_does_not_exist_is_refused_at_once(tmp_path):
    assert "There is no folder" in refusal(
        lambda: Backbone.from_pretrained(tmp_path / "no" / "such" / "folder")
    )
