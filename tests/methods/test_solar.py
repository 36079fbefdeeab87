import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

from ltpll import PartialLabelClassifier
from ltpll.blocks.selection import mixup_partners, mixup_weights
from ltpll.blocks.sinkhorn import sinkhorn
from ltpll.errors import InputError
from ltpll.evaluation.during_training import Evaluate
from ltpll.evaluation.metrics import prior_distance
from ltpll.methods import METHODS
from ltpll.models import build_model
from ltpll.rebalancers import REBALANCERS
from ltpll.synthetic import example_tables, four_squares, uniform_candidates
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.views import Jitter, Views
from support.problems import N_CLASSES, attached, problem, step_of
from support.refusals import refusal

SIZES = (20, 40, 80, 160)


def in_epoch(method, epoch, n_epochs=100):
    method.start_epoch(epoch, n_epochs)
    return method


def trained(epochs=60, **options):
    x, y = four_squares(SIZES, seed=0)
    candidates = uniform_candidates(y, 4, 0.5, seed=0)
    model = build_model("mlp", 0, n_inputs=2, n_classes=4, hidden=(32,))
    method = METHODS["solar"](**{"queue": 512, "ramp_epochs": 10, **options})
    views = Views(strong=(Jitter(0.05),))
    trainer = PartialLabelTrainer(
        model, method, epochs=epochs, batch_size=64, lr=0.3, device="cpu", views=views
    )
    return trainer.fit(x, candidates, [Evaluate(*four_squares([50] * 4, seed=1), y)]), y


def test_a_step_is_the_published_formula_written_out():
    method = in_epoch(attached(METHODS["solar"](estimation_epochs=0, queue=30, ramp_epochs=50)), 25)
    method.prior.copy_(torch.softmax(torch.arange(N_CLASSES) / 3.0, dim=0))
    p = problem(method)
    n = len(p.targets)
    earlier = problem(method, seed=5)
    method.assign_labels(earlier.outputs.logits[0], earlier.candidates)
    step = step_of(p)
    loss = method.step_loss(step)

    # Labels: optimal transport of the cubed probabilities, earlier ones and this batch together.
    cubes = []
    for one in (earlier, p):
        probability = torch.softmax(one.outputs.logits[0], 1) * one.candidates
        cubes.append(probability**3)
    dealt = sinkhorn(torch.cat(cubes).log(), method.prior)[-n:]
    weak, strong = p.outputs.logits
    losses = [float(-(dealt[i] * torch.log_softmax(weak[i], 0)).sum()) for i in range(n)]
    share = 0.2 + (0.6 - 0.2) / 2
    chosen = set()
    for k in range(N_CLASSES):
        members = sorted(
            (i for i in range(n) if int(dealt[i].argmax()) == k), key=lambda i: losses[i]
        )
        chosen |= set(members[: max(1, math.ceil(n * float(method.prior[k]) * share))])
    chosen |= {i for i in range(n) if float((dealt[i] * torch.softmax(weak[i], 0)).sum()) > 0.99}
    rest = set(range(n)) - chosen
    assert chosen
    assert rest

    # Blends: the same draws from a generator in the same state.
    g = torch.Generator().manual_seed(0)
    lam = mixup_weights(4, g)
    partner = mixup_partners(torch.tensor([i in chosen for i in range(n)]), g)
    blended = p.head(lam * p.outputs.features[0] + (1 - lam) * p.outputs.features[0][partner])
    relied = 0.0
    for i in chosen:
        mixed = lam * dealt[i] + (1 - lam) * dealt[partner[i]]
        for logits, label in ((weak[i], dealt[i]), (strong[i], dealt[i]), (blended[i], mixed)):
            relied += float(-(label * torch.log_softmax(logits.detach(), 0)).sum()) / len(chosen)
    others = sum(float(cross_entropy(weak[i : i + 1], p.targets[i : i + 1])) for i in rest) / len(
        rest
    )
    strength = 0.9 / 2
    assert float(loss.detach()) == pytest.approx(
        strength * relied + (1 - strength) * others, rel=1e-4
    )


