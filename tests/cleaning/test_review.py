"""The review queue: its order against a plain loop, its columns, and the loop of answers."""

import json
import shlex
from dataclasses import replace

import numpy as np
import pytest

from ltpll.cleaning.review import review_rows
from support.answers import answered_questions
from support.cleaned_tables import cleaned_table
from support.commands import ltpll_here as ltpll
from support.user_tables import feature_rows, rows_of, write_csv


def test_rows_come_by_their_doubt_whose_sum_is_the_expected_number_of_wrong_labels():
    table = cleaned_table(n=3)
    table.labels.confidence[:] = 0.9, 0.5, 0.6
    assert table.doubts == pytest.approx([0.1, 0.5, 0.4])
    assert review_rows(table).tolist() == [1, 2, 0]


@pytest.mark.parametrize("grouped", [False, True])
def test_the_least_confident_rows_come_first_spread_over_groups(grouped):
    table = cleaned_table()
    if grouped:
        table = replace(table, groups=np.asarray([f"g{i % 40}" for i in range(200)], dtype=object))
    early, late, groups = [], [], set()
    for i in sorted(range(200), key=lambda i: -(1 - np.float64(table.labels.confidence[i]))):
        (late if grouped and i % 40 in groups else early).append(i)
        groups.add(i % 40)
    assert review_rows(table, 50).tolist() == (early + late)[:50]


def test_reviewed_held_out_and_certain_rows_are_not_asked_about():
    table = cleaned_table(n=30)
    table.labels.judged_by[:5] = "held out"
    table.labels.confidence[5:10] = 1
    table = replace(table, reviewed=np.arange(30) >= 20)
    assert sorted(review_rows(table).tolist()) == list(range(10, 20))


def test_the_queue_is_blind_to_true_labels():
    table = cleaned_table()
    assert (
        review_rows(table).tolist() == review_rows(replace(table, true=np.full(200, None))).tolist()
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of two features, and a finished run on it."""
    folder = tmp_path_factory.mktemp("review")
    write_csv(folder / "t.csv", ["id", "candidates", "u", "v"], feature_rows(60))
    ltpll("train", folder / "t.csv", "--out", folder / "run", *QUICK)
    return folder


QUICK = ("--epochs", "6", "--folds", "2", "--device", "cpu", "--rebalancer", "none")


def test_questions_are_answered_and_trained_on(folder, tmp_path):
    answer = {0: "c", 1: "a|b"}
    rows, answered = answered_questions(
        tmp_path / "answers.csv", folder / "run", lambda k, label: answer.get(k, "")
    )
    again = ("train", folder / "t.csv", "--reviewed", answered, *QUICK)
    assert "2 reviewed" in ltpll(*again, "--out", tmp_path / "again")
    ltpll("clean", tmp_path / "again", "--out", tmp_path / "cleaned.csv")
    cleaned = {row["id"]: row for row in rows_of(tmp_path / "cleaned.csv")}
    first, second = (cleaned[rows[k][0]] for k in (0, 1))
    assert (
        first["candidates"],
        first["label"],
        first["confidence"],
        first["suspicion"],
        first["reviewed"],
    ) == ("c", "c", "1", "0", "true")
    assert (second["candidates"], second["suspicion"], second["reviewed"]) == ("a|b", "0", "true")
    assert sum(row["reviewed"] == "true" for row in cleaned.values()) == 2
    page = tmp_path / "next.html"
    assert "--reviewed EARLIER_ANSWERS" in ltpll("review", tmp_path / "again", "--out", page)
    later, _ = answered_questions(tmp_path / "l.csv", tmp_path / "again", lambda k, label: "", 60)
    assert len(later) == 58
    assert not {rows[0][0], rows[1][0]} & {row[0] for row in later}


def test_the_printed_command_repeats_the_training_with_the_options_of_the_run(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    rows = [[name, sets.replace("|", ";"), u, v, "1"] for name, sets, u, v in feature_rows(60)]
    write_csv(tmp_path / "my table.csv", ["bird", "heard", "u", "v", "w"], rows)
    columns = [
        "--candidates",
        "heard",
        "--separator",
        ";",
        "--id",
        "bird",
        "--set",
        "table.features=u",
    ]
    settings = [
        "--set",
        "table.features=v",
        "--method",
        "cc",
        "--set",
        "training.extras=mixup",
        "--set",
        "training.lr=0.02",
        "--set",
        "training.seed=7",
        "--goal",
        "accuracy",
    ]
    ltpll("train", "my table.csv", *columns, *settings, *QUICK, "--out", "run")
    printed = ltpll("review", "run", "--n", "12")
    answer = {0: "c", 1: "a|b", 2: "b;c"}
    rows, _ = answered_questions(
        tmp_path / "answers.csv", "run", lambda k, label: answer.get(k, ""), 12, 6
    )
    assert any(";" in row[1] for row in rows)
    audit, command = map(shlex.split, printed.strip().splitlines()[-2:])
    assert (audit[:2], command[:2]) == (["ltpll", "audit"], ["ltpll", "train"])
    ltpll(*audit[1:])  # stores the answers in the run
    assert "3 reviewed" in ltpll(*command[1:], "--device", "cpu")
    first, second = (
        json.loads((tmp_path / run / "result.json").read_text()) for run in ("run", "NEW_RUN")
    )
    assert {**first["config"], "data": None} == {**second["config"], "data": None}
    assert first["source"] == second["source"]
    ltpll("clean", "NEW_RUN", "--out", "cleaned.csv")
    cleaned = {row["id"]: row["candidates"] for row in rows_of(tmp_path / "cleaned.csv")}
    assert [cleaned[row[0]] for row in rows[:3]] == ["c", "a;b", "b;c"]


def test_what_contradicts_itself_is_refused_and_nothing_is_written(folder, tmp_path):
    wrong = write_csv(tmp_path / "wrong.csv", ["id", "answer"], [["row1", "a"], ["row1", "b"]])
    out = tmp_path / "out"
    assert "was answered before" in ltpll(
        "train", folder / "t.csv", "--reviewed", wrong, "--out", out, status=2
    )
    assert "overwritten" in ltpll("review", folder / "run", "--out", folder / "t.csv", status=2)
    assert not out.exists()
