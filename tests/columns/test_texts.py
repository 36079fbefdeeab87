"""Columns of texts that a pretrained encoder reads."""

import json

import numpy as np
import pandas as pd
import pytest

from ltpll import ColumnEncoder
from ltpll.columns.texts import PretrainedText
from ltpll.text import SentenceEncoder
from support.commands import ltpll_here as ltpll
from support.refusals import refusal
from support.tiny_sentences import WORDS, write_tiny_encoder

pytest.importorskip("transformers")
TEXTS = [" ".join(WORDS[i % 7 : 7 + i % 5]) for i in range(40)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny_encoder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LTPLL_CACHE", str(tmp_path / "cache"))


def table():
    return pd.DataFrame({"size": np.arange(40) % 7, "body": TEXTS})


def encoder_of(source):
    return ColumnEncoder({"body": "text"}, text=PretrainedText(str(source)))


def test_texts_become_the_features_of_the_encoder(tiny):
    found = encoder_of(tiny).fit(table()).transform(table())
    expected = SentenceEncoder.from_pretrained(tiny).encode(TEXTS)
    np.testing.assert_allclose(found[:, 1:], expected, atol=1e-6)


def test_a_stored_encoder_predicts_the_same_and_refuses_another_model(tiny, tmp_path):
    fitted = encoder_of(tiny).fit(table())
    record, arrays = fitted.record()
    again = ColumnEncoder.from_record(json.loads(json.dumps(record)), arrays)
    np.testing.assert_array_equal(again.transform(table()), fitted.transform(table()))
    record["columns"][1]["values"]["fingerprint"] = "another"
    assert "is not the one that the run was trained with" in refusal(
        lambda: ColumnEncoder.from_record(record, arrays)
    )


def test_a_table_with_texts_is_trained_on_and_predicted_with_a_backbone(tiny, tmp_path):
    frame = table().assign(candidates=[["a", "b", "a|b"][row % 3] for row in range(40)])
    frame.to_csv(tmp_path / "table.csv", index=False)
    run = tmp_path / "run"
    how = ("--text", "body", "--epochs", 2, "--folds", 2)
    said = ltpll("train", tmp_path / "table.csv", "--backbone", tiny, "--out", run, *how)
    assert "words and letters" not in said
    ltpll("predict", run, tmp_path / "table.csv", "--out", tmp_path / "predicted.csv")
    assert len(pd.read_csv(tmp_path / "predicted.csv")) == 40
    said = ltpll("train", tmp_path / "table.csv", "--out", tmp_path / "other", *how)
    assert "--backbone minilm" in said


def test_a_backbone_without_pictures_and_texts_is_refused(tmp_path):
    frame = table()[["size"]].assign(candidates=["a", "b"] * 20)
    frame.to_csv(tmp_path / "table.csv", index=False)
    call = ("train", tmp_path / "table.csv", "--backbone", "minilm", "--out", tmp_path / "run")
    assert ltpll(*call, status=2).startswith("A backbone is for pictures or texts: ")
    assert not (tmp_path / "run").exists()
