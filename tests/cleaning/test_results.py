"""Cleaned tables: labels, classes and annotators, against plain loops."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ltpll.cleaning.results import (
    CleanedLabels,
    CleanedTable,
    StoredVotes,
    annotator_columns,
    class_columns,
    cleaned_columns,
    flagged_sets,
    labels_chosen_instead,
    verdicts,
)

CLASSES = ["ant", "bee", "cat", "dog"]


@pytest.fixture
def run():
    """Thirty made-up examples; class 3 is never a candidate."""
    rng = np.random.default_rng(1)
    sets = [
        sorted(rng.choice(3, size=rng.integers(1, 4), replace=False).tolist()) for _ in range(30)
    ]
    label = np.asarray([one[int(rng.integers(len(one)))] for one in sets])
    second = np.asarray(
        [next((k for k in one if k != mine), mine) for one, mine in zip(sets, label, strict=True)]
    )
    confidence = rng.uniform(0.5, 1, 30).astype(np.float32)
    cleaning = CleanedLabels(
        label=label,
        confidence=confidence,
        runner_up=second,
        margin=confidence - 0.4,
        inside=label,
        outside=np.full(30, 3),
        suspicion=rng.beta(0.2, 0.5, 30).astype(np.float32),
        judged=rng.random(30) < 0.8,
        judged_by=np.full(30, "folds", dtype=object),
    )
    votes = [
        (i, f"worker{w}", int(rng.integers(3)))
        for i in range(30)
        for w in range(4)
        if rng.random() < 0.5
    ]
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


def test_every_example_has_one_row_and_a_suggestion_only_where_its_set_is_flagged(run):
    cleaned, sets, _ = run
    columns = cleaned_columns(cleaned, separator=";")
    assert "true_label" not in columns
    for i, one in enumerate(sets):
        assert columns["candidates"][i] == ";".join(CLASSES[k] for k in one)
        assert columns["set_size"][i] == len(one)
        assert columns["label"][i] == CLASSES[cleaned.labels.label[i]]
        assert columns["runner_up"][i] == (
            None if len(one) == 1 else CLASSES[cleaned.labels.runner_up[i]]
        )
        assert columns["issue"][i] == cleaned.labels.issue[i]
        assert columns["suggestion"][i] == ("dog" if cleaned.labels.issue[i] else None)
    assert 0 < sum(columns["issue"]) < 30


def test_confusions_are_counted_as_a_loop_counts_them(run):
    cleaned, sets, _ = run
    expected = Counter(
        (mine, k)
        for one, mine in zip(sets, cleaned.labels.label.tolist(), strict=True)
        for k in one
        if k != mine
    )
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
            assert columns["distractor_rate"][k] == pytest.approx(
                1 - len(believed) / held, abs=1e-4
            )
            assert columns["mean_confidence"][k] == pytest.approx(
                cleaned.labels.confidence[believed].mean(), abs=1e-4
            )
    assert np.isnan(columns["distractor_rate"][3])
    assert columns["suggested_for"][3] == cleaned.labels.issue.sum()
    assert columns["most_often_instead"][3] is None


def test_annotators_are_counted_as_a_loop_counts_them(run):
    cleaned, _, votes = run
    columns = annotator_columns(cleaned)
    for a, name in enumerate(columns["annotator"]):
        mine = [(i, label) for i, worker, label in votes if worker == name]
        assert columns["examples"][a] == columns["labels"][a] == len(mine)
        assert columns["agreement"][a] == pytest.approx(
            np.mean([label == cleaned.labels.label[i] for i, label in mine]), abs=1e-4
        )
        others = {
            i: {label for j, worker, label in votes if j == i and worker != name} for i, _ in mine
        }
        shared = [label in others[i] for i, label in mine if others[i]]
        assert columns["shared_with_others"][a] == pytest.approx(np.mean(shared), abs=1e-4)


# ---- flags --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [0.0, 0.1, 0.3, 0.45])
def test_the_most_suspicious_sets_are_flagged_while_few_are_expected_to_be_fine(target):
    suspicion = np.random.default_rng(0).beta(0.3, 1, 500).astype(np.float32)
    judged = np.random.default_rng(1).random(500) < 0.7
    flagged = flagged_sets(suspicion, judged, np.zeros(500, dtype=np.int64), target)
    best = 0
    order = sorted(
        (float(one) for one, can in zip(suspicion, judged, strict=True) if can), reverse=True
    )
    for k in range(1, len(order) + 1):
        if sum(1 - one for one in order[:k]) <= target * k and order[k - 1] >= 0.5:
            best = k
    assert flagged.sum() == best
    assert not flagged[~judged].any()
    assert best == 0 or suspicion[flagged].min() >= max(
        (one for one, f in zip(suspicion, flagged | ~judged, strict=True) if not f)
    )


def test_no_class_is_expected_to_be_flagged_by_mistake_much_more_often_than_all_rows_are():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [1000, 10])
    suspicion = np.where(labels == 1, 0.7, np.where(rng.random(1010) < 0.05, 0.7, 0.0)).astype(
        np.float32
    )
    flagged = flagged_sets(suspicion, np.ones(1010, dtype=bool), labels, 0.3001)
    assert (
        not flagged[labels == 1].any()
    )  # seven of its ten sets would lack their label, and the other three could not be told apart
    assert (flagged == (suspicion > 0))[labels == 0].all()


def test_the_limit_for_each_class_is_that_of_a_plain_loop():
    rng = np.random.default_rng(3)
    labels, judged = (
        np.sort(rng.choice(6, 400, p=[0.5, 0.3, 0.1, 0.05, 0.03, 0.02])),
        np.ones(400, dtype=bool),
    )
    suspicion = np.where(rng.random(400) < 0.1 + 0.15 * labels, rng.uniform(0.6, 0.9, 400), 0.05)
    found = flagged_sets(suspicion, judged, labels, 0.3)
    order = sorted(range(400), key=lambda i: -suspicion[i])
    kept = max(
        (k for k in range(1, 401) if sum(1 - suspicion[i] for i in order[:k]) <= 0.3 * k), default=0
    )
    most = 2 * sum(1 - suspicion[i] for i in order[:kept]) / (1 - suspicion).sum()
    expected = np.zeros(400, dtype=bool)
    for label in range(6):
        mistakes = 0.0
        for i in [i for i in order[:kept] if labels[i] == label and suspicion[i] >= 0.5]:
            mistakes += 1 - suspicion[i]
            expected[i] = mistakes <= most * (1 - suspicion)[labels == label].sum()
    # Some classes have lost their most suspicious sets, so the least suspicious ones go until few
    # mistakes are expected again.
    left = [i for i in order if expected[i]]
    while left and sum(1 - suspicion[i] for i in left) > 0.3 * len(left):
        expected[left.pop()] = False
    assert found.tolist() == expected.tolist()
    assert 0 < found.sum() < kept


def test_flags_stay_within_the_limit_where_a_class_may_not_be_flagged():
    labels = np.repeat([0, 1], [1000, 40])
    suspicion = np.r_[np.full(30, 0.6), np.zeros(970), np.full(30, 0.99), np.zeros(10)].astype(
        np.float32
    )
    flagged = flagged_sets(suspicion, np.ones(1040, dtype=bool), labels, 0.3)
    assert flagged.sum() > 0
    assert (1 - suspicion[flagged]).mean() <= 0.3


def test_a_set_that_holds_every_class_is_never_flagged(run):
    cleaned = replace(
        run[0].labels, outside=np.full(30, -1), suspicion=np.ones(30, dtype=np.float32)
    )
    assert not cleaned.issue.any()


# ---- verdicts -----------------------------------------------------------------------------------


def with_judgement(run, **changes):
    judgement = {
        "temperature": 1.0,
        "missing": 0.0,
        "covering": 0.9,
        "chance": 0.5,
        "not_judged": [[2, 9, 2]],
    } | changes
    return replace(run[0], record=run[0].record | {"judgement": judgement})


def test_a_model_that_does_not_beat_chance_is_called_so(run):
    assert "beat a random guess" not in " ".join(verdicts(with_judgement(run)))
    assert (
        "do not let the model beat a random guess"
        in verdicts(with_judgement(run, covering=0.55))[0]
    )  # 30 rows: 2 errors are 18 points


def test_labels_of_ambiguous_rows_are_compared_with_a_guess_inside_the_set(run):
    inside = {"rows": 100, "expected": 0.7, "guess": 0.4}
    expected = verdicts(with_judgement(run, ambiguous=inside))[-1]
    assert (
        "expected to be right in 70.0% of the cases; a random guess inside the set "
        "would be right in 40.0%." in expected
    )
    figures = {"rows": 100, "mean_confidence": 0.7, "calibration_error": 0.1, "ranking": 0.6}
    for accuracy, beaten in ((0.45, True), (0.6, False)):
        known = {"ambiguous": figures | {"accuracy": accuracy}}
        sentence = verdicts(with_judgement(run, ambiguous=inside, calibration=known))[-1]
        assert sentence.endswith("so the model does not beat it.") == beaten
        assert f"are right in {accuracy:.1%} of the cases (70.0% expected)" in sentence


def test_rows_that_were_trained_on_are_not_judged(run):
    own = replace(run[0], labels=replace(run[0].labels, judged_by=np.full(30, "own", dtype=object)))
    assert verdicts(own) == [
        "Rows were labelled by a classifier that was trained on them, so their sets "
        "are not judged: train with --folds 5."
    ]
