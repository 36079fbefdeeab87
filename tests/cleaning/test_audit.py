"""Audits of tables: what answers say, what they change, and how runs keep them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ltpll.cleaning.audit import (
    Answers,
    answers_of_page,
    calibrated,
    read_answers_about,
    shares_of_answers,
    store_answers,
    stored_answers,
    with_answers_applied,
)
from ltpll.cleaning.results import said_of_answers, suspicion_ranks
from ltpll.cleaning.review import AUDIT, DOUBTFUL, SUSPICIOUS, audit_rows, choose_questions
from ltpll.cleaning.stored_tables import read_cleaned
from ltpll.errors import InputError
from ltpll.evaluation.audit import is_rare
from support.answers import answered_questions
from support.cleaned_tables import cleaned_table
from support.commands import ltpll_here as ltpll
from support.user_tables import feature_rows, rows_of, write_csv

HOSTILE = ["=1+1", "a|b", 'q"uote', "<b>c</b>", "none", "é\u202e"]
NONE = Answers(np.zeros(0, dtype=np.int64), [], np.zeros(0, dtype=object), np.zeros(0))


def answered(table, questions, truth):
    sets = [(int(truth[i]),) for i in questions.rows]
    return Answers(questions.rows, sets, questions.asked, questions.probability)


def known_table(n=400, seed=0):
    """A table whose true labels are all known; a tenth of the sets lacks them."""
    table = cleaned_table(n, known=1.1, seed=seed)
    return table, table.true.astype(int)


@pytest.mark.parametrize(("n", "sample"), [(60, 30), (100, 20), (30, 30), (40, 0), (999, 50)])
def test_questions_hold_the_random_sample_and_others_and_any_beginning_has_all_kinds(n, sample):
    table, _ = known_table()
    order = audit_rows(table.ids, table.labels, None)
    found = choose_questions(table, n, sample)
    kinds = {kind: found.rows[found.asked == kind] for kind in (AUDIT, SUSPICIOUS, DOUBTFUL)}
    assert len(found.rows) == len({*found.rows.tolist()}) == min(n, 400)
    assert len(kinds[AUDIT]) >= sample
    if n < 999:
        assert {*kinds[AUDIT].tolist()} == {*order[:sample].tolist()}
        assert np.array_equal(kinds[AUDIT], order[:sample])  # in its order: so is any beginning
        first = found.asked[: len(found.asked) // 2]
        for kind, rows in kinds.items():
            assert abs((first == kind).sum() - len(rows) / 2) <= 1
    assert ((found.probability > 0) & (found.probability <= 1)).all()
    assert (found.probability[found.asked == DOUBTFUL] == 1).all()


def test_held_out_and_reviewed_rows_are_not_asked_about():
    table, _ = known_table()
    table.labels.judged_by[:100] = "held out"
    table = replace(table, reviewed=np.arange(400) < 200)
    assert choose_questions(table, 400, 50).rows.min() == 200


def test_an_answer_with_several_classes_counts_by_its_share_and_one_without_any_as_missing():
    table, _ = known_table()
    i = int(np.flatnonzero(table.sizes == 2)[0])
    own = table.candidates[table.offsets[i] : table.offsets[i + 1]].tolist()
    label = int(table.labels.label[i])
    other = next(c for c in range(6) if c not in own)
    sets = [(label,), (label, other), (other,), (), tuple(own)]
    rows = np.full(len(sets), i)
    answers = Answers(rows, sets, np.full(5, AUDIT, dtype=object), np.ones(5))
    right, lacks = shares_of_answers(table, answers)
    assert right.tolist() == [1, 0.5, 0, 0, 0.5]
    assert lacks.tolist() == [0, 0.5, 1, 1, 0]


def test_the_estimate_weighs_rare_classes_by_their_rows():
    table, truth = known_table()
    table.labels.label[np.flatnonzero(table.labels.label == 3)[6:]] = 0
    questions = choose_questions(table, 80, 40)
    found = with_answers_applied(table, answered(table, questions, truth)).audit
    sample, right = questions.rows[questions.asked == AUDIT], table.labels.label == truth
    rare = is_rare(table.labels.label)
    expected = sum(
        part.mean() * right[sample[part[sample]]].mean() for part in (rare, ~rare) if part.any()
    )
    assert found.right.share == pytest.approx(expected)
    assert found.rare.answers == rare[sample].sum()
    assert found.answers == 80
    assert found.right.lower <= right.mean() <= found.right.upper
    for c, one in found.by_class.items():
        assert one.share == pytest.approx(right[sample[table.labels.label[sample] == c]].mean())


def test_confidences_and_suspicions_move_towards_the_truth():
    table, truth = known_table(800, seed=2)
    right, rows = table.labels.label == truth, np.arange(800)
    found = calibrated(table, answered(table, choose_questions(table, 120, 60), truth))
    held = table.in_set[rows]
    lacks = np.asarray([t not in table.candidates[a:b] for t, a, b in _sets(table, truth)])
    for before, after, what in (
        (table.labels.confidence, found.confidence, right),
        (table.labels.suspicion, found.suspicion, lacks),
    ):
        assert abs(after.mean() - what.mean()) < abs(before.mean() - what.mean())
    assert held.all()
    assert (found.confidence + found.suspicion <= 1 + 1e-6).all()


def _sets(table, truth):
    return zip(truth, table.offsets[:-1], table.offsets[1:], strict=True)


def test_answered_rows_have_the_answer_and_are_doubted_no_more():
    table, truth = known_table()
    questions = choose_questions(table, 60, 30)
    found = with_answers_applied(table, answered(table, questions, truth))
    assert (found.labels.label[questions.rows] == truth[questions.rows]).all()
    assert (found.labels.confidence[questions.rows] == 1).all()
    assert (found.labels.suspicion[questions.rows] == 0).all()
    assert np.flatnonzero(found.reviewed).tolist() == sorted(questions.rows.tolist())
    others = ~found.reviewed
    assert (found.labels.label[others] == table.labels.label[others]).all()
    assert np.array_equal(np.sort(suspicion_ranks(found)), np.arange(1, 401))
    assert suspicion_ranks(found)[questions.rows].min() > others.sum()
    assert len(said_of_answers(found)) >= 3
    assert said_of_answers(table) == []


def test_answers_that_training_has_seen_say_nothing_about_it():
    table, truth = known_table()
    answers = answered(table, choose_questions(table, 60, 30), truth)
    seen = replace(table, reviewed=np.isin(np.arange(400), answers.rows))
    assert with_answers_applied(seen, answers).audit is None


def test_answers_are_stored_and_read_again_whatever_the_classes_are_called(tmp_path):
    table, _ = known_table()
    table = replace(table, record={**table.record, "classes": HOSTILE})
    sets = [(c,) for c in range(6)] + [(0, 1), (), (1, 2, 5)]
    asked = np.asarray([AUDIT, SUSPICIOUS, DOUBTFUL] * 3, dtype=object)
    given = Answers(np.arange(9), sets, asked, np.linspace(0.1, 1, 9).round(6))
    store_answers(tmp_path, table, given)
    found = stored_answers(tmp_path, table)
    left = [0, 1, 2, 3, 4, 5, 6, 8]  # a class is called none, so no answer says that none fits
    assert found.sets == [sets[k] for k in left]
    assert found.rows.tolist() == left
    assert found.asked.tolist() == asked[left].tolist()
    assert found.probability == pytest.approx(given.probability[left])
    assert len(stored_answers(tmp_path / "nothing", table).rows) == 0


def test_what_a_page_sends_is_checked_and_answers_of_earlier_pages_are_kept():
    table, _truth = known_table()
    first, second = (choose_questions(table, n, n // 2) for n in (20, 60))
    gone = np.setdiff1d(np.arange(400), second.rows)[:3]
    earlier = Answers(gone, [(0,)] * 3, np.full(3, AUDIT, dtype=object), np.ones(3))
    found = answers_of_page(table, second, earlier, [[0, [1]], [3, []], [5, None], [7, [2, 0]]])
    assert found.rows.tolist() == [*gone.tolist(), *second.rows[[0, 3, 7]].tolist()]
    assert found.sets == [(0,), (0,), (0,), (1,), (), (2, 0)]
    assert {*first.rows[first.asked == AUDIT]} <= {*second.rows[second.asked == AUDIT]}
    for bad in ([[60, [0]]], [[-1, [0]]], [[0, [6]]], [[0, ["0"]]], [[True, [0]]], [[0.0, []]]):
        with pytest.raises(ValueError, match="not one of this page"):
            answers_of_page(table, second, NONE, bad)
    for bad in ([1], {"a": 1}, 5, [[0, 1]], None):
        with pytest.raises((ValueError, TypeError)):
            answers_of_page(table, second, NONE, bad)


# ---- commands ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of two features, and a finished run on it."""
    folder = tmp_path_factory.mktemp("audit")
    write_csv(folder / "t.csv", ["id", "candidates", "u", "v"], feature_rows(60))
    ltpll("train", folder / "t.csv", "--out", folder / "run", *QUICK)
    return folder


