"""The anchor's rule, recomputed step by step in plain Python, and what it holds."""

import math

import numpy as np
import pytest
import torch

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.interfaces import Outputs
from ltpll.models import Classifier
from ltpll.priors import estimate_prior
from ltpll.rebalancers import RECORDS, Anchor
from ltpll.targets import initial_targets, restricted_softmax
from support.problems import BetweenEpochs

SETS = [[0, 1], [0, 2], [0], [1, 2], [0, 1, 2], [0, 1], [2], [0, 3], [1, 3], [0, 1, 2, 3]]
N, C = len(SETS), 4


def started(anchor: Anchor) -> tuple[Anchor, torch.nn.Linear, BetweenEpochs]:
    """An anchor at the start of a training on the sets above."""
    torch.manual_seed(0)
    head = torch.nn.Linear(3, C)
    anchor.attach(Classifier(torch.nn.Identity(), head))
    candidates = Candidates.of(SETS)
    training = BetweenEpochs(candidates, initial_targets(candidates))
    anchor.start_training(training)
    return anchor, head, training


def refine(
    anchor: Anchor, head: torch.nn.Linear, training: BetweenEpochs, logits: torch.Tensor
) -> None:
    everything = torch.arange(N)
    adjusted = anchor.adjust(Outputs((logits,), (torch.zeros(N, 3),)), "targets", head).logits[0]
    training.targets[everything] = restricted_softmax(adjusted, training.candidates[everything])


def test_the_bias_moves_as_the_formula_says():
    anchor, head, training = started(Anchor(prior=[0.1, 0.2, 0.3, 0.4], lift="none", warmup=0.0))
    logits = torch.randn(N, C, generator=torch.Generator().manual_seed(1))
    bias = [0.0] * C
    for epoch in range(4):
        anchor.start_epoch(epoch, 4)
        refine(anchor, head, training, logits)
        anchor.end_epoch(training)
        means = [0.0] * C
        for i, labels in enumerate(SETS):
            weights = {j: math.exp(float(logits[i, j]) + bias[j]) for j in labels}
            for j in labels:
                means[j] += weights[j] / sum(weights.values()) / N
        for j, share in enumerate([0.1, 0.2, 0.3, 0.4]):
            bias[j] += 0.5 * min(max(math.log(share) - math.log(means[j]), -1.0), 1.0)
        bias = [b - sum(bias) / C for b in bias]
        torch.testing.assert_close(anchor.bias, torch.tensor(bias))
        torch.testing.assert_close(anchor.mean_target, torch.tensor(means))


@pytest.mark.parametrize("bounds", ["interval", "point"])
@pytest.mark.parametrize("lift", ["records", "none"])
def test_the_shares_of_the_targets_end_between_the_bounds(bounds, lift):
    anchor, head, training = started(Anchor(prior="average", bounds=bounds, lift=lift))
    # A network that prefers class 3, more than the sets allow.
    logits = torch.randn(N, C, generator=torch.Generator().manual_seed(2)) + torch.tensor(
        [0.0, 0.0, 0.0, 4.0]
    )
    for epoch in range(60):
        anchor.start_epoch(epoch, 60)
        anchor.observe(Outputs((logits,), (torch.ones(N, 3),)), head)
        refine(anchor, head, training, logits)
        anchor.end_epoch(training)
    prior = estimate_prior(training.candidates, how="average")
    lower, upper = (prior.centre, prior.centre) if bounds == "point" else (prior.lower, prior.upper)
    shares = training.targets.mean().double().numpy()
    assert (shares >= lower - 1e-3).all()
    assert (shares <= upper + 1e-3).all()