def test_the_first_epoch_learns_from_the_targets_alone():
    method = in_epoch(attached(METHODS["solar"]()), 0)
    p = problem(method)
    torch.testing.assert_close(
        method.step_loss(step_of(p)), cross_entropy(p.outputs.logits[0], p.targets)
    )


def test_strength_and_quota_grow_to_their_final_values_and_restart_with_the_network():
    method = attached(METHODS["solar"](estimation_epochs=80, ramp_epochs=50))
    seen = {}
    for epoch in (0, 1, 25, 50, 79, 80, 105, 199):
        in_epoch(method, epoch, 200)
        seen[epoch] = (
            round(float(method.strength), 4),
            round(float(method.share), 4),
            bool(method.relies),
            round(float(method.rate), 4),
        )
    assert seen == {
        0: (0.0, 0.2, False, 0.1),
        1: (0.018, 0.208, True, 0.1),
        25: (0.45, 0.4, True, 0.1),
        50: (0.9, 0.6, True, 0.1),
        79: (0.9, 0.6, True, 0.1),
        80: (0.0, 0.2, False, 0.01),
        105: (0.45, 0.4, True, 0.01),
        199: (0.9, 0.6, True, 0.01),
    }


@pytest.mark.parametrize(("n_epochs", "expected"), [(800, 100), (1000, 100), (200, 50), (3, 0)])
def test_by_default_it_restarts_after_a_quarter_and_at_most_a_hundred_epochs(n_epochs, expected):
    assert METHODS["solar"]().restart(n_epochs) == expected


def test_assigned_labels_give_each_class_its_share_over_batch_and_queue():
    method = attached(METHODS["solar"](queue=300))
    prior = torch.softmax(torch.linspace(0, -2, N_CLASSES), dim=0)
    method.prior.copy_(prior)
    p = [problem(method, batch=50, seed=seed, scale=0.5) for seed in range(6)]
    total = torch.zeros(N_CLASSES)
    for one in p:
        total += method.assign_labels(one.outputs.logits[0], one.candidates).sum(0)
    torch.testing.assert_close(total / 300, prior, atol=0.02, rtol=0)
    assert int((method.queue.labels >= 0).sum()) == 300


def test_the_prior_moves_towards_the_truth():
    trainer, y = trained(epochs=40, estimation_epochs=20)
    true = torch.from_numpy(np.bincount(y) / len(y)).float()
    uniform = torch.full((4,), 0.25)
    assert prior_distance(trainer.method.prior, true) < 0.35 * prior_distance(uniform, true)
    distances = [record["prior_distance"] for record in trainer.history]
    assert distances[0] > 2 * distances[-1]
    assert trainer.history[-1]["test"]["balanced_accuracy"] > 0.9


def test_the_prior_is_a_running_mean_of_how_often_each_candidate_is_the_likeliest():
    trainer, _ = trained(epochs=3, estimation_epochs=0, rates=(0.25, 0.5))
    prior = trainer.method.prior.clone()
    labels = (
        trainer.outputs(trainer.x)
        .logits[0]
        .masked_fill(~trainer.candidates.dense(), -torch.inf)
        .argmax(1)
    )
    trainer.method.end_epoch(trainer)
    expected = [
        0.75 * float(prior[k]) + 0.25 * float((labels == k).float().mean()) for k in range(4)
    ]
    assert trainer.method.prior.tolist() == pytest.approx(expected, abs=1e-6)


