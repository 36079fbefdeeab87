"""SFN and LDD: terms of the class vectors alone."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from ltpll.errors import InputError
from ltpll.extras import EXTRAS
from ltpll.methods import METHODS
from support.problems import problem, step_of
from support.refusals import refusal

TERMS = ["sfn", "ldd"]


def term(extra, head):
    method = METHODS["proden"]()
    return extra.loss(method, step_of(problem(method)._replace(head=head)), None, None)


def head_of(rows):
    weight = torch.as_tensor(rows, dtype=torch.float32)
    head = nn.Linear(weight.shape[1], weight.shape[0])
    head.weight.data.copy_(weight)
    return head


def smallest_angle(head):
    rows = nn.functional.normalize(head.weight.detach(), dim=1)
    cosines = (rows @ rows.T)[~torch.eye(len(rows), dtype=torch.bool)]
    return math.degrees(math.acos(float(cosines.max().clamp(-1, 1))))


def random_head(seed, n_classes=5, n_features=8):
    return head_of(
        torch.randn(n_classes, n_features, generator=torch.Generator().manual_seed(seed))
    )


@pytest.mark.parametrize("seed", range(5))
def test_sfn_is_the_sum_of_squared_cosines_of_pairs(seed):
    head = random_head(seed)
    rows = head.weight.detach().double().numpy()
    expected = 0.0
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            if i != j:
                expected += (a @ b / np.linalg.norm(a) / np.linalg.norm(b)) ** 2
    assert float(term(EXTRAS["sfn"](weight=0.5), head).detach()) == pytest.approx(
        0.5 * expected, rel=1e-4
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_classes", [5, 12])  # fewer and more classes than features
def test_ldd_is_the_trace_less_the_log_determinant(seed, n_classes):
    head = random_head(seed, n_classes)
    rows = head.weight.detach().double().numpy()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    gram = rows @ rows.T
    expected = np.trace(gram) - np.log(np.linalg.eigvalsh(gram + 0.1 * np.eye(n_classes))).sum()
    assert float(term(EXTRAS["ldd"](weight=2.0, epsilon=0.1), head).detach()) == pytest.approx(
        2 * expected, rel=1e-4
    )


@pytest.mark.parametrize("name", TERMS)
def test_orthogonal_vectors_of_any_length_are_best(name):
    extra = EXTRAS[name]()
    lengths = torch.tensor([0.1, 1.0, 30.0, 2.0])[:, None]
    best = float(term(extra, head_of(lengths * torch.eye(4, 6))).detach())
    assert best == pytest.approx(float(term(extra, head_of(torch.eye(4, 6))).detach()), abs=1e-6)
    for seed in range(20):
        assert float(term(extra, random_head(seed, 4, 6)).detach()) > best


@pytest.mark.parametrize("name", TERMS)
def test_following_its_gradient_raises_the_smallest_angle(name):
    head = random_head(0, n_classes=6, n_features=8)
    before = smallest_angle(head)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.05)
    extra = EXTRAS[name](weight=1.0)
    for _ in range(200):
        optimizer.zero_grad()
        term(extra, head).backward()
        optimizer.step()
    assert smallest_angle(head) > before + 10
    assert smallest_angle(head) > 80


@pytest.mark.parametrize("name", TERMS)
def test_equal_class_vectors_have_a_finite_term_and_gradient(name):
    head = head_of(torch.ones(4, 3))
    value = term(EXTRAS[name](), head)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(head.weight.grad).all()


@pytest.mark.parametrize("name", TERMS)
def test_a_negative_weight_is_refused(name):
    message = refusal(lambda: EXTRAS[name](weight=-1.0), InputError)
    assert "it must be a number of at least 0" in message
