"""A committee cleans a table, in memory and by commands."""

import json
import pickle
import shutil

import numpy as np
import pandas as pd
import pytest

from ltpll import Committee, LabelCleaner
from ltpll.training.checkpoint import read_checkpoint
from support.commands import ltpll_here as ltpll
from support.user_tables import feature_rows, write_csv

STEPS = 20


@pytest.fixture(scope="module")
def frame():
    table = pd.DataFrame(feature_rows(60), columns=["id", "candidates", "u", "v"])
    return table.astype({"u": float, "v": float})


@pytest.fixture(scope="module")
def run(tmp_path_factory, frame):
    """The folder of a run, and what its training printed."""
    folder = tmp_path_factory.mktemp("committee")
    table = write_csv(folder / "t.csv", frame.columns, frame.to_numpy().tolist())
    command = ("train", table, "--folds", "2", "--device", "cpu", "--out", folder / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Committee.__init__.__kwdefaults__, "steps", STEPS)
        printed = ltpll(*command)
        assert "finished earlier" in ltpll(*command)
    return folder, printed


def test_a_cleaner_with_a_committee_gives_the_labels_of_the_commands(run, frame, tmp_path):
    folder, printed = run
    x, sets = frame[["u", "v"]].to_numpy(), frame["candidates"]
    cleaner = LabelCleaner(Committee(steps=STEPS, device="cpu"), folds=2).fit(x, sets)
    committee = cleaner.classifier_
    stored = Committee.load(folder / "run" / "classifier.safetensors", "cpu")
    assert committee.weights_ == pytest.approx(stored.weights_, abs=1e-4)
    np.testing.assert_allclose(committee.predict_proba(x), stored.predict_proba(x), atol=1e-3)
    assert " ".join(committee.choice_.split()) in " ".join(printed.split())
    cells = sets.str.split("|")
    kept = ~cleaner.labels_["lacks_label"]
    assert all(
        label in cell
        for label, cell in zip(cleaner.labels_["label"][kept], cells[kept], strict=True)
    )
    ltpll("clean", folder / "run", "--out", tmp_path / "c.csv")
    cleaned = pd.read_csv(tmp_path / "c.csv")
    assert cleaned["label"].tolist() == cleaner.labels_["label"].tolist()
    np.testing.assert_allclose(cleaned["confidence"], cleaner.labels_["confidence"], atol=1e-3)
    again = pickle.loads(pickle.dumps(cleaner))
    np.testing.assert_array_equal(again.predict_proba(x), cleaner.predict_proba(x))


def test_the_run_says_what_was_weighed(run):
    folder, _ = run
    record = json.loads((folder / "run" / "result.json").read_text(encoding="utf-8"))
    stored = Committee.load(folder / "run" / "classifier.safetensors", "cpu")
    assert record["committee"] == pytest.approx(stored.weights_, abs=1e-4)
    assert record["choice"] == stored.choice_


@pytest.fixture
def answered(run, tmp_path):
    """A copy of the run that has an answer from outside the set of its first row."""
    copy = shutil.copytree(run[0] / "run", tmp_path / "run")
    write_csv(copy / "answers.csv", ["id", "answer"], [["row0", "c"]])
    return copy


def again(run, answered, out, *words, table=None, **how):
    command = ("train", table or run[0] / "t.csv", *words, "--folds", "2", "--device", "cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Committee.__init__.__kwdefaults__, "steps", STEPS)
        return ltpll(*command, "--reviewed", answered / "answers.csv", "--out", out, **how)


def held_out(folder, numbers):
    return [read_checkpoint(folder / f"member-{k}.safetensors")[0]["held_out"] for k in numbers]


def test_training_starts_from_the_run_in_whose_folder_the_answers_are(run, answered, tmp_path):
    second = tmp_path / "second"
    printed = again(run, answered, second)
    assert f"Training starts from {answered}, where the answers are." in printed
    key = json.loads((answered / "result.json").read_text())["key"]
    assert json.loads((second / "config.json").read_text())["start"] == key
    ltpll("clean", second, "--out", tmp_path / "c.csv")
    assert pd.read_csv(tmp_path / "c.csv", index_col="id")["label"]["row0"] == "c"
    # Rows are held out of the networks that were not trained on them before.
    for one, other in zip(held_out(answered, (1, 2)), held_out(second, (1, 2)), strict=True):
        np.testing.assert_array_equal(one, other)
    write_csv(second / "answers.csv", ["id", "answer"], [["row1", "b"]])
    printed = again(run, second, tmp_path / "third", "--reviewed", answered / "answers.csv")
    assert f"Training starts from {second}," in printed  # of several, from the last one


@pytest.mark.parametrize("change", ["features", "settings", "version"])
def test_training_starts_anew_where_the_run_does_not_fit(run, answered, tmp_path, frame, change):
    table, words = None, ()
    if change == "features":
        other = frame.assign(u=frame["u"] + 1)
        table = write_csv(tmp_path / "u.csv", other.columns, other.to_numpy().tolist())
    elif change == "settings":
        words = ("--set", "training.seed=1")
    else:
        for path in answered.glob("member-*"):
            path.unlink()
    printed = again(run, answered, tmp_path / "second", *words, table=table)
    assert f"Training starts anew, since {answered}" in " ".join(printed.split())
    assert "start" not in json.loads((tmp_path / "second" / "config.json").read_text())


def test_a_run_whose_networks_are_damaged_is_no_start(run, answered, tmp_path):
    for path in answered.glob("member-*.safetensors"):
        path.write_bytes(path.read_bytes()[:100])
    said = again(run, answered, tmp_path / "second", status=2)
    assert "lost or damaged files of its networks: copy the answers" in said
    assert not (tmp_path / "second").exists()


def test_new_rows_are_predicted_and_the_run_becomes_a_page_and_a_model(run, frame, tmp_path):
    folder, _ = run
    new = write_csv(tmp_path / "new.csv", ["u", "v"], [[0.0, 0.0], [4.0, 0.0]])
    ltpll("predict", folder / "run", new, "--out", tmp_path / "p.csv")
    stored = Committee.load(folder / "run" / "classifier.safetensors", "cpu")
    numbers = stored.predict_proba(np.array([[0.0, 0.0], [4.0, 0.0]])).argmax(1)
    expected = [["a", "b", "c"][k] for k in numbers]
    assert pd.read_csv(tmp_path / "p.csv")["label"].tolist() == expected
    ltpll("report", folder / "run", "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 1000
    pytest.importorskip("onnxruntime")
    printed = " ".join(ltpll("export", folder / "run", "--onnx", tmp_path / "m.onnx").split())
    assert float(printed.partition("differs from torch by ")[2].split()[0]) < 1e-4
    facts = json.loads((tmp_path / "m.onnx.json").read_text(encoding="utf-8"))
    assert facts["input"]["features"] == ["u", "v"]
    assert facts["classes"] == ["a", "b", "c"]