def test_targets_are_lifted_by_records_and_predictions_corrected_by_the_mean_target():
    anchor, head, training = started(Anchor(momentum=0.5, lift="records"))
    records = RECORDS(momentum=0.5)
    records.attach(Classifier(torch.nn.Identity(), head))
    outputs = Outputs((torch.randn(N, C),), (torch.randn(N, 3),))
    for part in (anchor, records):
        part.observe(outputs, head)
    anchor.bias.copy_(torch.tensor([1.0, 0.0, -1.0, 0.0]))
    anchor.start_epoch(0, 10)
    torch.testing.assert_close(
        anchor.subtracted("targets", head), records.log_prior(head) - anchor.bias
    )
    torch.testing.assert_close(anchor.subtracted("prediction", head), training.targets.mean().log())


@pytest.mark.parametrize(
    ("lift", "lifted"),
    [("records", [1, 1, 1, 1]), ("warm-up", [1, 1, 0, 0]), ("none", [0, 0, 0, 0])],
)
def test_records_lifts_in_all_epochs_in_those_of_the_warm_up_or_in_none(lift, lifted):
    anchor, *_ = started(Anchor(lift=lift, warmup=0.5))
    for epoch, strength in enumerate(lifted):
        anchor.start_epoch(epoch, 4)
        assert float(anchor.strength) == strength


def test_between_the_bounds_the_bias_decays():
    anchor, _, training = started(
        Anchor(prior={0: (0, 1), 1: (0, 1), 2: (0, 1), 3: (0, 1)}, warmup=0.0)
    )
    anchor.bias.copy_(torch.tensor([3.0, -1.0, -1.0, -1.0]))
    for epoch in range(2):
        anchor.start_epoch(epoch, 2)
        anchor.end_epoch(training)
    torch.testing.assert_close(anchor.bias, torch.tensor([0.75, -0.25, -0.25, -0.25]))


def test_a_class_whose_estimate_is_zero_cannot_vanish_between_the_bounds():
    anchor = Anchor(prior="sets")
    anchor.attach(Classifier(torch.nn.Identity(), torch.nn.Linear(3, C)))
    rng = np.random.default_rng(0)
    matrix = rng.random((400, C)) < 0.5
    matrix[np.arange(400), np.where(rng.random(400) < 0.02, 2, rng.integers(0, 2, 400))] = (
        True  # no example of class 3
    )
    candidates = Candidates.from_matrix(torch.from_numpy(matrix))
    anchor.start_training(BetweenEpochs(candidates, initial_targets(candidates)))
    prior = estimate_prior(candidates)
    assert prior.regime == "independent"
    zero = prior.lower == 0
    assert zero.any()
    expected = np.minimum(math.sqrt(2 / math.pi) * prior.deviation, prior.upper)
    np.testing.assert_allclose(
        anchor.lower.numpy()[zero], np.maximum(expected, 0.5 / 400)[zero], rtol=1e-5
    )


def test_the_bounds_hold_only_after_the_warm_up():
    anchor, _, training = started(Anchor(prior=[1, 1, 1, 7], warmup=0.5))
    for epoch in range(10):
        anchor.start_epoch(epoch, 10)
        anchor.end_epoch(training)
        assert bool(anchor.bias.any()) is (epoch >= 4)


def test_a_class_without_candidates_counts_as_half_an_example():
    anchor = Anchor(prior="average")
    head = torch.nn.Linear(3, C)
    anchor.attach(Classifier(torch.nn.Identity(), head))
    candidates = Candidates.of([[0, 1], [1, 2]], n_classes=C)
    training = BetweenEpochs(candidates, initial_targets(candidates))
    anchor.start_training(training)
    anchor.start_epoch(5, 10)
    anchor.end_epoch(training)
    assert float(anchor.mean_target[3]) == 0.25
    assert torch.isfinite(anchor.bias).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bounds": "soft"}, "it must be 'interval' or 'point'"),
        ({"lift": "more"}, "it must be 'records', 'warm-up' or 'none'"),
        ({"prior": "uniform"}, "choose auto, sets, average"),
        ({"warmup": 60}, "a number between 0 and 1"),
        ({"width": -1}, "a number of at least 0"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Anchor(**options)
