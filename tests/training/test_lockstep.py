"""Lockstep: networks trained at once become what they would have become alone."""

import signal

import numpy as np
import pytest
import torch

from ltpll.candidates import Candidates
from ltpll.errors import NotFiniteError
from ltpll.estimator import PartialLabelClassifier
from ltpll.extras import Mixup
from ltpll.models import build_model
from ltpll.rebalancers import RECORDS, Anchor, EpochRECORDS, SetEvidence
from ltpll.training import cpu_products, fold_training
from ltpll.training.callbacks import Callback, Checkpoint
from ltpll.training.fold_training import FoldRun, LockstepRuns, in_lockstep
from ltpll.training.lockstep import (
    LockstepSampler,
    LockstepTrainer,
    StackedLinear,
    joined,
    lockstep_key,
)

REBALANCERS = (RECORDS(), Anchor("average"), SetEvidence(), EpochRECORDS(), "none")


def problem(n=64, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(4, n, p=[0.5, 0.3, 0.15, 0.05])
    x = (2 * rng.normal(size=(n, 5)) + 3 * np.eye(4, 5)[y]).astype(np.float32)
    return x, Candidates.from_matrix((rng.random((n, 4)) < 0.4) | (np.arange(4) == y[:, None]))


def classifier(rebalancer="auto", **params):
    how = {"device": "cpu", "threads": 1, "batch_size": 16, "epochs": 3, "rebalancer": rebalancer}
    return PartialLabelClassifier(**{**how, **params})


def fittings(rebalancers=REBALANCERS, sizes=None, weighted=False, **params):
    found = []
    for k, rebalancer in enumerate(rebalancers):
        x, sets = problem(64 if sizes is None else sizes[k], seed=k)
        if weighted:
            sets = sets.with_weights(np.random.default_rng(k).random(len(sets.labels)) + 0.1)
        found.append(classifier(rebalancer, **params).prepare_training(x, sets))
    return found


def states(trainer):
    found = {**trainer.model.state_dict(), "targets": trainer.targets.values}
    return {**found, **{f"rebalancer.{k}": v for k, v in trainer.rebalancer.state_dict().items()}}


def assert_close(one, other, **tolerance):
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], msg=name, **tolerance)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("params", [{}, {"model": "linear", "method": "proden"}, {"lr": 3.0}])
def test_each_network_becomes_what_it_becomes_alone(params, weighted):
    alone, together = (fittings(weighted=weighted, **params) for _ in range(2))
    LockstepTrainer(together).fit_all()
    for one, other in zip(alone, together, strict=True):
        one.trainer.fit(one.x, one.candidates)
        assert_close(states(one.trainer), states(other.trainer), rtol=1e-3, atol=1e-4)
        assert one.trainer.epoch == other.trainer.epoch


@pytest.mark.parametrize("together", [False, True])
def test_training_starts_from_an_earlier_network_and_the_labels_that_it_predicts(together):
    rebalancers = (RECORDS(), Anchor("average"))
    first, second = fittings(rebalancers), fittings(rebalancers)
    for one, other in zip(first, second, strict=True):
        one.trainer.fit(one.x, one.candidates)
        other.trainer.earlier = states(one.trainer) | {
            f"model.{name}": value for name, value in one.trainer.model.state_dict().items()
        }
    if together:
        joint = LockstepTrainer(second)
        x = torch.cat([one.x for one in second])
        joint.prepare(x, joined([one.candidates for one in second]))
        assert joint.warmup_epochs == 0
    for one, other in zip(first, second, strict=True):
        if not together:
            other.trainer.prepare(other.x, other.candidates)
            assert other.trainer.warmup_epochs == 0
        found = {**states(other.trainer), "targets": other.trainer.targets.values}
        expected = {**states(one.trainer), "targets": one.trainer.final_targets().values}
        assert_close(expected, found)
        logits = one.trainer.logits(one.x)
        torch.testing.assert_close(other.trainer.logits(other.x), logits, rtol=1e-4, atol=1e-5)


def test_the_loss_is_the_mean_over_the_networks():
    alone, together = fittings(), fittings()
    joint = LockstepTrainer(together)
    joint.fit_all()
    losses = [one.trainer.fit(one.x, one.candidates).history[-1]["loss"] for one in alone]
    assert joint.history[-1]["loss"] == pytest.approx(np.mean(losses), rel=1e-4)


def test_networks_with_more_rows_see_all_of_them_in_turn():
    generator, seen = torch.Generator().manual_seed(0), [set(), set()]
    sampler = LockstepSampler([20, 23], 5, True, 100, generator)
    for _ in range(30):
        for index, (views,) in sampler.batches(lambda rows: (rows,)):
            assert torch.equal(index, views)
            for own, rows in zip(seen, index.view(5, 2).T, strict=True):
                own |= set(rows.tolist())
        sampler.restart()
    assert seen == [set(range(20)), set(range(20, 43))]


