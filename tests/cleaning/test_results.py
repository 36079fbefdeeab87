"""Cleaned tables: labels, classes and annotators, against plain loops."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ltpll.cleaning.results import (
    NOTED,
    CleanedLabels,
    CleanedTable,
    StoredVotes,
    annotator_columns,
    class_columns,
    cleaned_columns,
    confusion_pairs,
    labels_chosen_instead,
    true_shares,
)

CLASSES = ["ant", "bee", "cat", "dog"]


@pytest.fixture
def run():
    """Thirty made-up examples; class 3 is never a candidate."""
    rng = np.random.default_rng(1)
    sets = [sorted(rng.choice(3, size=rng.integers(1, 4), replace=False).tolist()) for _ in range(30)]
    label = np.asarray([one[int(rng.integers(len(one)))] for one in sets])
    second = np.asarray([next((k for k in one if k != mine), mine) for one, mine in zip(sets, label, strict=True)])
    confidence = rng.uniform(0.5, 1, 30).astype(np.float32)
    cleaning = CleanedLabels(
        label=label,
        confidence=confidence,
        runner_up=second,
        margin=confidence - 0.4,
        inside_probability=rng.uniform(0, 1, 30).astype(np.float32),
        outside=np.full(30, 3),
        outside_probability=rng.uniform(0, 1, 30).astype(np.float32),
        judged_by=np.full(30, "folds", dtype=object),
    )
    votes = [(i, f"worker{w}", int(rng.integers(3))) for i in range(30) for w in range(4) if rng.random() < 0.5]
    return (
        CleanedTable(
            record={"classes": CLASSES, "class_prior": [0.4, 0.3, 0.2, 0.1]},
            ids=np.asarray([f"e{i}" for i in range(30)], dtype=object),
            paths=None,
            splits=None,
            offsets=np.concatenate([[0], np.cumsum([len(one) for one in sets])]),
            candidates=np.concatenate(sets),
            true=np.full(30, None, dtype=object),
            labels=cleaning,
            votes=StoredVotes(*(np.asarray(column) for column in zip(*votes, strict=True))),
            pictures={},
        ),
        sets,
        votes,
    )


def test_every_example_has_one_row_and_an_issue_only_where_another_label_is_likelier(run):
    cleaned, sets, _ = run
    columns = cleaned_columns(cleaned, separator=";")
    assert "true_label" not in columns
    for i, one in enumerate(sets):
        assert columns["candidates"][i] == ";".join(CLASSES[k] for k in one)
        assert columns["set_size"][i] == len(one)
        assert columns["label"][i] == CLASSES[cleaned.labels.label[i]]
        assert columns["runner_up"][i] == (None if len(one) == 1 else CLASSES[cleaned.labels.runner_up[i]])
        likelier = cleaned.labels.outside_probability[i] > cleaned.labels.inside_probability[i]
        assert columns["issue"][i] == likelier
        assert columns["suggestion"][i] == ("dog" if likelier else None)
    assert 0 < sum(columns["issue"]) < 30


def test_confusions_are_counted_as_a_loop_counts_them(run):
    cleaned, sets, _ = run
    expected = Counter((mine, k) for one, mine in zip(sets, cleaned.labels.label.tolist(), strict=True) for k in one if k != mine)
    pairs, counts = confusion_pairs(cleaned)
    assert {tuple(pair): n for pair, n in zip(pairs.tolist(), counts.tolist(), strict=True)} == expected
    best, times = labels_chosen_instead(cleaned)
    for k in range(4):
        most = max((n for (_, other), n in expected.items() if other == k), default=0)
        assert times[k] == most
        assert best[k] == -1 if most == 0 else expected[best[k], k] == most


def test_classes_are_counted_as_a_loop_counts_them(run):
    cleaned, sets, _ = run
    columns = class_columns(cleaned)
    for k in range(4):
        held = sum(k in one for one in sets)
        believed = [i for i in range(30) if cleaned.labels.label[i] == k]
        assert columns["candidate_in"][k] == held
        assert columns["label_of"][k] == len(believed)
        if held:
            assert columns["distractor_rate"][k] == pytest.approx(1 - len(believed) / held, abs=1e-4)
            assert columns["mean_confidence"][k] == pytest.approx(cleaned.labels.confidence[believed].mean(), abs=1e-4)
    assert np.isnan(columns["distractor_rate"][3])
    assert columns["suggested_for"][3] == (cleaned.labels.suspicion > 0).sum()
    assert columns["most_often_instead"][3] is None


def test_annotators_are_counted_as_a_loop_counts_them(run):
    cleaned, _, votes = run
    columns = annotator_columns(cleaned)
    for a, name in enumerate(columns["annotator"]):
        mine = [(i, label) for i, worker, label in votes if worker == name]
        assert columns["examples"][a] == columns["labels"][a] == len(mine)
        assert columns["agreement"][a] == pytest.approx(np.mean([label == cleaned.labels.label[i] for i, label in mine]), abs=1e-4)
        others = {i: {label for j, worker, label in votes if j == i and worker != name} for i, _ in mine}
        shared = [label in others[i] for i, label in mine if others[i]]
        assert columns["shared_with_others"][a] == pytest.approx(np.mean(shared), abs=1e-4)


def test_the_least_certain_and_the_most_suspicious_come_first(run):
    cleaning = run[0].labels
    found = cleaning.noteworthy()
    margins, suspicions = cleaning.margin[found["uncertain"]], cleaning.suspicion[found["suspicious"]]
    assert (np.diff(margins) >= 0).all()
    assert (np.diff(suspicions) <= 0).all()
    assert (suspicions > 0).all()
    assert len(suspicions) == (cleaning.suspicion > 0).sum() <= NOTED
    assert (cleaning.label[found["uncertain"]] != cleaning.runner_up[found["uncertain"]]).all()


def test_true_shares_are_those_of_the_trained_rows_and_known_only_if_all_their_labels_are(run):
    table, _, _ = run
    assert true_shares(table) is None
    judged_by = np.asarray(["held out" if i < 10 else "folds" for i in range(30)], dtype=object)
    true = np.asarray([None if i < 10 else i % 3 for i in range(30)], dtype=object)
    table = replace(table, true=true, labels=replace(table.labels, judged_by=judged_by))
    counts = Counter(true[10:].tolist())
    assert true_shares(table) == [counts[c] / 20 for c in range(4)]
    true[29] = None
    assert true_shares(table) is None