QUICK = ("--epochs", "6", "--folds", "2", "--device", "cpu", "--rebalancer", "none")


def test_a_run_is_reviewed_audited_trained_again_and_keeps_its_answers(folder, tmp_path):
    run = folder / "run"
    assert "no answers" in ltpll("audit", run, status=2)
    special = {3: "?", 4: "none"}
    given, answers = answered_questions(
        tmp_path / "answers.csv", run, lambda k, label: special.get(k, label), 30, 20
    )
    assert [row[3] for row in given].count("audit") == 20
    said = ltpll("audit", run, answers)
    assert "29 answers." in said
    assert "labels are right in " in said
    stored = rows_of(run / "answers.csv")
    assert len(stored) == 29
    assert "labels are right in " in ltpll("clean", run, "--out", tmp_path / "cleaned.csv")
    cleaned = {row["id"]: row for row in rows_of(tmp_path / "cleaned.csv")}
    assert sum(row["reviewed"] == "true" for row in cleaned.values()) == 29
    again = ("train", folder / "t.csv", "--reviewed", run / "answers.csv", *QUICK)
    assert "28 reviewed" in ltpll(*again, "--out", tmp_path / "again")
    assert read_cleaned(tmp_path / "again").reviewed.sum() == 28
    ltpll("train", folder / "t.csv", "--out", run, *QUICK, "--fresh")
    assert rows_of(run / "answers.csv") == stored
    (run / "answers.csv").unlink()


