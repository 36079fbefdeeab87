"""The table of classes and the comparison with true labels, against scikit-learn and loops."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import precision_score, recall_score

from ltpll.cleaning.results import (
    beats_guess,
    class_columns,
    findings,
    summary,
    verdicts,
)
from ltpll.tables.writers import write_table
from support.cleaned_tables import cleaned_table


def known_labels(table):
    rows = [i for i, label in enumerate(table.true) if label is not None]
    return [table.true[i] for i in rows], table.labels.label[rows].tolist()


def test_precision_and_recall_are_those_of_scikit_learn_on_the_rows_with_a_known_label():
    table = cleaned_table()
    true, label = known_labels(table)
    assert 0 < len(true) < len(table.ids)
    columns = class_columns(table)
    options = {"labels": range(6), "average": None, "zero_division": np.nan}
    np.testing.assert_allclose(
        columns["precision"], precision_score(true, label, **options), atol=1e-4
    )
    np.testing.assert_allclose(columns["recall"], recall_score(true, label, **options), atol=1e-4)
    assert np.isnan(columns["precision"][5])  # never chosen
    assert (
        not {"precision", "recall"}
        & class_columns(replace(table, true=np.full(200, None, dtype=object))).keys()
    )


def test_the_table_of_classes_says_what_was_recovered_and_judged(tmp_path):
    table = cleaned_table()
    columns = class_columns(table)
    assert columns["recovered_out_of_fold"] == table.record["judgement"]["recovered"]
    assert columns["judged_examples"].tolist() == [
        sum(c == one for one in table.labels.inside.tolist()) for c in range(6)
    ]
    assert columns["judged"].tolist()[:2] == [False, True]
    unknown = [one[0] for one in table.record["judgement"]["not_judged"]]
    assert columns["judged"].tolist() == [c not in unknown for c in range(6)]
    older = cleaned_table(judgement=False, judged_by="own")
    columns = class_columns(older)
    assert columns["recovered_out_of_fold"] == [None] * 6
    assert columns["judged_examples"].tolist() == [0] * 6
    assert not columns["judged"].any()
    for name in ("classes.csv", "classes.parquet"):
        write_table(tmp_path / name, columns)
    with (tmp_path / "classes.csv").open() as file:
        assert [row["recovered_out_of_fold"] for row in csv.DictReader(file)] == [""] * 6


@pytest.mark.parametrize(
    ("covering", "accuracy", "beats"),
    [(0.8, 0.6, True), (0.31, 0.6, False), (0.8, 0.12, False), (0.8, None, True)],
)
def test_a_model_beats_a_guess_unless_the_verdict_says_otherwise(covering, accuracy, beats):
    table = cleaned_table()
    judgement = json.loads(json.dumps(table.record["judgement"])) | {"covering": covering}
    if accuracy is None:
        del judgement["calibration"]
    else:
        judgement["calibration"]["ambiguous"]["accuracy"] = accuracy
    table = replace(table, record={**table.record, "judgement": judgement})
    assert beats_guess(table) is beats
    says_no = any(
        "do not let the model beat" in sentence or "does not beat" in sentence
        for sentence in verdicts(table)
    )
    assert says_no is not beats


def test_a_run_whose_sets_were_not_judged_neither_beats_a_guess_nor_fails_to():
    assert beats_guess(cleaned_table(judgement=False)) is None


@pytest.mark.parametrize("trained_with", [{}, {"truth_missing": "auto"}], ids=["never", "auto"])
def test_an_estimated_share_and_the_number_of_flags_do_not_contradict_each_other(trained_with):
    table = cleaned_table()
    table = replace(
        table, record={**table.record, "config": {**table.record["config"], **trained_with}}
    )
    advice = (
        ""
        if trained_with
        else ": with --set training.truth_missing=auto, labels can leave their sets"
    )
    assert f"About 15% of the sets seem to lack the true label{advice}." in findings(table)
    none = replace(table, labels=replace(table.labels, judged=np.zeros(len(table.ids), dtype=bool)))
    said = "About 15% of the sets seem to lack the true label, but none certainly enough"
    said += f" to be flagged{advice}."
    assert said in findings(none)
    assert " ".join(summary(none)).count("lack the true label") == 1


@pytest.mark.parametrize("n", [1, 5, 6])
def test_up_to_five_classes_that_are_not_judged_are_all_named(n):
    table = cleaned_table()
    unknown = [[c, 7, 3] for c in range(n)]
    sentences = summary(
        replace(
            table,
            record={
                **table.record,
                "judgement": {**table.record["judgement"], "not_judged": unknown},
            },
        )
    )
    said = next(line for line in sentences if "cannot judge" in line)
    assert sum(f"class {c} (7 examples, 3 recovered out of fold)" in said for c in range(n)) == (
        n if n <= 5 else 1
    )
    assert (f"one of {n} classes" in said) == (n > 1)
