from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from ltpll.errors import InputError
from ltpll.evaluation.during_training import Evaluate, best_epoch
from ltpll.evaluation.metrics import (
    RunningEvaluation,
    Shots,
    evaluate,
    prior_distance,
    target_recovery,
)
from ltpll.methods import METHODS
from ltpll.models import build_model
from ltpll.rebalancers import REBALANCERS
from ltpll.training.trainer import PartialLabelTrainer


@given(st.integers(0, 10_000), st.integers(6, 12), st.integers(30, 80))
def test_figures_equal_scikit_learns(seed, n_classes, n):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(n_classes), rng.integers(n_classes, size=n)])
    logits = rng.normal(size=(len(labels), n_classes))
    logits[np.arange(len(labels)), labels] += 1
    got = evaluate(torch.from_numpy(logits), torch.from_numpy(labels))
    predicted = logits.argmax(1)
    assert got.accuracy == pytest.approx(metrics.accuracy_score(labels, predicted))
    assert got.balanced_accuracy == pytest.approx(
        metrics.balanced_accuracy_score(labels, predicted), abs=1e-6
    )
    assert got.balanced_error == pytest.approx(1 - got.balanced_accuracy)
    assert got.top5 == pytest.approx(
        metrics.top_k_accuracy_score(labels, logits, k=5, labels=np.arange(n_classes))
    )
    assert got.per_class == pytest.approx(
        metrics.recall_score(labels, predicted, average=None).tolist(), abs=1e-6
    )
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert got.mean_prediction == pytest.approx(probabilities.mean(0).tolist())


@given(st.integers(0, 10_000), st.integers(1, 20))
def test_parts_of_the_predictions_add_up_to_the_figures_of_all(seed, size):
    g = torch.Generator().manual_seed(seed)
    logits, labels = torch.randn(40, 7, generator=g), torch.randint(7, (40,), generator=g)
    counts = torch.randint(0, 200, (7,), generator=g)
    tally = RunningEvaluation(7, logits.device)
    for part, own in zip(logits.split(size), labels.split(size), strict=True):
        tally.count(part, own)
    expected, found = evaluate(logits, labels, counts), tally.evaluation(counts)
    assert found.mean_prediction == pytest.approx(expected.mean_prediction)
    assert replace(found, mean_prediction=[]) == replace(expected, mean_prediction=[])


def test_groups_are_means_over_their_classes_with_the_papers_bounds():
    counts = torch.tensor([101, 100, 20, 19])  # many is > 100, few is < 20
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    predicted = torch.tensor([0, 1, 1, 1, 2, 0, 3, 0])
    got = evaluate(torch.nn.functional.one_hot(predicted, 4).float(), labels, counts)
    assert (got.many, got.medium, got.few) == (0.5, 0.75, 0.5)


def test_groups_without_classes_and_ranks_beyond_the_classes_are_none():
    got = evaluate(torch.eye(3), torch.arange(3), torch.tensor([5, 5, 5]))
    assert (got.many, got.medium, got.few) == (None, None, 1.0)
    assert got.top5 is None


def test_a_class_absent_from_the_test_set_is_left_out_of_the_average():
    got = evaluate(torch.eye(3)[[0, 1]], torch.tensor([0, 1]))
    assert got.per_class == [1.0, 1.0, None]
    assert got.balanced_accuracy == 1.0


@pytest.mark.parametrize(("many", "few"), [(10, 20), (10, 0)])
def test_overlapping_bounds_are_refused(many, few):
    with pytest.raises(InputError, match="overlap"):
        Shots(many, few)


def test_one_label_a_prediction_is_required():
    with pytest.raises(InputError, match="3 predictions for 2 labels"):
        evaluate(torch.eye(3), torch.tensor([0, 1]))


def test_recovery_is_the_share_of_right_beliefs_and_distance_is_euclidean():
    assert target_recovery(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 2, 0])) == 0.75
    assert prior_distance(torch.tensor([0.6, 0.4]), torch.tensor([0.3, 0.8])) == pytest.approx(0.5)