def test_the_most_suspicious_sets_are_marked_without_answers(folder, tmp_path):
    ltpll("clean", folder / "run", "--out", tmp_path / "c.csv", "--for-review", "7")
    marked = [row["for_review"] for row in rows_of(tmp_path / "c.csv")]
    assert marked.count("true") == 7
    ranks = suspicion_ranks(read_cleaned(folder / "run"))
    assert [one == "true" for one in marked] == (ranks <= 7).tolist()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["e999", "a", "audit", "1"]], "not in the table"),
        ([["e1", "horse", "audit", "1"]], "horse"),
        ([["e1", "a", "audit", "2"]], "between 0 and 1"),
        ([["e1", "a", "audit", "soon"]], "between 0 and 1"),
    ],
)
def test_files_that_are_no_answers_are_refused(folder, tmp_path, rows, message):
    ids = read_cleaned(folder / "run").ids
    rows = [[str(ids[0]) if one[0] == "e1" else one[0], *one[1:]] for one in rows]
    path = write_csv(tmp_path / "a.csv", ["id", "answer", "asked", "probability"], rows)
    assert message in ltpll("audit", folder / "run", path, status=2)
    with pytest.raises(InputError):
        read_answers_about(read_cleaned(folder / "run"), [path])
    assert not (folder / "run" / "answers.csv").exists()


def test_json_lists_are_what_several_classes_are_written_as(tmp_path):
    table, _ = known_table()
    store_answers(tmp_path, table, Answers(np.arange(1), [(0, 2)], np.array(["audit"]), np.ones(1)))
    assert json.loads(rows_of(tmp_path / "answers.csv")[0]["answer"]) == ["class 0", "class 2"]


def test_several_classes_keep_the_label_that_is_among_them_and_none_leaves_no_confidence():
    table, _ = known_table()
    label = table.labels.label[:4].tolist()
    other = [(one + 1) % 6 for one in label]
    sets = [(label[0], other[0]), (other[1], (other[1] + 1) % 6), (), (other[3],)]
    sets = [tuple(sorted(one)) for one in sets]
    answers = Answers(np.arange(4), sets, np.full(4, AUDIT, dtype=object), np.ones(4))
    found = with_answers_applied(table, answers).labels
    assert found.label[0] == label[0]
    assert found.label[1] in sets[1]
    assert found.label[2] == label[2]
    assert found.label[3] == found.runner_up[3] == other[3]
    assert found.confidence[:4].tolist() == [0.5, 0.5, 0, 1]
    assert found.suspicion[:4].tolist() == [0, 0, 1, 0]


def test_rows_that_were_reviewed_before_training_stay_what_they_are():
    table, truth = known_table()
    table = replace(table, reviewed=np.arange(400) < 50)
    answers = answered(table, choose_questions(table, 60, 30), truth)
    found = with_answers_applied(table, answers)
    assert (found.labels.confidence[:50] == table.labels.confidence[:50]).all()
    assert (found.labels.suspicion[:50] == 0).all()
    assert found.reviewed[:50].all()
