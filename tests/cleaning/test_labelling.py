"""Labels of rows: whose opinion counts, against what each of them says, row by row."""

from dataclasses import replace

import numpy as np
import torch

from ltpll.candidates import Candidates
from ltpll.candidates.votes import AnnotatorVotes
from ltpll.cleaning.dataset import Examples
from ltpll.cleaning.judgement import judgement_record, label_rows
from ltpll.evaluation.set_predictions import SetPredictions
from ltpll.tables.read_tables import LabelTable


def made_up(n=200, seed=0, votes=None):
    """Examples of three classes, the last tenth held out, with two kinds of probabilities."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    sets = rng.random((n, 3)) < 0.4
    sets[np.arange(n), y] = True
    candidates = Candidates.of(sets)
    ids = np.asarray([str(i) for i in range(n)], dtype=object)
    table = LabelTable(ids, candidates, y, None, None, None, (), votes)
    examples = Examples(table, np.zeros((n, 1), dtype=np.float32), [])
    trained = np.arange(n - n // 10)
    by_others, own = (
        predicted(rng.dirichlet(np.ones(3), n) + 0.4 * np.eye(3)[y], candidates) for _ in range(2)
    )
    return examples, by_others, trained, own.select(trained)


def predicted(probabilities, candidates):
    shares = probabilities / probabilities.sum(1, keepdims=True)
    return SetPredictions.of(torch.from_numpy(shares.astype(np.float32)), candidates)


def shares_of(predictions, row, temperature):
    """The share of each candidate of a row, as {class: share}, most probable first."""
    start, end = predictions.offsets[row : row + 2]
    powers = predictions.candidate_probability[start:end].astype(np.float64) ** (1 / temperature)
    return dict(zip(predictions.candidates[start:end].tolist(), powers / powers.sum(), strict=True))


def test_the_label_is_the_best_candidate_by_the_mean_of_classifiers_that_know_the_row_and_do_not():
    examples, predictions, trained, own = made_up()
    cleaned, judgement = label_rows(predictions, examples, trained, own)
    differ = 0
    for i in range(len(examples)):
        shares = shares_of(predictions, i, judgement.temperature)
        alone = max(shares, key=shares.get)
        if i < len(trained):
            mine = shares_of(own, i, judgement.temperature)
            shares = {c: (share + mine[c]) / 2 for c, share in shares.items()}
        ranked = sorted(shares, key=lambda c: -shares[c])
        second = ranked[1] if len(ranked) > 1 else ranked[0]
        assert (cleaned.label[i], cleaned.runner_up[i]) == (ranked[0], second)
        assert np.isclose(
            cleaned.confidence[i], (1 - judgement.suspicion[i]) * shares[ranked[0]], rtol=1e-5
        )
        assert np.isclose(
            cleaned.margin[i],
            shares[ranked[0]] - (shares[second] if len(ranked) > 1 else 0),
            atol=1e-6,
        )
        assert cleaned.judged_by[i] == ("held out" if i >= len(trained) else "folds")
        differ += ranked[0] != alone
    assert differ > 0
    assert (cleaned.margin >= 0).all()


def test_without_folds_only_held_out_rows_are_judged():
    examples, predictions, trained, _ = made_up()
    cleaned, judgement = label_rows(predictions, examples, trained, None)
    assert set(cleaned.judged_by[trained]) == {"own"}
    assert not cleaned.judged[trained].any()
    assert not cleaned.suspicion[trained].any()
    assert len(judgement.suspicion) == len(examples) - len(trained)
    for i in trained:
        shares = shares_of(predictions, i, judgement.temperature)
        assert cleaned.label[i] == max(shares, key=shares.get)
        assert np.isclose(cleaned.confidence[i], max(shares.values()), rtol=1e-5)
    assert label_rows(predictions, examples, np.arange(len(examples)), None)[1] is None


def test_rows_on_which_annotators_agree_have_a_share_of_missing_labels_of_their_own():
    rng = np.random.default_rng(0)
    n = 600
    # Rows below 300 have two votes for one label; the others two votes for different labels, of
    # which both are wrong for every third row.
    y = rng.integers(0, 5, n)
    rows, labels = np.repeat(np.arange(n), 2), np.repeat(y, 2)
    for i in range(300, n):
        labels[2 * i + 1] = (y[i] + 1) % 5
        if i % 3 == 0:
            labels[2 * i] = (y[i] + 2) % 5
    votes = AnnotatorVotes(rows, np.tile([0, 1], n), labels, ("ann", "bob"))
    sets = Candidates.of([sorted({int(a), int(b)}) for a, b in labels.reshape(-1, 2)], n_classes=5)
    probabilities = np.full((n, 5), 0.02, dtype=np.float32)
    probabilities[np.arange(n), y] = 0.92
    table = LabelTable(np.arange(n).astype(object), sets, None, None, None, None, (), votes)
    predictions = SetPredictions.of(torch.from_numpy(probabilities), sets)
    examples = Examples(table, np.zeros((n, 1), dtype=np.float32), [])
    nothing = np.empty(0, dtype=np.int64)
    cleaned, _ = label_rows(predictions, examples, nothing, predictions.select(nothing))
    assert cleaned.suspicion[:300].max() < 0.01
    assert cleaned.suspicion[300::3].mean() > 0.4


def test_the_record_compares_confidences_with_true_labels_where_they_are_known():
    examples, predictions, trained, own = made_up()
    cleaned, judgement = label_rows(predictions, examples, trained, own)
    record = judgement_record(judgement, cleaned, examples)
    right = cleaned.label == examples.table.labels
    ambiguous = examples.candidates.sizes.numpy() > 1
    assert record["calibration"]["all"]["accuracy"] == round(right.mean(), 6)
    assert (
        record["calibration"]["ambiguous"]["rows"] == ambiguous.sum() == record["ambiguous"]["rows"]
    )
    assert (
        abs(
            record["ambiguous"]["guess"] - np.mean(1 / examples.candidates.sizes.numpy()[ambiguous])
        )
        < 1e-5
    )
    assert judgement_record(None, cleaned, examples) is None


def test_an_answer_is_not_doubted():
    examples, predictions, trained, own = made_up()
    reviewed = np.zeros(len(examples), dtype=bool)
    reviewed[[3, 5]] = True
    chosen = examples.candidates.with_answers([3, 5], [[0], [1, 2]])
    before, _ = label_rows(predictions, examples, trained, own)
    probabilities = torch.softmax(
        torch.from_numpy(predictions.log_probability.astype(np.float32)), dim=1
    )
    answered = replace(
        examples, table=replace(examples.table, candidates=chosen, reviewed=reviewed)
    )
    asked = SetPredictions.of(probabilities, chosen)
    found, judgement = label_rows(asked, answered, trained, asked.select(trained))
    assert (found.suspicion[[3, 5]] == 0).all()
    assert not found.issue[[3, 5]].any()
    assert (found.label[3], found.confidence[3]) == (0, 1)
    shares = shares_of(asked, 5, judgement.temperature)
    assert np.isclose(found.confidence[5], max(shares.values()), rtol=1e-5)
    assert found.confidence[5] < 1
    assert (found.suspicion[~reviewed] > 0).any() == (before.suspicion > 0).any()


def test_labels_outside_their_sets_have_the_probability_that_the_label_is_missing_and_is_this_one():
    rng = np.random.default_rng(0)
    n, n_classes = 400, 5
    y = rng.integers(0, n_classes, n)
    sets = rng.random((n, n_classes)) < 0.3
    sets[np.arange(n), y] = rng.random(n) > 0.3
    sets[~sets.any(1), 0] = True
    candidates = Candidates.of(sets)
    probabilities = rng.dirichlet(np.ones(n_classes), n) + 4 * np.eye(n_classes)[y]
    predictions = SetPredictions.of(
        torch.from_numpy(probabilities / probabilities.sum(1, keepdims=True)).float(), candidates
    )
    ids = np.asarray([str(i) for i in range(n)], dtype=object)
    examples = Examples(
        LabelTable(ids, candidates, y, None, None, None, (), None),
        np.zeros((n, 1), dtype=np.float32),
        [],
    )
    cleaned, judgement = label_rows(
        predictions, examples, np.arange(n), predictions, truth_missing=True
    )
    outside = predictions.outside_shares(judgement.temperature) * judgement.suspicion
    left = 0
    for i in range(n):
        shares = shares_of(predictions, i, judgement.temperature)
        inside = max(shares, key=shares.get)
        best = shares[inside] * (1 - judgement.suspicion[i])
        leaves = cleaned.judged[i] and outside[i] > best
        assert cleaned.label[i] == (predictions.outside[i] if leaves else inside)
        assert np.isclose(cleaned.confidence[i], outside[i] if leaves else best, rtol=1e-5)
        if leaves:
            left += 1
            assert cleaned.runner_up[i] == inside
            assert np.isclose(cleaned.margin[i], cleaned.confidence[i] - best, atol=1e-5)
    assert left > 50
    right = cleaned.label == y
    assert abs(cleaned.confidence.mean() - right.mean()) < 0.1
