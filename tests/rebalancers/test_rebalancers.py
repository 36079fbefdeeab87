import math

import numpy as np
import pytest
import torch

from ltpll.errors import InputError, InputWarning
from ltpll.interfaces import Outputs
from ltpll.methods import METHODS
from ltpll.rebalancers import REBALANCERS
from support.problems import (
    FREQUENCIES,
    N_CLASSES,
    N_FEATURES,
    Problem,
    attached,
    between_epochs,
    make_rebalancer,
    naive_softmax,
    problem,
)

PRIOR = np.asarray(FREQUENCIES) / sum(FREQUENCIES)


def test_records_follows_its_recurrence_from_zero_over_all_views():
    records = make_rebalancer("records")
    mean = np.zeros(N_FEATURES)
    for seed in range(4):
        p = problem(METHODS["corr"](), seed=seed)
        records.observe(p.outputs, p.head)
        weak, strong = (features.double().numpy() for features in p.outputs.features)
        mean = 0.9 * mean + 0.1 * ((weak + strong) / 2).mean(0)
    np.testing.assert_allclose(records.mean_feature.numpy(), mean, atol=1e-6)
    logits = p.head.weight.detach().double().numpy() @ mean + p.head.bias.detach().double().numpy()
    expected = [math.log(value + 1e-9) for value in naive_softmax(logits.tolist())]
    np.testing.assert_allclose(records.log_prior(p.head).numpy(), expected, atol=1e-5)


def test_records_reads_its_mean_feature_with_the_current_head():
    records = make_rebalancer("records")
    p = problem(METHODS["proden"]())
    records.observe(p.outputs, p.head)
    before = records.log_prior(p.head)
    with torch.no_grad():
        p.head.bias[3] += 2.0
    after = records.log_prior(p.head)
    assert after[3] > before[3]
    assert not records.log_prior(p.head).requires_grad


@pytest.mark.parametrize("momentum", [-0.1, 1.1, float("nan")])
def test_records_refuses_an_impossible_momentum(momentum):
    with pytest.raises(InputError, match="momentum"):
        REBALANCERS["records"](momentum=momentum)


def test_momentum_zero_keeps_the_last_batch_and_one_never_moves():
    p = problem(METHODS["proden"]())
    last, never = (attached(REBALANCERS["records"](momentum=m)) for m in (0.0, 1.0))
    for rebalancer in (last, never):
        rebalancer.observe(p.outputs, p.head)
    torch.testing.assert_close(last.mean_feature, p.outputs.features[0].mean(0))
    assert not never.mean_feature.any()


@pytest.mark.parametrize("name", ["oracle-la", "oracle-la-posthoc"])
def test_oracle_subtracts_the_log_of_the_true_frequencies(name):
    oracle = make_rebalancer(name)
    p = problem(METHODS["proden"]())
    adjusted = oracle.adjust(p.outputs, "prediction", p.head).logits[0].numpy()
    np.testing.assert_allclose(adjusted, p.outputs.logits[0].numpy() - np.log(PRIOR), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "targets", "prediction"),
    [
        ("none", False, False),
        ("oracle-la-posthoc", False, True),
        ("oracle-la", True, True),
        ("temp-oracle-la", True, True),
        ("epoch-records", True, True),
        ("records", True, True),
        ("mean-target", False, True),
        ("set-evidence", False, True),
        ("anchor", True, True),
    ],
)
def test_each_rebalancer_acts_in_its_places_only(name, targets, prediction):
    rebalancer = make_rebalancer(name)
    method = METHODS["proden"]()
    p = problem(method)
    training = between_epochs(p, method)
    rebalancer.start_training(training)
    rebalancer.start_epoch(5, 10)
    rebalancer.observe(p.outputs, p.head)
    rebalancer.end_epoch(training)
    for place, acts in (("targets", targets), ("prediction", prediction)):
        adjusted = rebalancer.adjust(p.outputs, place, p.head)
        assert torch.equal(adjusted.logits[0], p.outputs.logits[0]) is not acts
        assert torch.equal(adjusted.features[0], p.outputs.features[0])


def test_temp_oracle_rises_linearly_from_nothing_to_the_whole_prior():
    temp = make_rebalancer("temp-oracle-la")
    head = problem(METHODS["proden"]()).head
    for epoch, share in ((0, 0.0), (5, 0.5), (10, 1.0)):
        temp.start_epoch(epoch, 11)
        np.testing.assert_allclose(temp.log_prior(head).numpy(), share * np.log(PRIOR), atol=1e-6)


