"""Linear probing and t-SNE of finished runs."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression

from ltpll.errors import InputError
from ltpll.runs.run import Run
from ltpll.runs.schema import Kind
from ltpll_research.benchmark import Experiment, experiment_run, reopen_trainer, train
from ltpll_research.image_sets.prepared import write_image_set
from ltpll_research.probe import (
    balanced_rows,
    fit_probe,
    image_features,
    top_accuracies,
)
from support.commands import research
from support.pictures import coloured_images
from support.refusals import refusal

SETTING = {
    "data": "cifar10",
    "imbalance": 4,
    "ambiguity": 0.2,
    "width": 2,
    "epochs": 3,
    "batch_size": 16,
    "lr": 0.05,
    "method": "proden",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("probe")
    write_image_set(coloured_images(), root / "data")
    run = experiment_run(root / "runs", Experiment.from_mapping(SETTING))
    train(run, coloured_images(), device="cpu")
    return root, run


def clusters(n=60, n_classes=5, n_features=8, spread=1.5):
    generator = torch.Generator().manual_seed(0)
    centres = 2 * torch.randn(n_classes, n_features, generator=generator)
    y = torch.arange(n_classes).repeat_interleave(n)
    return centres[y] + spread * torch.randn(len(y), n_features, generator=generator), y


def test_a_probe_is_about_as_good_as_a_logistic_regression(monkeypatch):
    for name, value in {"BATCH_SIZE": 50, "FIRST_LR": 0.1, "LAST_LR": 1e-3}.items():
        monkeypatch.setattr(f"ltpll_research.probe.{name}", value)
    x, y = clusters()
    ours = top_accuracies(fit_probe(x, y, 5, 0, 300), x, y)["top1"]
    theirs = (
        LogisticRegression(C=1e3, max_iter=2000)
        .fit(x.numpy(), y.numpy())
        .score(x.numpy(), y.numpy())
    )
    assert ours == pytest.approx(theirs, abs=0.03)


def test_a_probe_depends_on_its_seed_alone_and_leaves_torchs_random_state_unchanged():
    x, y = clusters()
    before = torch.get_rng_state()
    one, two = (fit_probe(x, y, 5, 3, 2) for _ in range(2))
    assert torch.equal(one.weight, two.weight)
    assert torch.equal(before, torch.get_rng_state())


def test_top_five_counts_the_true_class_among_the_five_largest():
    head = torch.nn.Linear(7, 7, bias=False)
    head.weight.data.copy_(torch.eye(7))
    x = torch.tensor([[7.0, 6, 5, 4, 3, 2, 1]]).repeat(7, 1)
    assert top_accuracies(head, x, torch.arange(7)) == {
        "top1": pytest.approx(1 / 7),
        "top5": pytest.approx(5 / 7),
    }


def test_rows_are_balanced_and_too_many_are_refused():
    labels = np.asarray([0] * 10 + [1] * 4 + [2] * 6)
    for shots, n in ((3, 3), (None, 4)):
        assert np.bincount(labels[balanced_rows(labels, shots, 0)]).tolist() == [n] * 3
        assert len(set(balanced_rows(labels, shots, 0))) == 3 * n
    assert "class 1 has 4" in refusal(lambda: balanced_rows(labels, 5, 0), InputError)


def test_a_reopened_run_predicts_what_its_record_says(trained):
    _, run = trained
    trainer = reopen_trainer(Run.open(run.folder), coloured_images(), "cpu")
    assert trainer.epoch == 3
    own = coloured_images()
    predicted = trainer.predict(torch.from_numpy(own.x_test).permute(0, 3, 1, 2))
    accuracy = np.mean([np.mean(predicted[own.y_test == c] == c) for c in range(4)])
    assert accuracy == pytest.approx(run.result()["last"]["test"]["balanced_accuracy"], abs=1e-5)
    assert image_features(trainer, own.x_test).shape == (24, 16)


def call(trained, command, *arguments):
    root, run = trained
    options = ["--data-root", str(root / "data"), "--device", "cpu", *arguments]
    return research(command, run.folder, *options)


def test_the_probe_command_writes_the_figures_it_prints(trained):
    result = call(trained, "probe", "--shots", "full 5", "--epochs", "20")
    assert result.returncode == 0, result.stderr
    kept = json.loads((trained[1].folder / "probe.json").read_text())
    assert [(one["shots"], one["examples"]) for one in kept["results"]] == [(None, 96), (5, 20)]
    for one in kept["results"]:
        assert 0 <= one["top1"] <= one["top5"] == 1.0  # there are only four classes
        assert f"{100 * one['top1']:.2f}" in result.stdout


def test_the_tsne_command_draws_a_picture(trained, tmp_path):
    result = call(trained, "tsne", "--out", str(tmp_path / "picture.png"))
    assert result.returncode == 0, result.stderr
    with Image.open(tmp_path / "picture.png") as picture:
        assert len(picture.convert("RGB").getcolors(2**24)) > 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--shots", "few"], "not a number of examples"), (["--shots", "99"], "has 24")],
)
def test_bad_requests_are_one_sentence_and_exit_2(trained, arguments, message):
    result = call(trained, "probe", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_folder_without_config_or_checkpoint_is_refused(tmp_path):
    def opened():
        return Run.open(tmp_path, Kind.BENCHMARK)

    assert "not a run folder" in refusal(opened, InputError)
    for content, reason in (
        ("[]", "not a mapping"),
        ("[" * 100_000, "damaged"),
        ("{}", "a run of another kind"),
        ('{"data": 1}', "a run of another kind"),
    ):
        (tmp_path / "config.json").write_text(content)
        assert reason in refusal(opened, InputError)
    (tmp_path / "config.json").write_text('{"experiment": "own", "data": "cifar10"}')
    assert "it is a run on a table, not a benchmark run" in refusal(opened, InputError)
    (tmp_path / "config.json").write_text('{"experiment": "images", "data": "cifar10"}')
    assert "no checkpoint" in refusal(
        lambda: reopen_trainer(opened(), coloured_images(), "cpu"), InputError
    )


@pytest.fixture(scope="module")
def renamed(trained, tmp_path_factory):
    """The same run under another name in another folder."""
    root, run = trained
    folder = tmp_path_factory.mktemp("moved") / "my best run"
    shutil.copytree(run.folder, folder)
    return root, Run.open(folder)


def test_a_renamed_run_is_probed_and_drawn_where_it_lies(trained, renamed, tmp_path):
    for one in (trained, renamed):
        result = call(one, "probe", "--shots", "5", "--epochs", "20")
        assert result.returncode == 0, result.stderr
    first, second = (
        json.loads((one[1].folder / "probe.json").read_text()) for one in (trained, renamed)
    )
    assert renamed[1].folder.name == "my best run"
    assert first == second
    assert call(renamed, "tsne", "--out", str(tmp_path / "picture.png")).returncode == 0
    assert not (renamed[1].root / trained[1].key).exists()


def test_a_renamed_run_is_compared_as_before(trained, renamed, tmp_path):
    assert renamed[1].result() == trained[1].result()
    pages = []
    for _, run in (trained, renamed):
        assert research("compare", run.folder, "--out", tmp_path / "page.html").returncode == 0
        pages.append((tmp_path / "page.html").read_text())
    assert pages[0] == pages[1]
