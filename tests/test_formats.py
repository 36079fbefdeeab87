"""Files of released versions are read (docs/formats.md), others refused in one sentence."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from formats.write import OPTIONS, SMALL_BATCHES
from ltpll import InputError, PartialLabelClassifier, Run
from ltpll.files import other_version
from ltpll.runs.run import FORMAT as RUN_FORMAT
from ltpll.runs.run import read_result
from ltpll.training.checkpoint import FORMAT as CHECKPOINT_FORMAT
from release import newest_section
from support.commands import ltpll_here
from support.documents import ROOT

RELEASED = sorted(
    path
    for path in (ROOT / "tests" / "formats").iterdir()
    if path.is_dir() and path.name[0].isdigit()
)


@pytest.fixture(params=RELEASED, ids=lambda path: path.name)
def files(request, tmp_path):
    """A copy of what a released version has written."""
    return shutil.copytree(request.param, tmp_path / "files")


def test_the_newest_release_has_files_to_be_read_by_later_ones():
    newest = newest_section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    minors = [path.name.rpartition(".")[0] for path in RELEASED]
    assert newest.rpartition(".")[0] in minors


def test_a_saved_classifier_predicts_what_it_did(files):
    answers = json.loads((files / "answers.json").read_text(encoding="utf-8"))
    table = pd.read_csv(files / "table.csv")
    classifier = PartialLabelClassifier.load(files / "classifier.safetensors")
    assert classifier.classes_.tolist() == answers["classes"]
    found = classifier.predict_proba(table[["width", "height"]].to_numpy(dtype=np.float32))
    np.testing.assert_allclose(found, answers["probabilities"], atol=1e-4)


def test_a_run_is_cleaned_used_and_finished_without_training_again(files, monkeypatch):
    monkeypatch.chdir(files)
    assert Run.open(files / "run").result()["config"]["rebalancer"] == "mean-target"
    ltpll_here("clean", "run", "--out", "cleaned.csv")
    ltpll_here("predict", "run", "table.csv", "--out", "predictions.csv")
    assert (
        len(pd.read_csv("cleaned.csv"))
        == len(pd.read_csv("predictions.csv"))
        == len(pd.read_csv("table.csv"))
    )


def contents(folder, *patterns):
    return {path.name: path.read_bytes() for pattern in patterns for path in folder.glob(pattern)}


def test_no_file_of_a_finished_run_changes_when_it_is_used(files, monkeypatch):
    monkeypatch.chdir(files)
    before = contents(files / "run", "*")
    assert {"fold-1.safetensors", "fold-2.safetensors"} <= before.keys()
    assert "This run was finished earlier" in ltpll_here(
        "train", "table.csv", *OPTIONS, "--out", "run"
    )
    ltpll_here("clean", "run", "--out", "cleaned.csv")
    assert contents(files / "run", "*") == before


def test_a_finished_run_is_not_that_of_a_table_with_other_ids(files, monkeypatch):
    monkeypatch.chdir(files)
    table = pd.read_csv("table.csv")
    table["id"] = np.roll(table["id"], 1)
    table.to_csv("table.csv", index=False)
    assert "(different: data)" in ltpll_here(
        "train", "table.csv", *OPTIONS, "--out", "run", status=2
    )


@pytest.mark.parametrize(("name", "epochs", "folds"), [("training", 2, 0), ("folds", 5, 1)])
def test_an_interrupted_run_is_resumed_where_it_was(files, monkeypatch, name, epochs, folds):
    monkeypatch.chdir(files)
    folder = files / f"interrupted-{name}"
    monkeypatch.setattr("ltpll.estimator.MAX_STEP", 1e9)  # as it was
    log, kept = (folder / "metrics.jsonl").read_bytes(), contents(folder, "fold-*")
    assert (log.count(b"\n"), len(kept)) == (epochs, folds)
    for out in (folder.name, "whole"):
        ltpll_here("train", "table.csv", *OPTIONS, *SMALL_BATCHES, "--out", out)
    assert (folder / "metrics.jsonl").read_bytes().startswith(log)  # with the times of then
    assert contents(folder, "fold-*").items() >= kept.items()
    resumed, whole = (Run.open(files / out) for out in (folder.name, "whole"))
    assert [one["loss"] for one in resumed.records()] == pytest.approx(
        [one["loss"] for one in whole.records()], abs=1e-4
    )
    np.testing.assert_allclose(
        *(np.load(run.folder / "probabilities.npy") for run in (resumed, whole)), atol=1e-4
    )


@pytest.mark.parametrize(
    ("run", "file"),
    [("training", "checkpoint"), ("folds", "fold-1"), ("folds", "checkpoint-fold-2")],
)
def test_an_interrupted_run_with_a_file_of_a_newer_version_is_refused_and_stays(
    files, monkeypatch, run, file
):
    monkeypatch.chdir(files)
    folder = files / f"interrupted-{run}"
    as_newer_version(folder / f"{file}.safetensors")
    before = contents(folder, "fold-*", "checkpoint*")
    said = ltpll_here(
        "train", "table.csv", *OPTIONS, *SMALL_BATCHES, "--out", folder.name, status=2
    )
    assert (
        f"{file}.safetensors has the format 'ltpll-checkpoint-99', and this version of "
        f"ltpll reads '{CHECKPOINT_FORMAT}': use the" in said
    )
    assert contents(folder, "fold-*", "checkpoint*") == before


def test_the_formats_on_the_page_are_those_of_the_code():
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    for name in (RUN_FORMAT, CHECKPOINT_FORMAT):
        assert f"`{name}`" in page


@pytest.mark.parametrize(
    ("found", "same_kind"),
    [("ltpll-run-2", True), ("ltpll-run-1", False), ("other-1", False), (None, False), (7, False)],
)
def test_only_another_number_of_the_same_format_is_another_version(found, same_kind):
    sentence = other_version(found, "ltpll-run-1")
    assert (sentence is not None) == same_kind
    assert (
        not same_kind
        or sentence == "has the format 'ltpll-run-2', and this version of ltpll reads 'ltpll-run-1'"
    )


def as_newer_version(path):
    """Give a checkpoint the format of a later version."""
    with safe_open(path, framework="numpy") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    save_file(tensors, path, metadata | {"format": "ltpll-checkpoint-99"})


def test_a_classifier_of_a_newer_version_is_refused_and_stays(files):
    path = files / "classifier.safetensors"
    as_newer_version(path)
    before = path.read_bytes()
    with pytest.raises(
        InputError,
        match=r"has the format 'ltpll-checkpoint-99', and this version of ltpll reads '.+'",
    ):
        PartialLabelClassifier.load(path)
    assert path.read_bytes() == before


def test_a_record_of_a_newer_version_is_refused_and_stays(files, tmp_path):
    text = (files / "run" / "result.json").read_text(encoding="utf-8")
    path = tmp_path / "newer.json"
    path.write_text(re.sub(RUN_FORMAT, "ltpll-run-99", text), encoding="utf-8")
    with pytest.raises(
        InputError,
        match=r"has the format 'ltpll-run-99', and this version of ltpll reads 'ltpll-run-1'",
    ):
        read_result(path)
    assert path.exists()