def test_epoch_records_uses_the_mean_prediction_of_the_last_whole_epoch():
    rebalancer = make_rebalancer("epoch-records")
    head = problem(METHODS["proden"]()).head
    np.testing.assert_allclose(rebalancer.log_prior(head).exp().numpy(), 1 / N_CLASSES, atol=1e-6)
    for epoch in range(2):
        rows = []
        for step in range(3):
            p = problem(METHODS["corr"](), seed=10 * epoch + step, batch=8 + step)
            rebalancer.observe(p.outputs, head)
            rows += [naive_softmax(row) for view in p.outputs.logits for row in view.tolist()]
        before = rebalancer.log_prior(head).clone()
        rebalancer.end_epoch(between_epochs(p, METHODS["corr"]()))
        assert not torch.equal(before, rebalancer.log_prior(head))
        np.testing.assert_allclose(
            rebalancer.log_prior(head).exp().numpy(), np.mean(rows, axis=0), atol=1e-5
        )


def trained_toward_the_head(name):
    """A rebalancer that has observed a network that favours class 0 and neglects the last one."""
    rebalancer = make_rebalancer(name)
    head = torch.nn.Linear(N_FEATURES, N_CLASSES)
    with torch.no_grad():
        head.weight.zero_()
        head.weight[:, 0] = torch.linspace(3, -3, N_CLASSES)
        head.bias.zero_()
    features = (
        0.3 * torch.randn(64, N_FEATURES, generator=torch.Generator().manual_seed(0))
        + torch.eye(N_FEATURES)[0]
    )
    outputs = Outputs((head(features).detach(),), (features,))
    everything = torch.ones(64, N_CLASSES, dtype=torch.bool)
    p = Problem(outputs, torch.softmax(outputs.logits[0], dim=1), everything, head)
    training = between_epochs(p, METHODS["proden"]())
    rebalancer.start_training(training)
    rebalancer.start_epoch(9, 10)
    for _ in range(30):
        rebalancer.observe(outputs, head)
    rebalancer.end_epoch(training)
    return rebalancer, outputs, head


@pytest.mark.parametrize("name", [name for name in REBALANCERS if name != "none"])
def test_every_rebalancer_lowers_the_head_class_and_lifts_the_tail(name):
    rebalancer, outputs, head = trained_toward_the_head(name)
    before = torch.softmax(outputs.logits[0], dim=1).mean(0)
    after = torch.softmax(rebalancer.adjust(outputs, "prediction", head).logits[0], dim=1).mean(0)
    assert after[0] < before[0] - 0.01
    assert after[-1] > before[-1] + 0.01


@pytest.mark.parametrize(
    "name", [name for name in REBALANCERS if REBALANCERS[name].estimates_prior]
)
def test_an_estimated_prior_ranks_the_classes_as_the_network_does(name):
    rebalancer, _, head = trained_toward_the_head(name)
    prior = rebalancer.log_prior(head)
    assert prior.tolist() == sorted(prior.tolist(), reverse=True)


@pytest.mark.parametrize("name", ["oracle-la", "oracle-la-posthoc", "temp-oracle-la"])
class TestOracles:
    def test_a_uniform_prior_changes_no_decision(self, name):
        uniform = REBALANCERS[name](class_frequencies=[5] * N_CLASSES)
        uniform.start_epoch(9, 10)
        p = problem(METHODS["proden"]())
        for place in ("targets", "prediction"):
            adjusted = uniform.adjust(p.outputs, place, p.head).logits[0]
            torch.testing.assert_close(
                torch.softmax(adjusted, 1), torch.softmax(p.outputs.logits[0], 1)
            )

    def test_counts_and_shares_mean_the_same(self, name):
        counts, shares = REBALANCERS[name](FREQUENCIES), REBALANCERS[name](PRIOR)
        torch.testing.assert_close(counts.log_frequencies, shares.log_frequencies)

    def test_without_class_frequencies_it_is_refused_with_a_way_out(self, name):
        with pytest.raises(InputError, match=r"true class frequencies.*'records'"):
            REBALANCERS[name](None)
        with pytest.raises(InputError, match="class_frequencies"):
            REBALANCERS.create(name, {"n_classes": 3})

    @pytest.mark.parametrize("frequencies", [[1, -1], [1, float("nan")], [0, 0]])
    def test_impossible_frequencies_are_refused(self, name, frequencies):
        with pytest.raises(InputError, match="frequenc"):
            REBALANCERS[name](frequencies)

    def test_an_absent_class_is_adjusted_like_the_rarest_with_a_warning(self, name):
        with pytest.warns(InputWarning, match="frequency 0"):
            oracle = REBALANCERS[name]([8, 0, 2])
        assert oracle.log_frequencies[1] == oracle.log_frequencies[2]
        assert torch.isfinite(oracle.log_frequencies).all()
