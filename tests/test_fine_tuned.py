"""A classifier with a pretrained backbone: it learns, is saved, exported and pickled with it, and
streams pictures from disk."""

import json
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone

from ltpll import PartialLabelClassifier
from ltpll.backbones import Backbone, backbone
from ltpll.errors import InputError
from ltpll.estimator import CHUNK_PIXELS, FINE_TUNING, FROM_SCRATCH
from ltpll.models import FineTune
from ltpll.training.checkpoint import read_checkpoint, write_checkpoint
from ltpll.views import ImageViews
from support.refusals import refusal
from support.tiny_backbones import PREPROCESSING, coloured_pictures, tiny_backbone, tiny_network


def quick(model=None, **options):
    return PartialLabelClassifier(
        "proden",
        "none",
        model=model or FineTune(tiny_backbone()),
        **{"epochs": 2, "device": "cpu", **options},
    )


@pytest.fixture
def saveable(monkeypatch):
    """A backbone that can be described in a record, as those of the library can."""

    def from_record(record):
        assert record["architecture"] == {"kind": "tiny"}
        return Backbone(
            tiny_network(), PREPROCESSING, name=record["name"], architecture=record["architecture"]
        )

    monkeypatch.setattr(backbone.Backbone, "from_record", staticmethod(from_record))
    made = tiny_backbone()
    made.architecture = {"kind": "tiny"}
    return made


def test_a_fine_tuned_backbone_learns_and_the_given_one_stays_as_it_was():
    x, _, candidates = coloured_pictures(100)
    x_test, y_test, _ = coloured_pictures(100, seed=1)
    given = tiny_backbone()
    fitted = quick(FineTune(given), views="crop", epochs=8).fit(x, candidates)
    assert fitted.score(x_test, y_test) > 0.85
    assert fitted.history_[-1]["loss"] < fitted.history_[0]["loss"]
    assert given.fingerprint() == tiny_backbone().fingerprint()


def test_a_bare_backbone_is_fine_tuned_with_the_defaults():
    x, _, candidates = coloured_pictures()
    bare, given = (
        quick(model).fit(x, candidates) for model in (tiny_backbone(), FineTune(tiny_backbone()))
    )
    np.testing.assert_array_equal(bare.predict_proba(x), given.predict_proba(x))


def test_pictures_are_normalised_as_the_backbone_was_trained():
    x, _, candidates = coloured_pictures()
    fitted = quick().fit(x, candidates)
    assert fitted._predictor.views == ImageViews(
        "photo", PREPROCESSING.mean, PREPROCESSING.std, channels_last=True
    )
    pictures = PREPROCESSING.normalise(torch.from_numpy(x).permute(0, 3, 1, 2))
    expected = torch.softmax(fitted.model_.eval()(pictures)[0], 1).detach().numpy()
    np.testing.assert_allclose(fitted.predict_proba(x), expected, atol=1e-5)


def test_what_auto_stands_for_depends_on_the_backbone():
    x, _, candidates = coloured_pictures()
    for classifier, expected in ((quick(), FINE_TUNING), (quick("small-cnn"), FROM_SCRATCH)):
        trainer = classifier.prepare_training(x, candidates).trainer
        assert (trainer.lr, trainer.optimizer.param_groups[0]["weight_decay"]) == (
            expected.lr,
            expected.weight_decay,
        )
    trainer = quick(lr=0.3, weight_decay=0.25).prepare_training(x, candidates).trainer
    assert (trainer.lr, trainer.optimizer.param_groups[0]["weight_decay"]) == (0.3, 0.25)


@pytest.mark.parametrize(
    ("n", "batch_size", "epochs"), [(300, 16, 30), (10_000, 64, 13), (1_000_000, 64, 5)]
)
def test_batches_and_epochs_of_a_backbone_follow_the_number_of_rows(n, batch_size, epochs):
    assert PartialLabelClassifier(model=FineTune(tiny_backbone())).schedule(n) == (
        epochs,
        batch_size,
    )


def test_the_seed_decides_the_head():
    x, _, candidates = coloured_pictures()
    torch.manual_seed(5)
    first = quick().fit(x, candidates).predict_proba(x)
    torch.rand(3)
    np.testing.assert_array_equal(quick().fit(x, candidates).predict_proba(x), first)
    assert np.abs(quick(random_state=1).fit(x, candidates).predict_proba(x) - first).max() > 1e-3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x.astype(np.float32), "8-bit pictures"),
        (lambda x: x.reshape(len(x), -1)[:, :9], "takes colour pictures"),
    ],
)
def test_other_inputs_than_bytes_are_refused(change, words):
    x, _, candidates = coloured_pictures(20)
    assert words in refusal(lambda: quick().fit(change(x), candidates), InputError)


def test_options_of_fine_tuning_are_parameters_of_the_classifier_and_clones_share_the_backbone():
    classifier = quick()
    copy = clone(classifier).set_params(model__lr_factor=0.7)
    assert copy.get_params()["model__lr_factor"] == 0.7
    assert classifier.get_params()["model__lr_factor"] == 0.1
    assert copy.model.backbone is classifier.model.backbone


# ---- saving --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bare", [False, True])
def test_a_saved_classifier_keeps_its_backbone_and_its_options(tmp_path, saveable, bare):
    x, _, candidates = coloured_pictures()
    fitted = quick(saveable if bare else FineTune(saveable, freeze_norm=True, lr_factor=0.2)).fit(
        x, candidates
    )
    fitted.save(tmp_path / "c")
    loaded = PartialLabelClassifier.load(tmp_path / "c", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(x), fitted.predict_proba(x))
    expected = (0.1, "auto") if bare else (0.2, True)
    assert (loaded.model.lr_factor, loaded.model.freeze_norm) == expected
    for ours, theirs in zip(
        loaded.model.backbone.parameters(), fitted.model_.encoder.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)  # so that another fit starts from there
    loaded.fit(x, candidates)


