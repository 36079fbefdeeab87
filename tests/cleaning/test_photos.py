"""Trainings on pictures with a pretrained network: its features, or the network fine-tuned."""

import numpy as np
import pytest
import torch

from ltpll.backbones import Backbone
from ltpll.backbones.backbone import load_backbone
from ltpll.estimator import PartialLabelClassifier
from ltpll.pictures import reading
from support.commands import ltpll_here as ltpll
from support.refusals import refusal
from support.tiny_backbones import make_efficientnets_shallow, write_efficientnet
from support.user_tables import rows_of, write_trees

QUICK = [
    "--epochs",
    "20",
    "--folds",
    "0",
    "--set",
    "training.batch_size=16",
    "--device",
    "cpu",
    "--rebalancer",
    "mean-target",
]


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """Pictures, labels.csv and a backbone."""
    folder = tmp_path_factory.mktemp("trees")
    write_trees(folder)
    with pytest.MonkeyPatch.context() as patch:
        make_efficientnets_shallow(patch)
        write_efficientnet(folder / "small.safetensors")
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("LTPLL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    make_efficientnets_shallow(monkeypatch)


@pytest.fixture(scope="module")
def frozen(trees, tmp_path_factory):
    """A finished run on the features of small.safetensors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LTPLL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        make_efficientnets_shallow(patch)
        out = train(trees, trees / "run", "--backbone", trees / "small.safetensors")
    assert "48 examples (1280 features of small), 3 classes" in out
    return trees / "run"


def train(trees, out, *more, **how):
    return ltpll(
        "train",
        trees / "labels.csv",
        "--images",
        trees / "pictures",
        "--out",
        out,
        *QUICK,
        *more,
        **how,
    )


def test_a_run_on_the_features_of_pictures_labels_new_pictures_without_the_backbone_file(
    trees, frozen, tmp_path
):
    (trees / "small.safetensors").rename(trees / "away.safetensors")
    try:
        ltpll(
            "predict",
            frozen,
            trees / "labels.csv",
            "--images",
            trees / "pictures",
            "--out",
            tmp_path / "p.csv",
            "--device",
            "cpu",
        )
    finally:
        (trees / "away.safetensors").rename(trees / "small.safetensors")
    predicted, given = rows_of(tmp_path / "p.csv"), rows_of(trees / "labels.csv")
    assert (
        np.mean(
            [row["label"] == before["label"] for row, before in zip(predicted, given, strict=True)]
        )
        > 0.9
    )


def test_the_exported_model_takes_the_pixels_of_pictures(frozen, tmp_path):
    printed = ltpll("export", frozen, "--onnx", tmp_path / "model.onnx")
    assert (
        "input x (rows, 3, 32, 32), outputs logits and probabilities of 3 classes; differs"
        in printed
    )


def test_a_damaged_backbone_in_the_run_is_refused(trees, frozen, tmp_path):
    stored = frozen / "backbone.safetensors"
    content = stored.read_bytes()
    stored.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    try:
        message = ltpll(
            "predict",
            frozen,
            trees / "labels.csv",
            "--images",
            trees / "pictures",
            "--out",
            tmp_path / "p.csv",
            status=2,
        )
    finally:
        stored.write_bytes(content)
    assert "its file backbone.safetensors is damaged" in message


@pytest.mark.parametrize("content", [b"", b"no backbone", None])
def test_a_file_that_does_not_hold_a_backbone_is_refused(tmp_path, content):
    path = tmp_path / "b.safetensors"
    if content is not None:
        path.write_bytes(content)
    assert "does not hold a backbone, or is damaged" in refusal(lambda: load_backbone(path))


def test_a_stored_backbone_is_loaded_with_its_weights_and_preprocessing(trees):
    first, again = (load_backbone(trees / "small.safetensors") for _ in range(2))
    assert (
        first.fingerprint()
        == again.fingerprint()
        == Backbone.from_pretrained(trees / "small.safetensors").fingerprint()
    )
    assert (first.preprocessing.side, first.name, first.training) == (32, "small", False)


def test_a_fine_tuned_network_is_kept_by_the_run(trees, tmp_path):
    printed = train(
        trees,
        tmp_path / "run",
        "--backbone",
        trees / "small.safetensors",
        "--set",
        "training.finetune=all",
        "--epochs",
        "2",
    )
    assert "48 examples (32 × 32 × 3 pictures), 3 classes" in printed
    ltpll(
        "predict",
        tmp_path / "run",
        trees / "labels.csv",
        "--images",
        trees / "pictures",
        "--out",
        tmp_path / "p.csv",
        "--device",
        "cpu",
    )
    assert {row["label"] for row in rows_of(tmp_path / "p.csv")} <= {"ash", "birch", "cedar"}
    before = load_backbone(trees / "small.safetensors").state_dict()
    after = PartialLabelClassifier.load(
        tmp_path / "run" / "classifier.safetensors"
    ).model_.encoder.state_dict()
    assert not torch.equal(before["encoder.last.conv.weight"], after["encoder.last.conv.weight"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--backbone", "small.safetensors", "--set", "data.side=32"],
            "The backbone decides the size of the pictures: leave data.side out.",
        ),
        (
            ["--set", "training.finetune=all"],
            "finetune needs a pretrained network",
        ),
        (
            ["--backbone", "small.safetensors", "--set", "training.finetune=some"],
            "training.finetune is 'some': it must be none or all.",
        ),
        (
            [
                "--backbone",
                "small.safetensors",
                "--set",
                "training.finetune=all",
                "--set",
                "training.model=resnet18",
            ],
            "leave model or finetune out.",
        ),
        (["--backbone", "missing.safetensors"], "missing.safetensors"),
        (["--backbone", "labels.csv"], "labels.csv has no config.json: give the folder"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_written(
    trees, tmp_path, options, words
):
    options = [
        trees / option if option.endswith((".csv", ".safetensors")) else option
        for option in options
    ]
    assert words in train(trees, tmp_path / "run", *options, status=2)
    assert not (tmp_path / "run").exists()


def test_a_backbone_needs_pictures(trees, tmp_path):
    message = ltpll(
        "train",
        trees / "labels.csv",
        "--backbone",
        trees / "small.safetensors",
        "--out",
        tmp_path / "run",
        status=2,
    )
    assert message.endswith("give --images DIR or --features FILE, or add columns of features.")


def test_pictures_on_disk_train_the_same_network_as_pictures_in_memory(
    trees, tmp_path, monkeypatch
):
    weights = []
    for name, limit in (("memory", reading.IN_MEMORY), ("disk", 0)):
        monkeypatch.setattr(reading, "IN_MEMORY", limit)
        train(trees, tmp_path / name, "--set", "data.side=8", "--epochs", "2", "--folds", "2")
        classifier = PartialLabelClassifier.load(tmp_path / name / "classifier.safetensors")
        weights.append([tensor.numpy() for tensor in classifier.model_.state_dict().values()])
        rows = ltpll("clean", tmp_path / name, "--out", tmp_path / f"{name}.csv") and rows_of(
            tmp_path / f"{name}.csv"
        )
        weights[-1].append(np.asarray([float(row["confidence"]) for row in rows]))
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)
