import math

import pytest
import torch
from torch import nn

from ltpll.blocks.contrastive import MomentumEncoder, Projector, Queue, contrastive_loss
from ltpll.methods import METHODS
from support.problems import N_FEATURES, attached, problem, step_of


def test_projections_have_length_one():
    vectors = Projector(5, 3)(torch.randn(10, 5, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(10))


@pytest.mark.parametrize("sizes", [(3, 3, 3), (4, 1, 6), (10, 2)])
def test_a_queue_holds_the_last_ones_and_nothing_else(sizes):
    queue, seen = Queue(7, 2), []
    assert queue.labels.tolist() == [-1] * 7
    for n in sizes:
        labels = torch.arange(len(seen), len(seen) + n)
        seen += labels.tolist()
        queue.replace_oldest(torch.stack([labels, -labels], dim=1).float(), labels)
    held = [label for label in queue.labels.tolist() if label >= 0]
    assert sorted(held) == seen[-7:]
    for label, vector in zip(queue.labels.tolist(), queue.vectors.tolist(), strict=True):
        assert label < 0 or vector == [label, -label]


def test_a_queue_can_be_limited_and_emptied():
    queue = Queue(10, 1)
    for start in (0, 4):
        labels = torch.arange(start, start + 4)
        queue.replace_oldest(labels[:, None].float(), labels)
    assert queue.stored_vectors()[1].tolist() == list(range(8))
    queue.shorten_to(5)
    assert queue.stored_vectors()[1].tolist() == list(range(5))
    queue.shorten_to(7)  # never longer again
    for label in range(20, 25):
        queue.replace_oldest(torch.tensor([[float(label)]]), torch.tensor([label]))
    vectors, labels = queue.stored_vectors()
    assert sorted(labels.tolist()) == list(range(20, 25))
    assert vectors.flatten().tolist() == labels.tolist()
    queue.forget_all()
    assert len(queue.stored_vectors()[1]) == 0


def test_a_momentum_encoder_is_a_moving_average_and_never_gets_gradients():
    network = nn.Linear(3, 2)
    encoder = MomentumEncoder(network, momentum=0.9)
    start = encoder.network.weight.clone()
    with torch.no_grad():
        network.weight.add_(1.0)
    for _ in range(2):
        encoder.follow_network(network)
    torch.testing.assert_close(encoder.network.weight, start + 1 - 0.9**2)
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert network.weight.requires_grad


def test_the_loss_is_the_mean_log_probability_of_the_positives_in_a_plain_loop():
    g = torch.Generator().manual_seed(0)
    similarities = torch.randn(6, 9, generator=g)
    allowed = torch.rand(6, 9, generator=g) < 0.8
    positives = torch.rand(6, 9, generator=g) * (torch.rand(6, 9, generator=g) < 0.4) * allowed
    positives[2] = 0  # an anchor without any
    terms = []
    for i in range(6):
        total = sum(math.exp(similarities[i, j]) for j in range(9) if allowed[i, j])
        weight = sum(float(positives[i, j]) for j in range(9))
        if weight > 0:
            terms.append(
                sum(
                    float(positives[i, j]) * (math.log(total) - float(similarities[i, j]))
                    for j in range(9)
                )
                / weight
            )
    assert float(contrastive_loss(similarities, positives, allowed)) == pytest.approx(
        sum(terms) / len(terms), rel=1e-5
    )


def test_no_positives_at_all_give_zero_and_no_bad_gradient():
    similarities = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = contrastive_loss(similarities, torch.zeros(3, 4), torch.ones(3, 4, dtype=torch.bool))
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert torch.isfinite(similarities.grad).all()


def test_a_memory_compares_with_the_batch_its_second_views_and_what_came_before():
    method = attached(METHODS["pico"](queue=6))
    memory = method.memory
    p = problem(method, batch=4)
    step = step_of(
        p,
        views=(
            p.outputs.features[0],
            torch.randn(4, N_FEATURES, generator=torch.Generator().manual_seed(1)),
        ),
    )
    labels = torch.tensor([0, 1, 1, 2])
    query = memory.projector(step.outputs.features[0])
    for n_held in (0, 4, 6):
        names = [*labels.tolist(), *labels.tolist(), *memory.queue.stored_vectors()[1].tolist()]
        assert len(names) == 8 + n_held
        vectors, key = memory.queue.stored_vectors()[0].clone(), memory.project_second_view(step)
        everything = torch.cat([query, key, vectors])
        similarities, same, allowed = memory.compare_and_store(query, key, labels, 0.5)
        for i in range(4):
            for j, name in enumerate(names):
                assert bool(allowed[i, j]) == (name >= 0 and i != j)
                assert bool(same[i, j]) == (name >= 0 and i != j and name == int(labels[i]))
                assert float(similarities[i, j].detach()) == pytest.approx(
                    float((query[i] @ everything[j]).detach()) / 0.5, abs=1e-5
                )
    assert not key.requires_grad
