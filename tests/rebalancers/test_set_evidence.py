"""Set evidence in training: what it adds to refined targets, when, and what it changes."""

import numpy as np
import pytest
import torch
from torch import nn

from ltpll import PartialLabelClassifier
from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.methods import PRODEN
from ltpll.models import Classifier
from ltpll.priors.joining import set_evidence
from ltpll.rebalancers import RECORDS, Auto, MeanTarget, SetEvidence
from ltpll.synthetic import superclass_candidates, uniform_candidates
from ltpll.targets import initial_targets
from ltpll.training.trainer import PartialLabelTrainer
from support.problems import BetweenEpochs

SUPERCLASS = np.arange(12) // 3


def similar_sets(n=600, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.choice(12, n, p=(shares := 0.8 ** np.arange(12)) / shares.sum())
    x = (np.eye(12)[labels] + rng.normal(0, 0.45, (n, 12))).astype(np.float32)
    return x, labels, superclass_candidates(labels, SUPERCLASS, 0.1, seed=seed)


def test_the_evidence_of_a_row_fades_linearly_until_its_share_of_the_epochs():
    _, _, candidates = similar_sets(40)
    rebalancer = SetEvidence(power=0.7, until=0.4)
    rebalancer.attach(Classifier(nn.Identity(), nn.Linear(12, 12)))
    rebalancer.start_training(BetweenEpochs(candidates, initial_targets(candidates)))
    index, values = torch.tensor([7, 3]), set_evidence(candidates, 0.7)
    dense = torch.zeros(2, 12)
    for place, row in enumerate(index.tolist()):
        dense[place, candidates.row(row)] = values[
            candidates.offsets[row] : candidates.offsets[row + 1]
        ]
    for epoch, weight in ((0, 1.0), (10, 0.75), (20, 0.5), (40, 0.0), (99, 0.0)):
        rebalancer.start_epoch(epoch, 100)
        torch.testing.assert_close(rebalancer.evidence(index), weight * dense)


def test_targets_are_refined_with_the_evidence_added_to_the_logits():
    x, _, candidates = similar_sets(64)
    torch.manual_seed(0)
    model = Classifier(nn.Identity(), nn.Linear(12, 12))
    trainer = PartialLabelTrainer(
        model, PRODEN(), SetEvidence(), epochs=4, batch_size=64, lr=1e-12, device="cpu"
    )
    trainer.fit(x, candidates)
    with torch.no_grad():
        logits = trainer.outputs(x).logits[0]
    # With so small a learning rate, the targets are those of the last epoch, in which the evidence
    # no longer counts.
    expected = torch.softmax(logits.masked_fill(~candidates.dense(), -torch.inf), 1)
    torch.testing.assert_close(trainer.targets[torch.arange(64)], expected, atol=1e-5, rtol=1e-4)
    early = PartialLabelTrainer(
        model, PRODEN(), SetEvidence(until=1.0), epochs=2, batch_size=64, lr=1e-12, device="cpu"
    ).fit(x, candidates)
    evidence = torch.zeros(64, 12)
    for row in range(64):
        evidence[row, candidates.row(row)] = set_evidence(candidates, 0.5)[
            candidates.offsets[row] : candidates.offsets[row + 1]
        ]
    weighted = (logits + 0.5 * evidence).masked_fill(
        ~candidates.dense(), -torch.inf
    )  # the second of two epochs has half of the weight
    torch.testing.assert_close(
        early.targets[torch.arange(64)], torch.softmax(weighted, 1), atol=1e-5, rtol=1e-4
    )


def test_without_evidence_it_is_mean_target_bit_for_bit():
    x, _, candidates = similar_sets(200)
    fitted = [
        PartialLabelClassifier("corr", rebalancer, epochs=3, random_state=0, device="cpu").fit(
            x, candidates
        )
        for rebalancer in (SetEvidence(power=0.0), SetEvidence(until=0.0), MeanTarget())
    ]
    for one in fitted[:2]:
        np.testing.assert_array_equal(one.predict_proba(x), fitted[2].predict_proba(x))


def test_more_labels_are_recovered_where_similar_classes_share_sets():
    def recovered(name, seed):
        x, labels, candidates = similar_sets(seed=seed)
        fitted = PartialLabelClassifier(
            "proden", name, epochs=30, random_state=seed, device="cpu"
        ).fit(x, candidates)
        return (fitted.transduce().labels == labels).mean()

    found = {
        name: [recovered(name, seed) for seed in range(2)]
        for name in ("set-evidence", "mean-target")
    }
    assert np.mean(found["set-evidence"]) > np.mean(found["mean-target"]) + 0.02
    assert recovered("auto", 0) == found["set-evidence"][0]  # which trains seven times


def test_records_lifts_during_the_warm_up_only_and_no_shares_are_held():
    _, _, candidates = similar_sets(60)
    rebalancer, model = SetEvidence(warmup=0.1), Classifier(nn.Identity(), nn.Linear(12, 12))
    rebalancer.attach(model)
    training = BetweenEpochs(candidates, initial_targets(candidates))
    rebalancer.start_training(training)
    for epoch in range(20):
        rebalancer.start_epoch(epoch, 20)
        lifted = RECORDS.log_prior(rebalancer, model.head) if epoch < 2 else torch.zeros(12)
        torch.testing.assert_close(rebalancer.subtracted("targets", model.head), lifted)
        rebalancer.end_epoch(training)


def test_candidates_with_weights_of_their_own_are_left_as_they_are():
    _, _, candidates = similar_sets(100)
    weights = torch.rand(len(candidates.labels), generator=torch.Generator().manual_seed(0)) + 0.1
    weighted = candidates.with_weights(weights)
    rebalancer = SetEvidence()
    rebalancer.attach(Classifier(nn.Identity(), nn.Linear(12, 12)))
    rebalancer.start_training(BetweenEpochs(weighted, initial_targets(weighted)))
    rebalancer.start_epoch(0, 10)
    assert rebalancer.evidence(torch.arange(5)) is None


@pytest.mark.parametrize(
    ("candidates", "weighs"),
    [
        (similar_sets()[2], True),
        (uniform_candidates(similar_sets()[1], 12, 0.2, seed=0), False),
        (Candidates.of([[0, 1], [1, 2], [0, 2]] * 30), False),  # too few classes for a test
    ],
)
def test_auto_weighs_sets_only_if_a_test_rejects_independent_wrong_labels(candidates, weighs):
    auto = Auto()
    auto.attach(Classifier(nn.Identity(), nn.Linear(12, candidates.n_classes)))
    auto.start_training(BetweenEpochs(candidates, initial_targets(candidates)))
    auto.start_epoch(0, 10)
    assert (auto.evidence(torch.arange(5)) is not None) is weighs
    assert ("labels that often share sets support each other" in auto.because) is weighs


@pytest.mark.parametrize("options", [{"power": -0.1}, {"power": 1.5}, {"until": 2.0}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(InputError, match=next(iter(options))):
        SetEvidence(**options)
