"""Labels of rows: whose opinion counts, against what each of them says, row by row."""

from dataclasses import replace

import numpy as np
import torch

from ltpll.candidates import Candidates
from ltpll.cleaning.dataset import Examples
from ltpll.cleaning.labelling import judgement_record, label_rows
from ltpll.data.readers.annotations import AnnotatorVotes
from ltpll.data.readers.tables import LabelTable
from ltpll.evaluation.set_predictions import SetPredictions
from ltpll.targets import Transduced


def made_up(n=200, seed=0, votes=None):
    """Examples with three classes, of which the last tenth is held out, probabilities for them, and final targets of the others."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    sets = rng.random((n, 3)) < 0.4
    sets[np.arange(n), y] = True
    probabilities = rng.dirichlet(np.ones(3), n) + 2 * np.eye(3)[y]
    probabilities = (probabilities / probabilities.sum(1, keepdims=True)).astype(np.float32)
    candidates = Candidates.of(sets)
    ids = np.asarray([str(i) for i in range(n)], dtype=object)
    table = LabelTable(ids, candidates, y, None, None, None, (), votes)
    examples = Examples(table, np.zeros((n, 1), dtype=np.float32), [])
    trained = np.arange(n - n // 10)
    first = np.asarray([rng.choice(np.flatnonzero(one)) for one in sets])[trained]
    share = rng.uniform(0.5, 1, len(trained)).astype(np.float32)
    transduced = Transduced(first, share, first, share)
    return examples, SetPredictions.of(torch.from_numpy(probabilities), candidates), trained, transduced


def test_out_of_fold_classifiers_overrule_the_final_targets_where_they_are_surer():
    examples, predictions, trained, transduced = made_up()
    cleaned, judgement = label_rows(predictions, examples, trained, transduced, out_of_fold=True)
    likeliest = predictions.inside_sets(temperature=judgement.temperature)
    for i in range(len(examples)):
        held_out = i >= len(trained)
        expected = likeliest.label[i] if held_out or likeliest.share[i] > transduced.confidence[i] else transduced.labels[i]
        assert cleaned.label[i] == expected
        assert cleaned.judged_by[i] == ("held out" if held_out else "folds")
    mine = predictions.inside_sets(cleaned.label, judgement.temperature)
    np.testing.assert_allclose(cleaned.confidence, (1 - judgement.suspicion) * mine.share, rtol=1e-6)
    np.testing.assert_allclose(cleaned.margin, mine.share - mine.runner_up_share, rtol=1e-6)
    assert (cleaned.label[: len(trained)] != transduced.labels).any()


def test_without_folds_only_held_out_rows_are_judged():
    examples, predictions, trained, transduced = made_up()
    cleaned, judgement = label_rows(predictions, examples, trained, transduced, out_of_fold=False)
    assert cleaned.label[trained].tolist() == transduced.labels.tolist()
    assert cleaned.confidence[trained].tolist() == transduced.confidence.tolist()
    assert not cleaned.judged[trained].any()
    assert len(judgement.suspicion) == len(examples) - len(trained)
    everything = np.arange(len(examples))
    whole = Transduced(*(np.resize(column, len(examples)) for column in transduced))
    assert label_rows(predictions, examples, everything, whole, out_of_fold=False)[1] is None


def test_rows_on_which_annotators_agree_have_a_share_of_missing_labels_of_their_own():
    rng = np.random.default_rng(0)
    n = 600
    # Rows below 300 have two votes for one label; the others two votes for different labels, of which both are wrong for every third row.
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
    cleaned, _ = label_rows(predictions, examples, np.empty(0, dtype=np.int64), Transduced(*[np.empty(0)] * 4), out_of_fold=True)
    assert cleaned.suspicion[:300].max() < 0.01
    assert cleaned.suspicion[300::3].mean() > 0.4


def test_the_record_compares_confidences_with_true_labels_where_they_are_known():
    examples, predictions, trained, transduced = made_up()
    cleaned, judgement = label_rows(predictions, examples, trained, transduced, out_of_fold=True)
    record = judgement_record(judgement, cleaned, examples)
    right = cleaned.label == examples.table.labels
    ambiguous = examples.candidates.sizes.numpy() > 1
    assert record["calibration"]["all"]["accuracy"] == round(right.mean(), 6)
    assert record["calibration"]["ambiguous"]["rows"] == ambiguous.sum() == record["ambiguous"]["rows"]
    assert abs(record["ambiguous"]["guess"] - np.mean(1 / examples.candidates.sizes.numpy()[ambiguous])) < 1e-5
    assert judgement_record(None, cleaned, examples) is None


def test_an_answer_is_not_doubted():
    examples, predictions, trained, transduced = made_up()
    reviewed = np.zeros(len(examples), dtype=bool)
    reviewed[[3, 5]] = True
    chosen = examples.candidates.replaced([3, 5], [[0], [1, 2]])
    before, _ = label_rows(predictions, examples, trained, transduced, out_of_fold=True)
    probabilities = torch.softmax(torch.from_numpy(predictions.log_probability.astype(np.float32)), dim=1)
    answered = replace(examples, table=replace(examples.table, candidates=chosen, reviewed=reviewed))
    first = transduced.labels.copy()
    first[[3, 5]] = 0, 1
    found, judgement = label_rows(SetPredictions.of(probabilities, chosen), answered, trained, transduced._replace(labels=first), True)
    assert (found.suspicion[[3, 5]] == 0).all()
    assert not found.issue[[3, 5]].any()
    assert found.confidence[3] == 1
    shares = SetPredictions.of(probabilities, chosen).inside_sets(found.label, judgement.temperature).share
    assert found.confidence[5] == shares[5] < 1
    assert (found.suspicion[~reviewed] > 0).any() == (before.suspicion > 0).any()


def test_the_share_of_each_label_in_the_final_targets_is_kept():
    examples, predictions, trained, transduced = made_up()
    other = np.asarray([(label + 1) % 3 for label in transduced.labels])
    transduced = transduced._replace(runner_up=other, margin=transduced.confidence / 2)
    found, _ = label_rows(predictions, examples, trained, transduced, out_of_fold=True)
    for i in range(len(examples)):
        if i >= len(trained):
            expected = found.confidence[i]
        elif found.label[i] == transduced.labels[i]:
            expected = transduced.confidence[i]
        else:
            expected = transduced.confidence[i] / 2 if found.label[i] == other[i] else 0
        assert found.target[i] == expected
    assert len(set(found.label[trained] - transduced.labels)) == 5  # the labels of the targets, the runners-up and others all occur


def test_labels_that_left_their_sets_have_the_probability_that_the_set_lacks_the_label_and_it_is_this_one():
    rng = np.random.default_rng(0)
    n, n_classes = 400, 5
    y = rng.integers(0, n_classes, n)
    sets = rng.random((n, n_classes)) < 0.3
    sets[np.arange(n), y] = rng.random(n) > 0.3
    sets[~sets.any(1), 0] = True
    candidates = Candidates.of(sets)
    probabilities = rng.dirichlet(np.ones(n_classes), n) + 4 * np.eye(n_classes)[y]
    predictions = SetPredictions.of(torch.from_numpy(probabilities / probabilities.sum(1, keepdims=True)).float(), candidates)
    ids = np.asarray([str(i) for i in range(n)], dtype=object)
    examples = Examples(LabelTable(ids, candidates, y, None, None, None, (), None), np.zeros((n, 1), dtype=np.float32), [])
    share = np.full(n, 0.9, dtype=np.float32)
    lost = rng.random(n) < 0.5  # the final targets: right, or the likeliest class outside, or a candidate
    first = np.where(sets[np.arange(n), y], y, np.where(lost, predictions.inside, predictions.outside))
    transduced = Transduced(first, share, predictions.inside, share)
    cleaned, judgement = label_rows(predictions, examples, np.arange(n), transduced, out_of_fold=True, truth_missing=True)
    likeliest, outside = predictions.inside_sets(temperature=judgement.temperature), predictions.outside_shares(judgement.temperature)
    left = 0
    for i in range(n):
        best = likeliest.share[i] * (1 - judgement.suspicion[i])
        probable = cleaned.judged[i] and judgement.suspicion[i] * outside[i] > 0.5
        assert cleaned.label[i] == (predictions.outside[i] if probable else likeliest.label[i] if best > 0.9 else first[i])
        if not sets[i, cleaned.label[i]]:
            left += 1
            assert np.isclose(cleaned.confidence[i], judgement.suspicion[i] * outside[i], rtol=1e-5)
            assert cleaned.runner_up[i] == likeliest.label[i]
            assert np.isclose(cleaned.margin[i], cleaned.confidence[i] - best, atol=1e-5)
    assert left > 50
    right = cleaned.label == y
    assert abs(cleaned.confidence.mean() - right.mean()) < 0.1