def test_a_file_of_version_0_2_0_names_the_layers_that_were_trained(tmp_path, saveable):
    x, _, candidates = coloured_pictures()
    fitted = quick(FineTune(saveable)).fit(x, candidates)
    fitted.save(tmp_path / "c")
    tensors, values = read_checkpoint(tmp_path / "c")
    values["params"]["model"]["fine_tune"]["layers"] = "last"
    write_checkpoint(tmp_path / "c", tensors, values)
    loaded = PartialLabelClassifier.load(tmp_path / "c", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(x), fitted.predict_proba(x))


def test_a_network_of_ones_own_is_pickled_and_not_saved(tmp_path):
    x, _, candidates = coloured_pictures()
    fitted = quick().fit(x, candidates)
    assert "pickle it" in refusal(lambda: fitted.save(tmp_path / "c"))
    assert not (tmp_path / "c").exists()
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(fitted)).predict_proba(x), fitted.predict_proba(x)
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda values: values["params"]["model"].pop("fine_tune"), "is damaged"),
        (
            lambda values: values["params"]["model"]["fine_tune"].update(freeze_norm="never"),
            "it must be True, False or 'auto'",
        ),
        (lambda values: values["params"]["model"]["fine_tune"].update(extra=1), "is damaged"),
    ],
)
def test_a_saved_backbone_that_was_changed_is_refused(tmp_path, saveable, change, words):
    x, _, candidates = coloured_pictures()
    quick(FineTune(saveable), epochs=1).fit(x, candidates).save(tmp_path / "c")
    tensors, values = read_checkpoint(tmp_path / "c")
    change(values)
    write_checkpoint(tmp_path / "c", tensors, values)
    assert words in refusal(lambda: PartialLabelClassifier.load(tmp_path / "c", device="cpu"))


# ---- exporting -----------------------------------------------------------------------------------


def run_onnx(path, x):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(
        ["logits", "probabilities"], {"x": x.transpose(0, 3, 1, 2).astype(np.float32)}
    )


def test_an_exported_classifier_takes_pixels_and_holds_the_backbone(tmp_path):
    x, _, candidates = coloured_pictures()
    fitted = quick().fit(x, candidates)
    fitted.to_onnx(tmp_path / "m.onnx")
    logits, probabilities = run_onnx(tmp_path / "m.onnx", x)
    np.testing.assert_allclose(logits, fitted.decision_function(x), atol=1e-4)
    np.testing.assert_allclose(probabilities, fitted.predict_proba(x), atol=1e-5)
    described = json.loads((tmp_path / "m.onnx.json").read_text())["input"]
    assert (described["height"], described["fit"], described["resample"]) == (16, "pad", "bilinear")


def test_a_classifier_of_features_is_exported_with_the_backbone_that_gave_them(tmp_path):
    x, _, candidates = coloured_pictures()
    encoder = tiny_backbone()
    with torch.no_grad():
        features = encoder(PREPROCESSING.normalise(torch.from_numpy(x).permute(0, 3, 1, 2))).numpy()
    fitted = PartialLabelClassifier(
        "proden", "records", epochs=3, goal="balanced", device="cpu"
    ).fit(features, candidates)
    fitted.to_onnx(tmp_path / "m.onnx", backbone=encoder)
    logits, probabilities = run_onnx(tmp_path / "m.onnx", x[:7])
    np.testing.assert_allclose(logits, fitted.decision_function(features[:7]), atol=1e-4)
    np.testing.assert_allclose(probabilities, fitted.predict_proba(features[:7]), atol=1e-5)
    described = json.loads((tmp_path / "m.onnx.json").read_text())
    assert described["input"]["shape"] == ["rows", 3, 16, 16]
    assert described["input"]["values"] == "pixels from 0 to 255"
    assert (described["input"]["fit"], described["input"]["resize"]) == ("pad", None)
    np.testing.assert_allclose(
        described["preprocessing"]["mean"], 255 * np.array(PREPROCESSING.mean), rtol=1e-5
    )


def test_a_backbone_that_does_not_go_with_the_classifier_is_not_exported(tmp_path):
    x, _, candidates = coloured_pictures(20)
    features = PartialLabelClassifier("proden", "none", epochs=1, device="cpu").fit(
        x.reshape(20, -1)[:, :5], candidates
    )
    pictures = quick(epochs=1).fit(x, candidates)
    for fitted in (features, pictures):
        assert "whose features" in refusal(
            lambda fitted=fitted: fitted.to_onnx(tmp_path / "m.onnx", backbone=tiny_backbone())
        )
    assert not list(tmp_path.iterdir())


# ---- photographs without a backbone --------------------------------------------------------------


@pytest.mark.parametrize(("side", "policy", "kernel"), [(64, "flip-crop", 3), (65, "photo", 7)])
def test_views_and_stem_follow_the_size_of_the_pictures(side, policy, kernel):
    x, _, candidates = coloured_pictures(8, side=side)
    trainer = (
        PartialLabelClassifier("proden", "none", device="cpu")
        .prepare_training(x, candidates)
        .trainer
    )
    assert trainer.views.policy == policy
    assert trainer.model.encoder.stem.kernel_size == (kernel, kernel)
    assert trainer.chunk == min(4096, CHUNK_PIXELS // side**2)