def test_network_targets_and_learning_rate_restart_after_the_estimation():
    weights = {}
    x, y = four_squares(SIZES, seed=0)
    candidates = uniform_candidates(y, 4, 0.5, seed=0)
    model = build_model("mlp", 0, n_inputs=2, n_classes=4)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    class Watched(METHODS["solar"]):
        name = "watched"

        def start_epoch(self, epoch, n_epochs):
            super().start_epoch(epoch, n_epochs)
            weights[epoch] = {
                name: value.clone() for name, value in trainer.model.state_dict().items()
            }
            weights[epoch]["targets"] = trainer.targets.values.clone()
            weights[epoch]["momenta"] = [
                state["momentum_buffer"].clone() for state in trainer.optimizer.state.values()
            ]
            weights[epoch]["queue"] = int((self.queue.labels >= 0).sum())

    trainer = PartialLabelTrainer(
        model,
        Watched(estimation_epochs=3, queue=64),
        epochs=8,
        batch_size=64,
        device="cpu",
        views=Views(strong=(Jitter(0.1),)),
    )
    trainer.fit(x, candidates)
    for name, value in before.items():
        assert torch.equal(weights[3][name], value)
        assert not torch.equal(weights[2][name], value)
    assert torch.equal(weights[3]["targets"], weights[0]["targets"])
    assert not torch.equal(weights[2]["targets"], weights[0]["targets"])
    assert not any(momentum.any() for momentum in weights[3]["momenta"])
    assert [weights[epoch]["queue"] for epoch in (0, 2, 3)] == [0, 64, 0]
    rates = [record["lr"] for record in trainer.history]
    assert rates[3] == rates[0] == 0.01
    assert rates[:3] == pytest.approx(rates[3:6])  # the same schedule, interrupted
    assert not torch.allclose(
        trainer.method.prior, torch.full((4,), 0.25)
    )  # the prior survives the restart


def test_la_subtracts_the_methods_prior_at_prediction_and_is_also_evaluated_as_a_variant():
    trainer, _ = trained(epochs=10)
    with_la, _ = trained(epochs=10, la=True)
    x, _ = four_squares([50] * 4, seed=1)
    assert torch.equal(
        with_la.outputs(x).logits[0], trainer.outputs(x).logits[0]
    )  # the training is the same
    torch.testing.assert_close(with_la.logits(x), trainer.logits(x) - trainer.method.prior.log())
    assert trainer.history[-1]["la"] == with_la.history[-1]["test"]
    assert "la" not in with_la.history[-1]


def test_a_rebalancer_is_refused_and_la_named_instead():
    model = build_model("mlp", 0, n_inputs=2, n_classes=4)
    views = Views(strong=(Jitter(0.1),))

    def make():
        return PartialLabelTrainer(model, METHODS["solar"](), REBALANCERS["records"](), views=views)

    assert "`la`" in refusal(make, InputError)


@pytest.mark.parametrize(
    "options",
    [
        {"estimation_epochs": -1},
        {"queue": 0},
        {"quota": (0.2, 1.5)},
        {"rates": (0.1,)},
        {"sharpness": 0},
    ],
)
def test_an_impossible_option_is_refused(options):
    with pytest.raises(InputError, match="SoLar"):
        METHODS["solar"](**options)


def test_a_restart_after_the_last_epoch_is_refused():
    model = build_model("mlp", 0, n_inputs=2, n_classes=4)
    with pytest.raises(InputError, match="train longer"):
        PartialLabelTrainer(
            model,
            METHODS["solar"](estimation_epochs=10),
            epochs=10,
            views=Views(strong=(Jitter(0.1),)),
        )


def test_the_default_learning_rate_does_not_diverge_on_a_table():
    table = pd.DataFrame(example_tables().train)
    losses = []
    classifier = PartialLabelClassifier(
        "solar",
        steps=150,
        device="cpu",
        threads=1,
        on_epoch=lambda record: losses.append(record["loss"]),
    )
    classifier.fit(table.filter(like="pixel"), table["candidates"])
    assert max(losses) < 10
    assert (
        np.mean(
            classifier.transduced_.labels == table["label"].map(list(classifier.classes_).index)
        )
        > 0.9
    )