@pytest.mark.parametrize("n", [66, 74])
def test_rows_that_fill_no_batch_are_left_out_or_kept_as_alone(n):
    together = fittings(REBALANCERS[:2], [n, n])
    joint = LockstepTrainer(together)
    joint.fit_all()
    assert joint.steps_per_epoch == (4 if n == 66 else 5)


def test_networks_of_unequal_numbers_of_rows_are_trained():
    together = fittings(sizes=[64, 66, 65, 64, 67])
    LockstepTrainer(together).fit_all()
    for _, (trainer, x, _) in enumerate(together):
        assert torch.isfinite(trainer.outputs(x).logits[0]).all()
        assert trainer.epoch == 3


def test_an_interrupted_training_resumes_to_the_same_bits(tmp_path):
    whole, parts = fittings(), fittings()
    LockstepTrainer(whole).fit_all()

    class Interrupting(Callback):
        steps = 0

        def on_step_end(self, trainer):
            self.steps += 1
            if self.steps == 6:
                signal.raise_signal(signal.SIGINT)

    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors")
    with pytest.raises(KeyboardInterrupt):
        LockstepTrainer(parts).fit_all([Interrupting(), checkpoint])
    resumed = fittings()
    LockstepTrainer(resumed).fit_all([checkpoint])
    for one, other in zip(whole, resumed, strict=True):
        assert_close(states(one.trainer), states(other.trainer), rtol=0, atol=0)
        without = [{**record, "seconds": 0} for record in other.trainer.history]
        assert without == [{**record, "seconds": 0} for record in one.trainer.history]


def test_numbers_that_are_not_finite_end_the_training():
    together = fittings(lr=1e30)
    with pytest.raises(NotFiniteError):
        LockstepTrainer(together).fit_all()


def test_weights_of_single_layers_are_those_of_the_stacked_layer():
    layers = [torch.nn.Linear(3, 2) for _ in range(4)]
    x = torch.randn(4, 6, 3)
    expected = torch.stack([layer(one) for layer, one in zip(layers, x, strict=True)])
    stacked = StackedLinear(layers)
    torch.testing.assert_close(stacked(x), expected)
    with torch.no_grad():
        stacked.weight.mul_(2)
        stacked.bias.mul_(2)
    for layer, one, own in zip(layers, x, expected, strict=True):
        torch.testing.assert_close(layer(one), 2 * own)


@pytest.mark.parametrize(
    "params",
    [
        {"method": "pico"},
        {"extras": [Mixup()]},
        {"truth_missing": 0.1},
        {"on_nan": "skip"},
        {"precision": "bfloat16"},
        {"model": build_model("linear", 0, n_inputs=5, n_classes=4)},
    ],
)
def test_what_cannot_be_trained_in_lockstep_has_no_key(params):
    assert lockstep_key(classifier(), 64)
    assert not lockstep_key(classifier(**params), 64)


def test_runs_are_joined_if_their_settings_and_inputs_are_the_same_and_memory_allows(monkeypatch):
    x, _ = problem()
    rows = np.arange(64)
    fold, smaller = (rows[:48], rows[48:]), (rows[:20], rows[48:])
    kinds = [(classifier(), x, fold)] * 2 + [
        (classifier(RECORDS()), x, fold),
        (classifier(), x.copy(), fold),
        (classifier(lr=0.1), x, fold),
        (classifier(extras=[Mixup()]), x, fold),
        (classifier(epochs="auto", steps=100), x, fold),
        (classifier(epochs="auto", steps=100), x, smaller),
    ]
    runs = [FoldRun(k, *kind, None) for k, kind in enumerate(kinds)]
    assert [one.numbers for one in in_lockstep(runs)] == [(0, 1, 2), (3,), (4,), (5,), (6,), (7,)]
    assert [type(one) is LockstepRuns for one in in_lockstep(runs)].count(False) == 1
    monkeypatch.setattr(fold_training, "BYTES_AT_ONCE", 2 * 48 * 5 * 4)
    assert [one.numbers for one in in_lockstep(runs[:3])] == [(0, 1), (2,)]
    monkeypatch.setattr(fold_training, "BYTES_AT_ONCE", 48 * 5 * 4 - 1)
    assert in_lockstep(runs[:3]) == runs[:3]


def test_faster_products_are_used_only_if_they_are_exact(monkeypatch):
    before = torch.get_float32_matmul_precision()
    with cpu_products.fast_products():
        assert torch.get_float32_matmul_precision() == "medium"
    assert torch.get_float32_matmul_precision() == before
    monkeypatch.setattr(cpu_products, "ROUNDING", -1.0)
    with cpu_products.fast_products():
        assert torch.get_float32_matmul_precision() == before
