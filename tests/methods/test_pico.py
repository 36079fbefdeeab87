import pytest
import torch
from torch.nn.functional import cross_entropy

from ltpll.blocks.contrastive import contrastive_loss, move_prototypes
from ltpll.errors import InputError
from ltpll.methods import METHODS
from ltpll.models import build_model
from ltpll.rebalancers import REBALANCERS
from ltpll.synthetic import four_squares, uniform_candidates
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.views import Jitter, Views
from support.problems import N_CLASSES, N_FEATURES, attached, inside, problem, step_of


def step_and_views(method, seed=0, rebalancer=None):
    p = problem(method, seed=seed)
    other = torch.randn(
        len(p.targets), N_FEATURES, generator=torch.Generator().manual_seed(seed + 50)
    )
    return p, step_of(p, rebalancer, views=(p.outputs.features[0], other))


def test_targets_move_towards_the_candidate_with_the_nearest_prototype():
    method = attached(METHODS["pico"]())
    method.start_epoch(6, 10)
    p = problem(method)
    new = method.disambiguate(p.outputs, p.targets, p.candidates)
    vectors = method.memory.projector(p.outputs.features[0])
    for i in range(len(new)):
        near = [float((vectors[i] @ method.prototypes[j]).detach()) for j in range(N_CLASSES)]
        best = max(inside(p.candidates, i), key=lambda j: near[j])
        expected = [0.875 * float(p.targets[i, j]) + 0.125 * (j == best) for j in range(N_CLASSES)]
        assert new[i].tolist() == pytest.approx(expected, abs=1e-6)


def test_prototypes_are_running_means_over_one_example_after_the_other():
    method = attached(METHODS["pico"](prototype_momentum=0.9))
    g = torch.Generator().manual_seed(0)
    vectors, labels = (
        torch.randn(30, 128, generator=g),
        torch.randint(N_CLASSES - 1, (30,), generator=g),
    )
    expected = [row.clone() for row in method.prototypes]
    for vector, label in zip(vectors, labels.tolist(), strict=True):
        expected[label] = 0.9 * expected[label] + 0.1 * vector
    move_prototypes(method.prototypes, vectors, labels, method.prototype_momentum)
    torch.testing.assert_close(
        method.prototypes, torch.stack([row / row.norm() for row in expected])
    )


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_step_is_cross_entropy_plus_the_contrast_of_examples_with_the_same_likely_label(epoch):
    method = attached(METHODS["pico"](queue=20, momentum=0.5))
    method.start_epoch(epoch, 10)
    _, earlier = step_and_views(method, seed=3)
    method.step_loss(earlier)
    p, step = step_and_views(method)
    held, labels_held = method.memory.queue.vectors.clone(), method.memory.queue.labels.clone()
    loss = method.step_loss(step)

    labels = [
        max(inside(p.candidates, i), key=lambda j: float(p.outputs.logits[0][i, j]))
        for i in range(len(p.targets))
    ]
    n = len(labels)
    query = method.memory.projector(p.outputs.features[0]).detach()
    key = method.memory.projector_follower.network(step.batch.views[1])
    others, names = torch.cat([query, key, held]), [*labels, *labels, *labels_held.tolist()]
    similarities = query @ others.T / 0.07
    allowed = torch.tensor(
        [[name >= 0 and i != j for j, name in enumerate(names)] for i in range(n)]
    )
    if epoch == 0:
        for i in range(n):
            allowed[i, : 2 * n] = torch.arange(2 * n) == i + n
        positives = torch.tensor([[float(j == i + n) for j in range(len(names))] for i in range(n)])
    else:
        positives = torch.tensor(
            [
                [float(name == labels[i] and i != j) for j, name in enumerate(names)]
                for i in range(n)
            ]
        )
    expected = cross_entropy(p.outputs.logits[0], p.targets) + 0.5 * contrastive_loss(
        similarities, positives, allowed
    )
    torch.testing.assert_close(loss.detach(), expected, rtol=1e-4, atol=0)


def test_a_rebalancer_decides_which_candidate_is_the_likeliest():
    frequencies = torch.logspace(4, 0, N_CLASSES)
    method, plain = attached(METHODS["pico"](queue=20)), attached(METHODS["pico"](queue=20))
    oracle = REBALANCERS["oracle-la"](frequencies)
    p, step = step_and_views(method, rebalancer=oracle)
    method.step_loss(step)
    plain.step_loss(step_and_views(plain)[1])
    n = len(p.targets)
    adjusted = (
        (p.outputs.logits[0] - (frequencies / frequencies.sum()).log())
        .masked_fill(~p.candidates, -torch.inf)
        .argmax(1)
    )
    assert method.memory.queue.labels[:n].tolist() == adjusted.tolist()
    assert plain.memory.queue.labels[:n].tolist() != adjusted.tolist()


def test_prototypes_separate():
    """They are farther apart than projections were before, and close to their own examples."""
    x, y = four_squares([80] * 4, seed=0)
    candidates = uniform_candidates(y, 4, 0.3, seed=0)
    model = build_model("mlp", 0, n_inputs=2, n_classes=4, hidden=(32,))
    method = METHODS["pico"](queue=256, width=16)
    trainer = PartialLabelTrainer(
        model,
        method,
        epochs=40,
        batch_size=64,
        lr=0.1,
        device="cpu",
        views=Views(strong=(Jitter(0.05),)),
    )
    with torch.no_grad():
        before = method.memory.projector(model(torch.from_numpy(x))[1])
    means = torch.stack([before[y == k].mean(0) for k in range(4)])
    means = means / means.norm(dim=1, keepdim=True)
    trainer.fit(x, candidates)
    off = ~torch.eye(4, dtype=torch.bool)
    after, were = (method.prototypes @ method.prototypes.T)[off], (means @ means.T)[off]
    assert float(after.max()) < float(were.min())
    assert float(after.mean()) < float(were.mean()) - 0.2
    vectors = method.memory.projector(trainer.outputs(x).features[0])
    assert float(((vectors @ method.prototypes.T).argmax(1).numpy() == y).mean()) > 0.9
    assert (trainer.targets.labels().numpy() == y).mean() > 0.9


def test_only_the_weak_view_goes_through_the_trained_network():
    assert METHODS["pico"]().views == ("weak", "strong")
    assert METHODS["pico"]().n_forward_views == 1


def test_the_momentum_encoder_is_not_trained_and_follows_the_network():
    x, y = four_squares([20] * 4, seed=0)
    model = build_model("mlp", 0, n_inputs=2, n_classes=4, hidden=(8,))
    method = METHODS["pico"](queue=64, momentum=0.5)
    trainer = PartialLabelTrainer(
        model, method, epochs=3, batch_size=16, device="cpu", views=Views(strong=(Jitter(0.05),))
    )
    start = [p.clone() for p in method.memory.model_follower.parameters()]
    trainer.fit(x, uniform_candidates(y, 4, 0.3, seed=0))
    trained = {id(p) for group in trainer.optimizer.param_groups for p in group["params"]}
    assert not any(id(p) in trained for p in method.memory.model_follower.parameters())
    assert all(id(p) in trained for p in method.memory.projector.parameters())
    for was, now, leader in zip(
        start, method.memory.model_follower.parameters(), model.parameters(), strict=True
    ):
        assert float((now - leader).detach().norm()) < float((was - leader).detach().norm())


@pytest.mark.parametrize(
    "options", [{"queue": 0}, {"temperature": 0}, {"phi": (0.9,)}, {"momentum": 1.5}]
)
def test_an_impossible_option_is_refused(options):
    with pytest.raises(InputError, match="PiCO"):
        METHODS["pico"](**options)