def problem():
    g = torch.Generator().manual_seed(0)
    y = torch.tensor([0] * 30 + [1] * 20 + [2] * 10)
    x = torch.randn(60, 4, generator=g) + 2 * torch.eye(3, 4)[y]
    sets = [
        {int(label), int(other)}
        for label, other in zip(y, torch.randint(3, (60,), generator=g), strict=True)
    ]
    return x, y, sets


def trained(truth, rebalancer=None, epochs=3):
    x, _, sets = problem()
    model = build_model("mlp", 0, n_inputs=4, n_classes=3, hidden=(6,))
    trainer = PartialLabelTrainer(
        model, METHODS["proden"](), rebalancer, epochs=epochs, batch_size=20, lr=0.1, device="cpu"
    )
    return trainer.fit(x, sets, [truth])


def test_a_record_holds_the_test_figures_recovery_and_both_priors():
    x, y, _ = problem()
    trainer = trained(Evaluate(x, y, y), REBALANCERS["records"]())
    record = trainer.history[-1]
    true_prior = np.asarray([0.5, 1 / 3, 1 / 6])
    prior = trainer.rebalancer.log_prior(trainer.head).exp()
    assert record["prior"] == pytest.approx((prior / prior.sum()).tolist())
    assert record["prior_distance"] == pytest.approx(
        np.linalg.norm(np.asarray(record["prior"]) - true_prior), abs=1e-6
    )
    assert record["mean_target_distance"] == pytest.approx(
        np.linalg.norm(np.asarray(record["mean_target"]) - true_prior), abs=1e-6
    )
    assert record["target_recovery"] == pytest.approx(
        (trainer.targets.labels() == y).float().mean().item()
    )
    assert record["test"]["accuracy"] == pytest.approx((trainer.predict(x) == y.numpy()).mean())


def test_a_posthoc_row_is_the_same_logits_adjusted_at_the_end():
    x, y, _ = problem()
    posthoc = REBALANCERS["oracle-la-posthoc"]([30, 20, 10])
    trainer = trained(Evaluate(x, y, y, posthoc={"oracle-la-posthoc": posthoc}))
    expected = evaluate(
        trainer.outputs(x).logits[0] - torch.log(torch.tensor([0.5, 1 / 3, 1 / 6])),
        y,
        torch.tensor([30, 20, 10]),
    )
    got = trainer.history[-1]["oracle-la-posthoc"]
    assert got["per_class"] == expected.per_class
    assert got["mean_prediction"] == pytest.approx(expected.mean_prediction, abs=1e-6)
    assert got["mean_prediction"][2] > trainer.history[-1]["test"]["mean_prediction"][2]


def test_without_training_labels_only_what_is_knowable_is_recorded():
    x, y, _ = problem()
    record = trained(Evaluate(x, y)).history[-1]
    assert (
        not {"target_recovery", "mean_target_distance", "prior_distance", "prior"} & record.keys()
    )
    assert record["test"]["many"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: Evaluate(x, y[:-1]), "60 test rows but 59 test labels"),
        (lambda x, y: Evaluate(x, y + 1), "Row 50 of the test labels is 3"),
        (lambda x, y: Evaluate(x, y, y[:-1]), "59 training labels for 60 training rows"),
        (lambda x, y: Evaluate(x, y.float()), "class numbers"),
    ],
)
def test_truth_that_does_not_fit_is_refused_before_training(change, message):
    x, y, _ = problem()
    with pytest.raises(InputError, match=message):
        trained(change(x, y))


def test_the_best_epoch_is_the_one_with_the_highest_balanced_accuracy():
    history = [
        {"epoch": 1, "loss": 0.0},
        *(
            {"epoch": e, "test": {"balanced_accuracy": a}}
            for e, a in ((2, 0.3), (3, 0.9), (4, 0.5))
        ),
    ]
    assert best_epoch(history)["epoch"] == 3
    with pytest.raises(InputError, match="Evaluate"):
        best_epoch(history[:1])
