"""Tables for cleanlab: its column names, and probabilities in the order of its classes."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from ltpll.cleaning.results import cleanlab_tables
from ltpll.evaluation import set_predictions
from ltpll.tables.writers import write_table
from support.cleaned_tables import cleaned_table
from support.commands import ltpll_here as ltpll
from support.user_tables import feature_rows, write_csv

QUICK = ("--epochs", "4", "--device", "cpu", "--rebalancer", "none")


def test_columns_are_those_of_datalab():
    table, shares = (
        cleaned_table(),
        np.random.default_rng(0).dirichlet(np.ones(6), 200).astype(np.float32),
    )
    columns, _, _ = cleanlab_tables(table, shares)
    assert columns["given_label"].tolist() == [f"class {c}" for c in table.labels.label]
    assert columns["predicted_label"].tolist() == [f"class {row.argmax()}" for row in shares]
    assert columns["is_label_issue"].tolist() == table.labels.issue.tolist()
    np.testing.assert_allclose(columns["label_score"], table.labels.confidence, atol=1e-4)


@pytest.mark.parametrize(
    "names", ["10 9 -1 2.5 100 7", "10 9 1 2 100 7", "10 9 1 two 100 7", "nan 9 1 2 100 7"]
)
def test_classes_are_sorted_as_pandas_reads_them_from_either_format_and_only_those_that_occur(
    names, tmp_path
):
    table = cleaned_table()
    table = replace(table, record={**table.record, "classes": names.split()})
    shares = np.eye(6, dtype=np.float32)[table.labels.label]
    columns, _, classes = cleanlab_tables(table, shares)
    for path, read in (
        (tmp_path / "t.csv", partial(pd.read_csv, keep_default_na=False)),
        (tmp_path / "t.parquet", pd.read_parquet),
    ):
        write_table(path, columns)
        labels = read(path)["given_label"]
        found = sorted(set(labels.astype(str) if "nan" in names else labels))
        assert found == sorted(set(columns["given_label"].tolist()))
        assert classes.tolist() == found
    assert len(classes) == len(set(table.labels.label.tolist())) == 5


def test_probabilities_of_the_chosen_classes_sum_to_one():
    shares = np.zeros((200, 6), dtype=np.float32)
    shares[0, [0, 1, 5]] = 0.5, 0.25, 0.25
    shares[1:, 5] = 1  # a class that is no row's label
    _, found, classes = cleanlab_tables(cleaned_table(), shares)
    assert classes.tolist() == [f"class {c}" for c in range(5)]
    expected = [[2 / 3, 1 / 3, 0, 0, 0], *[[0.2] * 5] * 199]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_a_run_is_written_for_datalab(tmp_path):
    write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v"], feature_rows(40))
    ltpll("train", tmp_path / "t.csv", "--out", tmp_path / "run", "--folds", "2", *QUICK)
    assert "--for takes cleanlab" in ltpll(
        "clean", tmp_path / "run", "--out", tmp_path / "c.csv", "--for", "excel", status=2
    )
    ltpll("clean", tmp_path / "run", "--out", tmp_path / "c.csv", "--for", "cleanlab")
    written, found = pd.read_csv(tmp_path / "c.csv"), np.load(tmp_path / "c.pred_probs.npy")
    classes = pd.read_csv(tmp_path / "c.pred_probs.csv")["class"].tolist()
    assert found.dtype == np.float32
    assert found.shape == (40, written["given_label"].nunique())
    assert classes == sorted(set(written["given_label"]))
    assert [classes[k] for k in found.argmax(1)] == written["predicted_label"].tolist()
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)
    (tmp_path / "run" / "probabilities.npy").write_bytes(b"damaged")
    assert "probabilities.npy" in ltpll(
        "clean", tmp_path / "run", "--out", tmp_path / "c.csv", "--for", "cleanlab", status=2
    )


def test_a_run_without_out_of_fold_probabilities_is_refused(tmp_path, monkeypatch):
    write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v"], feature_rows(40))
    ltpll("train", tmp_path / "t.csv", "--out", tmp_path / "own", "--folds", "0", *QUICK)
    assert "--folds 5" in ltpll(
        "clean", tmp_path / "own", "--out", tmp_path / "c.csv", "--for", "cleanlab", status=2
    )
    monkeypatch.setattr(set_predictions, "PROBABILITIES_STORED", 10)
    ltpll("train", tmp_path / "t.csv", "--out", tmp_path / "large", "--folds", "2", *QUICK)
    assert "too many (40 rows × 3 classes)" in ltpll(
        "clean", tmp_path / "large", "--out", tmp_path / "c.csv", "--for", "cleanlab", status=2
    )
    assert not (tmp_path / "c.csv").exists()
